"""To which gang a pod belongs, in which role, by what is written on the pod alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.podgroups import Source
from reconciler.kubernetes.objects.task_groups import one_group
from reconciler.kubernetes.objects.wire import Meta, Pod
from reconciler.kubernetes.objects.workload_groups import gang_name
from solver.model.workload import JobName

_DIGITS = re.compile(r"(\d+)")
_UNFIT = re.compile(r"[/%\x00-\x1f\x7f-\x9f\u2028\u2029]")
Order = tuple[object, ...]

_INDICES = dict.fromkeys((names.JOBSET_INDEX, names.JOB_INDEX, names.KUBEFLOW_INDEX, names.LWS_WORKER)).keys()
_UNNUMBERED = (0,) * len(_INDICES)


class GangKey(NamedTuple):
    """A gang, by what made it one."""

    namespace: str
    source: Source
    name: str

    @property
    def job(self) -> JobName:
        """The job's name: `research.job.train`. Neither a namespace nor a source has a dot, so no two gangs have the same.

        An annotation may call a gang anything: a `/`, which to a round is the mark of a gang's part, is written `%2F`, and so are
        signs that would make a line of their own where jobs are listed.
        """
        name = _UNFIT.sub(lambda sign: f"%{ord(sign[0]):02X}", self.name)
        return JobName(f"{self.namespace}.{self.source}.{name}")


class Membership(NamedTuple):
    """A pod's gang and role; `size`: how many pods the gang has, as far as the pod says it.

    `maker`: the object that made it, where that is of a kind that may make pods in turn, else the gang. `made_as`: what the pod is
    to that, whatever people call its role. `unit`: the sub-group of its PodGroup that it is in, where so many of these do.
    """

    key: GangKey
    role: str
    size: int | None
    maker: GangKey
    made_as: str = ""
    unit: str = ""


def membership_of(pod: Pod) -> Membership:
    """What a pod says. The first that it says counts: what people write for us, then PodGroups, then what controllers write."""
    meta = pod.metadata
    source, name, size = next((found for finder in _FINDERS if (found := finder(pod))), ("pod", meta.name, 1))
    said = _count(names.label_or_annotation(meta, names.GANG_SIZE))
    key = GangKey(meta.namespace, source, name)
    maker = _maker(key, meta)
    return Membership(key, role_of(meta), said or size, maker, _made_as(maker.source, meta))


def role_of(meta: Meta) -> str:
    """What the pod is in its gang; "worker" where nothing says it."""
    said = names.label_or_annotation(
        meta,
        names.ROLE,
        names.VOLCANO_TASK,
        names.KAI_SUBGROUP,
        names.KUBEFLOW_ROLE,
        names.KUBEFLOW_JOB_ROLE,
        names.RAY_GROUP,
        names.JOBSET_ROLE,
    )
    if not said and meta.labels.get(names.LWS_WORKER) == "0":
        return names.LEADER_ROLE
    return said.lower() or names.WORKER_ROLE


def _maker(key: GangKey, meta: Meta) -> GangKey:
    if _MAKER_LABELS.isdisjoint(meta.labels):
        return key
    made = (GangKey(key.namespace, source, name) for source, label in _MAKERS if (name := meta.labels.get(label)))
    return next(made, key)


def makers_of(meta: Meta) -> tuple[GangKey, ...]:
    """The objects that made a pod, as far as their kinds write their names on it."""
    made = ((source, meta.labels.get(label)) for source, label in (*_MAKERS, *_OTHER_MAKERS))
    return tuple(GangKey(meta.namespace, source, name) for source, name in made if name)


def _made_as(source: Source, meta: Meta) -> str:
    labels = meta.labels
    if source == "jobset":
        return labels.get(names.JOBSET_ROLE, "")
    if source == "kubeflow":
        return (labels.get(names.KUBEFLOW_ROLE) or labels.get(names.KUBEFLOW_JOB_ROLE, "")).lower()
    if source == "lws":
        return names.LEADER_ROLE if labels.get(names.LWS_WORKER) == "0" else names.WORKER_ROLE
    return ""


def order_of(meta: Meta) -> Order:
    """By what a pod sorts in its role: the numbers that controllers give, then its name with its numbers as numbers."""
    is_numbered = not _INDICES.isdisjoint(meta.labels)
    numbers = tuple(_count(meta.labels.get(key, "")) or 0 for key in _INDICES) if is_numbered else _UNNUMBERED
    return (*numbers, in_natural_order(meta.name), meta.name)


def in_natural_order(name: str) -> Order:
    """Sorts names with their numbers as numbers."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name))


_MAKERS: Final[tuple[tuple[Source, str], ...]] = (
    ("lws", names.LWS_NAME),
    ("jobset", names.JOBSET_NAME),
    ("kubeflow", names.KUBEFLOW_NAME),
)
_OTHER_MAKERS: Final[tuple[tuple[Source, str], ...]] = (("ray", names.RAY_CLUSTER), ("job", names.JOB_NAME))
_MAKER_LABELS: Final = frozenset(label for _, label in _MAKERS)
Found = tuple[Source, str, int | None]


def _of_ours(pod: Pod) -> Found | None:
    name = names.label_or_annotation(pod.metadata, names.GANG)
    return ("gang", name, None) if name else None


def _of_kubernetes(pod: Pod) -> Found | None:
    group = pod.spec.scheduling_group
    return ("podgroup", group.pod_group_name, None) if group and group.pod_group_name else None


def _of_workload(pod: Pod) -> Found | None:
    return ("workload", gang_name(pod.spec.workload_ref), None) if pod.spec.workload_ref else None


def _of_volcano(pod: Pod) -> Found | None:
    name = names.label_or_annotation(pod.metadata, *names.VOLCANO_GROUP)
    return ("volcano", name, None) if name else None


def _of_kai(pod: Pod) -> Found | None:
    name = pod.metadata.annotations.get(names.KAI_GROUP)
    return ("kai", name, None) if name else None


def _of_coscheduling(pod: Pod) -> Found | None:
    name = pod.metadata.labels.get(names.COSCHEDULING_GROUP)
    return ("coscheduling", name, None) if name else None


def _of_lightweight(pod: Pod) -> Found | None:
    name = names.label_or_annotation(pod.metadata, names.LIGHTWEIGHT_GROUP)
    least = _count(names.label_or_annotation(pod.metadata, names.LIGHTWEIGHT_LEAST))
    return ("gang", name, least) if name else None


def _of_kueue(pod: Pod) -> Found | None:
    name = pod.metadata.labels.get(names.KUEUE_GROUP)
    return ("kueue", name, _count(pod.metadata.annotations.get(names.KUEUE_TOTAL, ""))) if name else None


def _of_yunikorn(pod: Pod) -> Found | None:
    found = one_group(pod.metadata)
    return ("yunikorn", found.application, found.members) if found else None


def _of_lws(pod: Pod) -> Found | None:
    labels = pod.metadata.labels
    name, group = labels.get(names.LWS_NAME), labels.get(names.LWS_GROUP)
    # Each group of leader and workers is a gang of its own; groups start and fail apart from each other.
    return (
        ("lws", f"{name}-{group}", _count(pod.metadata.annotations.get(names.LWS_SIZE, ""))) if name and group else None
    )


def _by_label(source: Source, key: str) -> Callable[[Pod], Found | None]:
    def found(pod: Pod) -> Found | None:
        name = pod.metadata.labels.get(key)
        return (source, name, None) if name else None

    return found


_FINDERS: tuple[Callable[[Pod], Found | None], ...] = (
    _of_ours,
    _of_kubernetes,
    _of_workload,
    _of_volcano,
    _of_kai,
    _of_coscheduling,
    _of_lightweight,
    _of_kueue,
    _of_yunikorn,
    _of_lws,
    _by_label("jobset", names.JOBSET_NAME),
    _by_label("kubeflow", names.KUBEFLOW_NAME),
    _by_label("ray", names.RAY_CLUSTER),
    _by_label("job", names.JOB_NAME),
)


def _count(written: str) -> int | None:
    return int(written) if written.isdecimal() and len(written) <= 9 else None
