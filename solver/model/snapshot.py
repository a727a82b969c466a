"""One frozen, sorted view of the world at an instant: the only input of a round beside the policy.

Equal worlds give equal snapshots, whatever order an API or a hash seed delivered them in; of the same documents also equal digests.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from solver.model.cluster import Gpu, GpuType, Node, NodeName
from solver.model.document import API_VERSION, Document, digest
from solver.model.inflight import InFlight, Intent, Repartitioning, Usage
from solver.model.node_sets import NodeSet, refuse_repeats, refuse_unknown_sets, settled_sets
from solver.model.pledges import NOTHING, beside, pledges_in
from solver.model.quantities import Instant
from solver.model.workload import Job, JobName, JobSpec, TaskPlacement

Inventory = Literal["reported"] | UnsetType


class Snapshot(Document, frozen=True, omit_defaults=False, dict=True, gc=True):
    """Nodes sorted by name, live jobs sorted by name, and what is in flight, at `time`. Build it with `snapshot_of`.

    `node_sets`: those that task groups name, sorted by name. `inventory` reported: the nodes are those that the cluster has,
    whatever Git declares of them; unset: those that Git declares. It is for plans of what a change would do, and decides nothing.
    """

    time: Instant
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    in_flight: InFlight = InFlight()
    node_sets: tuple[NodeSet, ...] = ()
    inventory: Inventory = UNSET
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Snapshot"] = "Snapshot"

    @cached_property
    def digest(self) -> str:
        """The snapshot's name: what a plan says it was made from. Worked out once: the solver and the checker both ask for it."""
        return digest(self)

    @property
    def gpu_types(self) -> dict[NodeName, GpuType]:
        """The GPU type of every node."""
        return {node.name: node.gpu_type for node in self.nodes}

    @property
    def pending(self) -> tuple[Job, ...]:
        """Jobs that hold nothing and want to start."""
        return tuple(job for job in self.jobs if job.phase == "pending")


def charged(snapshot: Snapshot) -> Iterator[tuple[Job, tuple[TaskPlacement, ...]]]:
    """What each job is charged for: what it holds; once it is being evicted, or waits, for what it was promised."""
    leaving = {(intent.job, intent.attempt) for intent in snapshot.in_flight.evictions}
    promised = {intent.job: intent.tasks for intent in snapshot.in_flight.nominations}
    for job in snapshot.jobs:
        goes_on = job.phase != "pending" and (job.name, job.attempt) not in leaving
        yield job, job.placement if goes_on else promised.get(job.name, ())


class HeldTasks(NamedTuple):
    """Tasks that hold something, and what their job asks for; None: that job is gone."""

    spec: JobSpec | None
    tasks: tuple[TaskPlacement, ...]


def held_in(snapshot: Snapshot, leaving: Collection[JobName] = ()) -> dict[Hashable, HeldTasks]:
    """All that holds something, is to, or was promised something. A job that moves holds where it is and where it goes on.

    What a job has stands under its name, what it is to have beside that under a key for each task. `leaving`: jobs that do not hold
    any more what they have; what they were promised stays theirs. What is promised on GPUs that have to be partitioned anew for it
    is not there to be held (solver/model/pledges).
    """
    intents = snapshot.in_flight.intents
    asked = {(i.job, i.kind == "nominate", task.group, task.index): task for i in intents for task in i.tasks}
    named, specs = {job for job, _, _, _ in asked}, dict[JobName, JobSpec]()
    held = dict[Hashable, HeldTasks]()
    for job in snapshot.jobs:
        name, tasks = job.name, job.placement
        if name in named:
            specs[name] = job.spec
            tasks = tuple(asked.pop((name, False, task.group, task.index), task) for task in tasks)
        if tasks and name not in leaving:
            held[name] = HeldTasks(job.spec, tasks)
    pledges = pledges_in(snapshot.nodes, snapshot.in_flight)
    for key, task in asked.items():
        name, promised, _, _ = key
        if promised:
            held[key] = HeldTasks(specs.get(name), (beside(task, pledges.get(name, NOTHING)),))
        elif name not in leaving:
            held[key] = HeldTasks(specs.get(name), (task,))
    return held


def foreseen(snapshot: Snapshot) -> Snapshot:
    """The world as it is once the GPUs that are being partitioned are: those that are overdue count as not healthy."""
    asked = {known.device: known for known in snapshot.in_flight.repartitions}
    if not asked:
        return snapshot
    nodes = (
        node
        if asked.keys().isdisjoint([gpu.id for gpu in node.gpus])
        else msgspec.structs.replace(
            node, gpus=tuple(_partitioned(gpu, asked.get(gpu.id), snapshot.time) for gpu in node.gpus)
        )
        for node in snapshot.nodes
    )
    return msgspec.structs.replace(snapshot, nodes=tuple(nodes))


def _partitioned(gpu: Gpu, asked: Repartitioning | None, now: Instant) -> Gpu:
    if asked is None:
        return gpu
    return msgspec.structs.replace(gpu, instances=asked.instances, healthy=gpu.healthy and now < asked.deadline)


def snapshot_of(
    time: Instant,
    nodes: Iterable[Node],
    jobs: Iterable[Job],
    in_flight: InFlight = InFlight(),
    node_sets: Iterable[NodeSet] = (),
    inventory: Inventory = UNSET,
) -> Snapshot:
    """Sort a world into a snapshot; raises ValueError where a name occurs twice, or a set of nodes is not what it is taken for."""
    ordered_nodes = tuple(sorted(nodes, key=lambda node: node.name))
    ordered_jobs = tuple(sorted(jobs, key=lambda job: job.name))
    refuse_repeats("node", [node.name for node in ordered_nodes])
    refuse_repeats("job", [job.name for job in ordered_jobs])
    refuse_repeats("GPU", sorted(gpu.id for node in ordered_nodes for gpu in node.gpus))
    refuse_repeats("change of GPU", sorted(asked.device for asked in in_flight.repartitions))
    sets = settled_sets(node_sets, ordered_nodes)
    refuse_unknown_sets(ordered_jobs, sets)
    return Snapshot(time, ordered_nodes, ordered_jobs, _sorted_in_flight(in_flight), sets, inventory)


def with_jobs(snapshot: Snapshot, jobs: Iterable[Job], in_flight: InFlight) -> Snapshot:
    """The same cluster with other jobs, and something else in flight; raises ValueError where a job's name occurs twice."""
    ordered = tuple(sorted(jobs, key=lambda job: job.name))
    refuse_repeats("job", [job.name for job in ordered])
    return msgspec.structs.replace(snapshot, jobs=ordered, in_flight=_sorted_in_flight(in_flight))


def with_more_intents(snapshot: Snapshot, intents: Iterable[Intent]) -> Snapshot:
    """The same world, of which more was asked."""
    every = sorted((*snapshot.in_flight.intents, *intents), key=lambda intent: intent.id)
    in_flight = msgspec.structs.replace(snapshot.in_flight, intents=tuple(every))
    return msgspec.structs.replace(snapshot, in_flight=in_flight)


def normalised(snapshot: Snapshot) -> Snapshot:
    """The same world in sorted order: what came from a file may be in any."""
    told = snapshot.time, snapshot.nodes, snapshot.jobs, snapshot.in_flight, snapshot.node_sets, snapshot.inventory
    return snapshot_of(*told)


def _of_whom(used: Usage) -> tuple[str, str, bool, str, float]:
    return used.queue, used.gpu_type, used.user is not None, used.user or "", used.gpu_hours


def _sorted_in_flight(in_flight: InFlight) -> InFlight:
    return msgspec.structs.replace(
        in_flight,
        intents=tuple(sorted(in_flight.intents, key=lambda intent: intent.id)),
        reservations=tuple(sorted(in_flight.reservations, key=lambda held: held.holder)),
        repartitions=tuple(sorted(in_flight.repartitions, key=lambda asked: asked.device)),
        usage=tuple(sorted(in_flight.usage, key=_of_whom)),
        **{
            field: tuple(sorted(getattr(in_flight, field), key=msgspec.structs.astuple))
            for field in ("aging", "durations", "history", "counters", "convergence")
        },
    )
