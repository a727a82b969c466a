"""A pod as one task: its shape, whose it is, where it runs, and what can't be kept of what it asks."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.amounts import amount, up
from reconciler.kubernetes.objects.limits import limit_refusals, own_limit
from reconciler.kubernetes.objects.queue_names import LocalName
from reconciler.kubernetes.objects.remarks import Refusal
from reconciler.kubernetes.objects.requests import Requests, most_of, request_key, requests_in
from reconciler.kubernetes.objects.wire import Labels, Meta, Pod, instant_of
from solver.model.amounts import amounts_of
from solver.model.cluster import DeviceId
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape

_MIB = 2**20

DEVICES_MAX = 64
"""As schemas/job.json has it."""


class PodTask(NamedTuple):
    """A pod that is Quorate's. `queue`, `priority_class`: "" where the pod itself says none.

    `devices`: those that a binding gave it, `share` and `sharing` how it has its only one; `attempt` that of its gang's start.
    `is_counted`: what it asks for can be read, so that it can be said what it holds.
    """

    pod: Pod
    shape: Shape
    queue: str
    priority_class: str
    time_limit: Duration | None
    attempt: int
    devices: tuple[DeviceId, ...]
    share: MilliGpu | None
    sharing: str
    refusals: tuple[Refusal, ...]
    is_counted: bool

    @property
    def created(self) -> Instant:
        """When it was created."""
        written = self.pod.metadata.creation_timestamp
        return instant_of(written) if written else Instant(0)


def task_of(pod: Pod) -> PodTask:
    """The pod as a task. What can't be read is a refusal, never an error: one pod must not stop a round."""
    meta = pod.metadata
    shape, refusals = _shape(pod)
    devices = meta.annotations.get(names.DEVICES, "")
    share = meta.annotations.get(names.SHARE, "")
    return PodTask(
        pod=pod,
        shape=shape,
        queue=queue_of(meta),
        priority_class=label_priority(meta),
        time_limit=own_limit(pod),
        attempt=_number(meta.annotations.get(names.ATTEMPT)) or 0,
        devices=tuple(DeviceId(device) for device in devices.split(",") if device),
        share=_milli(share),
        sharing=meta.annotations.get(names.SHARING, ""),
        refusals=(*refusals, *_refusals(pod)),
        is_counted=not (refusals or pod.spec.unmet_claims or pod.spec.resource_claims),
    )


def queue_of(meta: Meta) -> str:
    """The queue that an object names, ours before all others, and Kueue's label as a LocalName; "" where it names none."""
    own = names.label_or_annotation(meta, names.QUEUE)
    local = "" if own else names.label_or_annotation(meta, names.KUEUE_QUEUE)
    if local:
        return LocalName(local)
    return own or names.label_or_annotation(meta, names.KAI_QUEUE, names.VOLCANO_QUEUE, names.VOLCANO_JOB_QUEUE)


def label_priority(meta: Meta) -> str:
    """The priority class that an object's labels or annotations name; "" where they name none."""
    return names.label_or_annotation(meta, names.PRIORITY_CLASS, names.KUEUE_PRIORITY)


def _shape(pod: Pod) -> tuple[Shape, tuple[Refusal, ...]]:
    annotations = pod.metadata.annotations
    notes = () if annotations.keys().isdisjoint(_SHARED) else _written_of(annotations)
    return _asked_for(request_key(pod.spec), notes)


def _written_of(annotations: Labels) -> tuple[tuple[str, str], ...]:
    return tuple((key, annotations[key]) for key in _SHARED if key in annotations)


_SHARED = (names.KAI_FRACTION, names.KAI_MEMORY, names.KAI_DEVICES, names.MIN_GPU_MEMORY)
"""Annotations that say of a pod how much of GPUs it asks for, and of which."""


@lru_cache(maxsize=8192)  # most pods ask for what others ask
def _asked_for(written: bytes, notes: tuple[tuple[str, str], ...]) -> tuple[Shape, tuple[Refusal, ...]]:
    """By what `request_key` gave, and those of _SHARED that are written."""
    try:
        asked = requests_in(written)
    except ValueError as wrong:
        return Shape(), (Refusal("unreadable-quantity", str(wrong), "Correct the pod's resources."),)
    if beyond := [name for name, number in asked.items() if number > most_of(name)]:
        message = f"asks for more than {most_of(beyond[0])} of {beyond[0]}, which no node has"
        return Shape(), (Refusal("too-much", message, "Correct the pod's resources."),)
    said, instances = dict(notes), instances_in(asked)
    shape = Shape(
        gpus=up(asked.get(names.GPU, Fraction(0))),
        cpu=Cpu(up(asked.get("cpu", Fraction(0)), 1000)),
        memory=Memory(up(asked.get("memory", Fraction(0)))),
        gpu_fraction=_milli(said.get(names.KAI_FRACTION)),
        gpu_memory=_gpu_memory(said),
        mig=next(iter(instances), None),
        devices=next(iter(instances.values()), _parts(said)),
        min_gpu_memory=_least_memory(said),
        resources=amounts_of({name: up(number) for name, number in asked.items() if not _is_field(name)}),
    )
    return shape, tuple(_gpu_refusals(said, asked))


def profile_of(resource: str) -> str:
    """The MIG profile that a resource counts: `nvidia.com/mig-1g.10gb.me` is `1g.10gb+me`."""
    profile = resource.removeprefix(names.MIG_PREFIX)
    return profile.removesuffix(".me") + "+me" if profile.endswith(".me") else profile


def instances_in(asked: Requests) -> dict[str, int]:
    """How many MIG instances of each profile these are, by the names of the profiles."""
    named = ((name, up(number)) for name, number in sorted(asked.items()) if name.startswith(names.MIG_PREFIX))
    return {profile_of(name): number for name, number in named if number}


def _is_field(name: str) -> bool:
    """Whether a shape has a field for it."""
    return name in ("cpu", "memory", names.GPU, names.GPU_SHARED) or name.startswith(names.MIG_PREFIX)


def _gpu_refusals(said: Labels, asked: Requests) -> Iterator[Refusal]:
    instances = instances_in(asked)
    if len(instances) > 1:
        message = f"asks for MIG instances of several profiles, {' and '.join(instances)}, in one pod"
        yield Refusal("several-profiles", message, "Ask for instances of one profile in each pod.")
    parts = [key for key in (names.KAI_FRACTION, names.KAI_MEMORY) if key in said]
    if (names.GPU in asked) + bool(instances) + len(parts) > 1:
        yield Refusal(
            "mixed-gpus",
            "asks for GPUs in several ways",
            f"Keep one of {names.GPU}, {names.MIG_PREFIX}PROFILE, {names.KAI_FRACTION} and {names.KAI_MEMORY}.",
        )
    if names.GPU_SHARED in asked:
        yield Refusal(
            "shared-resource",
            f"asks for {names.GPU_SHARED}, of which it is not known what part of a GPU it is",
            f"Write the annotation {names.KAI_FRACTION} or {names.KAI_MEMORY} instead.",
        )
    if _milli(said.get(names.KAI_FRACTION)) is None and names.KAI_FRACTION in said:
        yield Refusal("unreadable-fraction", f"the annotation {names.KAI_FRACTION} is no part of a GPU", 'Write "0.5".')
    if _gpu_memory(said) is None and names.KAI_MEMORY in said:
        yield Refusal("unreadable-fraction", f"the annotation {names.KAI_MEMORY} is no number of MiB", 'Write "8192".')
    if _least_memory(said) is None and names.MIN_GPU_MEMORY in said:
        message = f"the annotation {names.MIN_GPU_MEMORY} is no memory"
        yield Refusal("unreadable-memory", message, 'Write it as "64Gi".')
    if names.KAI_DEVICES in said and not 1 <= (_number(said[names.KAI_DEVICES]) or 0) <= DEVICES_MAX:
        message = f"the annotation {names.KAI_DEVICES} is no number of GPUs, 1 to {DEVICES_MAX}"
        yield Refusal("unreadable-fraction", message, 'Write "2".')


def _refusals(pod: Pod) -> Iterator[Refusal]:
    if pod.spec.unmet_claims:
        yield Refusal(*pod.spec.unmet_claims)
    elif pod.spec.resource_claims:
        message = "asks for devices by ResourceClaims, which the API server does not serve, or not to us"
        yield Refusal(
            "resource-claims", message, "Let it serve resource.k8s.io/v1, and let us list and watch all of it."
        )
    yield from limit_refusals(pod.metadata)
    if any(key in pod.metadata.annotations for key in names.EXCLUSIVE):
        message = "is to have a domain alone, for which its controller holds back pods until others have nodes"
        yield Refusal("exclusive-topology", message, f"Write the annotation {names.KUEUE_REQUIRED} instead.")


def _gpu_memory(said: Labels) -> Memory | None:
    number = _number(said.get(names.KAI_MEMORY))
    return Memory(number * _MIB) if number else None


def _parts(said: Labels) -> int:
    """Of how many GPUs it asks for a part."""
    asks = names.KAI_FRACTION in said or names.KAI_MEMORY in said
    return (_number(said.get(names.KAI_DEVICES)) if asks else None) or 1


def _least_memory(said: Labels) -> Memory | None:
    try:
        return Memory.parse(said.get(names.MIN_GPU_MEMORY))
    except ValueError:
        return None


def _milli(written: str | None) -> MilliGpu | None:
    try:
        milli = amount(written or "") * 1000
    except ValueError:
        return None
    return MilliGpu(int(milli)) if 0 < milli < 1000 and milli.denominator == 1 else None


def _number(written: str | None) -> int | None:
    return int(written) if written and written.isdecimal() and len(written) <= 12 else None
