"""Reads a scenario (why, given, policy, then) and says in lines what the plan does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from reconciler.control.lending import with_lent
from reconciler.documents.guard import LOADER
from reconciler.documents.repeats import with_windows
from solver.model.amounts import read_amounts
from solver.model.cluster import DeviceId, Gpu, GpuType, Links, MigInstance, Node, NodeName
from solver.model.document import from_builtins, to_builtins
from solver.model.inflight import InFlight, declared_name
from solver.model.node_sets import NodeSet
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, MigSlot, TaskPlacement
from solver.plan.plan import (
    Bind,
    Departs,
    Evict,
    Grow,
    Inadmissible,
    Moves,
    Nominate,
    Plan,
    Release,
    Repartition,
    Reserve,
    Runs,
    Shrink,
    Starts,
    Step,
    Unreserve,
    Waits,
    Withdraw,
    Yields,
)
from solver.policy.division import MigGeometry, SharingPolicy
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.policy.reservation import DeclaredReservation

NOW = "2026-11-20T12:00:00Z"


@dataclass(frozen=True)
class Scenario:
    """One file: what is given, and what must come of it."""

    path: Path
    why: str
    snapshot: Snapshot
    policy: Policy
    then: str


def read_scenario(path: Path) -> Scenario:
    """Read one scenario file. Unknown keys are errors."""
    written = yaml.load(path.read_text(), LOADER)
    given, policy, then, why = (written.pop(key) for key in ("given", "policy", "then", "why"))
    if written:
        raise ValueError(f"{path}: unknown keys {', '.join(written)}")
    lent = map(JobName, given.pop("lent", ()))
    return Scenario(path, why, *with_lent(_snapshot(given), _policy(policy), lent), then)


def told(snapshot: Snapshot, plan: Plan) -> str:
    """The plan in lines: one per job that starts, waits or is refused, in the order of the steps and then of the names.

    When a job could start is told in worlds with time limits: in all others it is unknown because there are none.
    """
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    limited = any(job.time_limit or job.spec.time_limit for job in snapshot.jobs)
    lines = [_done(step, types) for step in plan.steps]
    for verdict in plan.verdicts:
        if isinstance(verdict, Starts) and verdict.extent and (verdict.extent.missed or verdict.extent.parts):
            lines.append(f"apart   {verdict.job}  # {verdict.extent}")
        if isinstance(verdict, Yields | Departs):
            lines.append(f"yield   {verdict.job}  # {verdict}")
        elif isinstance(verdict, Runs) and verdict.leaves_at is not None:
            lines.append(f"run     {verdict.job}  # {verdict}")
        if isinstance(verdict, Moves):
            lines.append(f"move    {verdict.job}  # {verdict}")
        if isinstance(verdict, Waits | Inadmissible):
            word = "wait   " if isinstance(verdict, Waits) else "refuse "
            lines += [f"{word} {verdict.job}  # {_code(reason)}: {reason}" for reason in verdict.reasons]
        if isinstance(verdict, Waits) and verdict.estimate and limited:
            lines.append(f"when    {verdict.job}  # {verdict.estimate}")
    return "\n".join(lines) + "\n"


def _done(step: Step, types: dict[NodeName, GpuType]) -> str:
    match step:
        case Bind():
            used = sorted({types[task.node] for task in step.tasks if task.devices})
            idle = f", until it is idle for {step.idle_limit}" if step.idle_limit else ""
            return f"start   {step.job}  on {_places(step.tasks)}  # {', '.join(used) or 'no GPUs'}{idle}"
        case Repartition():
            made = "whole" if step.instances is None else " + ".join(map(_instance, step.instances)) or "no instances"
            gone = f", not {' + '.join(map(_instance, step.destroys))}" if step.destroys else ""
            return f"change  {step.device}  to {made}{gone}"
        case Release():
            return f"release {step.job}  attempt {step.attempt}"
        case Withdraw():
            return f"take    what {step.job} was promised"
        case Reserve() | Unreserve():
            return _reserved(step)
        case Evict():
            whom = f"  for {step.beneficiary}" if step.beneficiary else ""
            return f"evict   {step.job}{whom}  # {step.means}, in {step.grace}"
        case Shrink():
            whom = f"  for {step.beneficiary}" if step.beneficiary else ""
            return f"shrink  {step.job}  by {_places(step.tasks)}{whom}  # {step.means}, in {step.grace}"
        case Grow():
            return f"grow    {step.job}  by {_places(step.tasks)}"
        case Nominate():
            return f"promise {step.job}  {_places(step.tasks)}"


def _reserved(step: Reserve | Unreserve) -> str:
    if isinstance(step, Unreserve):
        return f"unhold  {step.job}"
    until = f" until {step.until}" if declared_name(step.job) is not None else ""
    return f"reserve {step.job}  {_places(step.tasks)} from {step.start}{until}"


def _places(tasks: Sequence[TaskPlacement]) -> str:
    return " ".join(_where(task) for task in tasks)


def _where(task: TaskPlacement) -> str:
    """The node and how many GPUs of it; a part of a GPU with the GPU's place in the node."""
    if task.mig is not None:
        return "+".join(task.devices)
    if task.share is None:
        return f"{task.node}:{len(task.devices)}"
    return f"{'+'.join(task.devices)}:{task.share}"


def _instance(instance: MigInstance) -> str:
    return f"{instance.profile}@{instance.start}"


def _code(reason: object) -> str:
    return str(type(reason).__struct_config__.tag)  # type: ignore[attr-defined]


def _snapshot(given: dict[str, Any]) -> Snapshot:
    nodes = [node for pool in given["pools"] for node in _pool(**pool)]
    closed: dict[str, dict[str, bool]] = {name: {"ready": False} for name in given.get("lost", [])}
    closed |= {name: {"cordoned": True} for name in given.get("cordoned", [])}
    nodes = [from_builtins({**_plain(node), **closed.get(node.name, {})}, Node) for node in nodes]
    held: dict[str, int] = {node.name: _first_whole(node) for node in nodes}
    jobs = [_job(place, held, **written) for place, written in enumerate(given.get("jobs", []))]
    in_flight = from_builtins(given.get("inFlight", {}), InFlight)
    node_sets = [from_builtins(known, NodeSet) for known in given.get("nodeSets", [])]
    return snapshot_of(Instant.parse(given.get("time", NOW)), nodes, jobs, in_flight, node_sets)


def _first_whole(node: Node) -> int:
    return next((index for index, gpu in enumerate(node.gpus) if gpu.instances is None), len(node.gpus))


def _plain(node: Node) -> dict[str, Any]:
    written = to_builtins(node)
    assert isinstance(written, dict)
    return written


def _pool(
    name: str,
    nodes: int,
    gpus: int,
    type: str = "",  # noqa: A002
    gpuMemory: object = 0,  # noqa: N803
    cpu: object = 96,
    memory: str = "1Ti",
    perIsland: int = 1,  # noqa: N803
    perRack: int = 0,  # noqa: N803
    perBlock: int = 0,  # noqa: N803
    links: dict[str, float] | None = None,
    instances: dict[int, list[str]] | None = None,
    data: Sequence[str] = (),
    labels: Sequence[str] = (),
    resources: dict[str, object] | None = None,
) -> list[Node]:
    """`instances`: of the GPUs in MIG mode, by index on every node, each as PROFILE@START."""

    def domain(level: str, number: int, size: int) -> str:
        return f"{level}{number // size + 1}" if size > 1 or (level == "rack" and size) else ""

    return [
        Node(
            NodeName(f"{name}{number + 1}"),
            name,
            Cpu.parse(cpu),
            Memory.parse(memory),
            GpuType(type),
            tuple(
                Gpu(
                    DeviceId(f"{name}{number + 1}/{index}"),
                    index,
                    memory=Memory.parse(gpuMemory),
                    instances=_placed(instances.get(index)) if instances else None,
                )
                for index in range(gpus)
            ),
            island=domain("island", number, perIsland),
            rack=domain("rack", number, perRack),
            block=domain("block", number, perBlock),
            links=Links(**links or {}),
            data=tuple(data),
            labels=tuple(labels),
            resources=read_amounts(resources or {}),
        )
        for number in range(nodes)
    ]


def _placed(written: list[str] | None) -> tuple[MigInstance, ...] | None:
    if written is None:
        return None
    return tuple(MigInstance(profile, int(start)) for profile, start in (one.split("@") for one in written))


def _job(
    place: int,
    held: dict[str, int],
    *,
    name: str,
    queue: str,
    tasks: int = 1,
    gpus: int = 0,
    nodes: list[str] | None = None,
    share: object = None,
    user: str = "",
    waited: object = "1h",
    phase: str = "running",
    attempt: int = 0,
    started: str = "",
    evictedAt: Sequence[str] = (),  # noqa: N803
    servedGpuMs: int = 0,  # noqa: N803
    boosted: bool = False,
    namespace: str = "",
    savedAt: str = "",  # noqa: N803
    limitedTo: str = "",  # noqa: N803
    **rest: Any,
) -> Job:
    """`tasks` x `gpus` in shorthand; `groups` in full. `nodes` names the node of each task of a job that holds devices.

    Such a job `started` at an instant, else when it was submitted, and runs under its own time limit.
    `waited`: since its submission, a second less for each job above it in the file.
    `limitedTo`: the set of the only nodes that its tasks may be on.
    """
    shape: dict[str, Any] = {"gpus": gpus}
    shape |= {
        key: rest.pop(key)
        for key in ("gpuTypes", "cpu", "memory", "gpuFraction", "gpuMemory", "mig", "devices", "resources")
        if key in rest
    }
    if {"gpuFraction", "gpuMemory", "mig"} & set(shape):
        del shape["gpus"]
    groups = rest.pop("groups", [{"name": "worker", "replicas": tasks, "shape": shape, "nodes": limitedTo}])
    spec = from_builtins({"queue": queue, "taskGroups": groups, **rest}, JobSpec)
    submitted = Instant(Instant.parse(NOW) - Duration.parse(waited) + place * 1000)
    if nodes is None:
        evicted_at = tuple(map(Instant.parse, evictedAt))
        return Job(
            JobName(name),
            submitted,
            spec,
            user,
            attempt=attempt,
            evicted_at=evicted_at,
            served_gpu_ms=servedGpuMs,
            boosted=boosted,
            namespace=namespace,
        )
    placement = []
    named_tasks = [("worker", index, gpus) for index in range(len(nodes))]
    if len(groups) > 1:  # `nodes` then names those of all tasks of the first group, then of the next
        of_groups = spec.task_groups
        named_tasks = [(known.name, index, known.shape.gpus) for known in of_groups for index in range(known.replicas)]
    for (group, index, gpus), node in zip(named_tasks, nodes, strict=False):
        if not node:  # an elastic gang has no task of this number
            continue
        if (
            "mig" in shape
        ):  # `nodes` then names the GPU of each task and the start of its instance, as GPU@START+GPU@START
            named = [one.split("@") for one in node.split("+")]
            slots = [
                MigSlot(DeviceId(gpu), MigInstance(shape["mig"], int(start)), MilliGpu.parse(share))
                for gpu, start in named
            ]
            placement.append(TaskPlacement("worker", index, NodeName(node.split("/")[0])).on_slots(slots))
            continue
        if share is not None:  # `nodes` then names the GPU of each task, or its GPUs as GPU+GPU
            on = NodeName(node.split("/")[0])
            shared = TaskPlacement("worker", index, on, tuple(map(DeviceId, node.split("+"))), MilliGpu.parse(share))
            placement.append(shared)
            continue
        first = held.get(node, 0)
        held[node] = first + gpus
        devices = tuple(DeviceId(f"{node}/{number}") for number in range(first, first + gpus))
        placement.append(TaskPlacement(group, index, NodeName(node), devices))
    began = Instant.parse(started) if started else submitted
    return Job(
        JobName(name),
        submitted,
        spec,
        user,
        phase,  # type: ignore[arg-type]
        attempt or 1,
        began,
        tuple(placement),
        spec.time_limit,
        tuple(map(Instant.parse, evictedAt)),
        saved_at=Instant.parse(savedAt) if savedAt else None,
        namespace=namespace,
    )


def _queue(written: dict[str, Any]) -> Queue:
    """Rows of `quota` that name a resource stand apart in the compiled policy."""
    rows = written.get("quota", [])
    apart = {
        "quota": [row for row in rows if "resource" not in row],
        "hostQuota": [row for row in rows if "resource" in row],
    }
    queue = from_builtins({**written, **apart}, Queue)
    hours = (msgspec.structs.replace(known, repeat=with_windows(known.repeat, known.start)) for known in queue.hours)
    return msgspec.structs.replace(queue, hours=tuple(hours))


def _reservation(written: dict[str, Any]) -> DeclaredReservation:
    """One that repeats has its windows, as where documents are read."""
    known = from_builtins(written, DeclaredReservation)
    if known.repeat is None:
        return known
    return msgspec.structs.replace(known, repeat=with_windows(known.repeat, known.start))


def _policy(written: dict[str, Any]) -> Policy:
    unknown = written.keys() - {"queues", "priorityClasses", "scheduling", "sharing", "mig", "reservations"}
    if unknown:
        raise ValueError(f"a scenario's policy has no {', '.join(sorted(unknown))}")
    return policy_of(
        tuple(map(_queue, written["queues"])),
        tuple(from_builtins(known, PriorityClass) for known in written.get("priorityClasses", [])),
        from_builtins(written.get("scheduling", {}), SchedulingPolicy),
        tuple(from_builtins(known, SharingPolicy) for known in written.get("sharing", [])),
        tuple(from_builtins(known, MigGeometry) for known in written.get("mig", [])),
        tuple(_reservation(known) for known in written.get("reservations", [])),
    )
