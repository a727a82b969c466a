"""The map of a cluster as columns: small enough to send whole, a number for each GPU, what is alike one after another as a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, get_args

from reconciler.model.health_record import NodeHealth
from reconciler.web.gpu_rows import gpu_parts
from reconciler.web.natural_order import natural
from reconciler.web.node_index import TaskOnNode
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.document import Document
from solver.model.inflight import Reservation, StopPurpose
from solver.model.mig import mig_model
from solver.model.mig_layout import model_of_type
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, JobSpec, TaskPlacement
from solver.policy.policy import Policy

FREE: Final = -1
"""In `held`, and as the job of a part: no job."""
IN_PARTS: Final = -2
"""In `held`: it is divided: `parts` has the MIG instances, and what jobs have of it."""

WELL, CORDONED, NOT_WELL, SUSPECT, NOT_READY, CHANGING = range(6)
"""In `state`."""
RESERVED, PROMISED = 1, 2
"""In `kept`."""

PART: Final = 6
"""So many numbers of `parts` are one."""

PURPOSES: Final[tuple[StopPurpose | str, ...]] = (*get_args(StopPurpose), "shrink")
"""Why a task leaves; in `leaves` they count from 1 on, 0: it stays."""

Runs = tuple[int, ...]
"""Value, how often, value, how often, and so on."""

Suspects = Collection[tuple[NodeName, str]]
"""What is suspect: a node, and "" for itself or one of its GPUs."""


class MapJobs(Document, frozen=True, omit_defaults=False):
    """Columns of the jobs that hold something, or for which something is kept; of those that wait, `waits` has the numbers.

    `until`: when their time limit is over; of one that waits, `since` and `until` are of its reservation. "": there is none.
    `place`: what they ask of where they run. The name of a Reservation document stands here as `declared_holder` has it.
    """

    name: tuple[str, ...]
    queue: tuple[int, ...]
    priority_class: tuple[int, ...]
    user: tuple[str, ...]
    since: tuple[str, ...]
    until: tuple[str, ...]
    place: tuple[str, ...]
    waits: tuple[int, ...]


class ClusterMap(Document, frozen=True, omit_defaults=False):
    """Nodes lie in the order of `nodes`, their GPUs one after the other in that order; FREE in `node_island`: it is in none.

    `kept`: 0 for no job, RESERVED or PROMISED, and `keeper` for which job. `leaves`: why what holds it leaves, by PURPOSES.
    `parts`: GPU, start and size in thousandths of it, job, MIG profile (FREE: a share), why it leaves; again and again.
    """

    time: Instant
    blocks: tuple[str, ...]
    racks: tuple[str, ...]
    rack_block: tuple[int, ...]
    islands: tuple[str, ...]
    types: tuple[str, ...]
    profiles: tuple[str, ...]
    purposes: tuple[str, ...]
    queues: tuple[str, ...]
    parents: tuple[int, ...]
    priority_classes: tuple[str, ...]
    nodes: tuple[str, ...]
    node_rack: Runs
    node_island: Runs
    node_type: Runs
    node_gpus: Runs
    state: Runs
    kept: Runs
    keeper: Runs
    leaves: Runs
    held: Runs
    parts: tuple[int, ...]
    jobs: MapJobs


def map_of(snapshot: Snapshot, policy: Policy, suspects: Suspects = frozenset()) -> ClusterMap:
    """The world as a pass saw it."""
    nodes = _in_order(snapshot.nodes)
    at = {gpu.id: number for number, gpu in enumerate(gpu for node in nodes for gpu in node.gpus)}
    racks = list(dict.fromkeys((node.block, node.rack or node.name) for node in nodes))
    blocks = list(dict.fromkeys(block for block, _ in racks))
    islands = list(dict.fromkeys((node.pool, node.island) for node in nodes if node.island))
    types = sorted({node.gpu_type for node in nodes})
    queues = [queue.name for queue in policy.queues]
    known = _JobLines(snapshot)
    # Those of the policy are here before a job has them: the first job of a class changes no more of the map than others.
    classes = tuple(sorted({each.name for each in policy.priority_classes} | {"", *known.classes()}))
    number_of_rack, number_of_queue, number_of_island = _numbers(racks), _numbers(queues), _numbers(islands)
    profiles = _profiles(types)
    kept, keeper = _kept(snapshot, at, known.number)
    held, leaves, parts = _Holders(snapshot, known.number, _numbers(profiles)).columns(nodes, at)
    return ClusterMap(
        time=snapshot.time,
        blocks=tuple(block or "no block" for block in blocks),
        racks=tuple(rack for _, rack in racks),
        rack_block=tuple(map(_numbers(blocks).__getitem__, (block for block, _ in racks))),
        islands=tuple(island for _, island in islands),
        types=tuple(types),
        profiles=profiles,
        purposes=PURPOSES,
        queues=tuple(queues),
        parents=tuple(-1 if queue.parent is None else number_of_queue[queue.parent] for queue in policy.queues),
        priority_classes=classes,
        nodes=tuple(node.name for node in nodes),
        node_rack=runs(number_of_rack[node.block, node.rack or node.name] for node in nodes),
        node_island=runs(number_of_island.get((node.pool, node.island), FREE) for node in nodes),
        node_type=runs(map(_numbers(types).__getitem__, (node.gpu_type for node in nodes))),
        node_gpus=runs(len(node.gpus) for node in nodes),
        state=runs(_states(snapshot, nodes, suspects)),
        kept=runs(kept),
        keeper=runs(keeper),
        leaves=runs(leaves),
        held=runs(held),
        parts=tuple(parts),
        jobs=known.columns(number_of_queue, _numbers(classes)),
    )


def suspects_of(records: Iterable[NodeHealth]) -> Suspects:
    """What health checks hold for suspect. It still takes work."""
    return {(record.node, part.part) for record in records for part in record.parts if part.state == "suspect"}


def runs(values: Iterable[int]) -> Runs:
    """What is alike one after another, together."""
    return tuple(number for value, alike in groupby(values) for number in (value, len(list(alike))))


def _in_order(nodes: Iterable[Node]) -> list[Node]:
    """Those with GPUs by type, block, rack, island and name, each in natural order."""
    domains = defaultdict[tuple[str, ...], list[Node]](list)
    for node in nodes:
        if node.gpus:
            domains[node.gpu_type, node.block, node.rack, node.island].append(node)
    places = sorted(domains, key=lambda place: (place[0], *map(natural, place[1:])))
    return [node for place in places for node in sorted(domains[place], key=lambda node: natural(node.name))]


def _numbers(names: Iterable[Any]) -> dict[Any, int]:
    return {name: number for number, name in enumerate(names)}


def _profiles(types: Iterable[GpuType]) -> tuple[str, ...]:
    """The MIG profiles that GPUs of these types may have."""
    models = filter(None, map(model_of_type, types))
    return tuple(sorted({profile.name for model in models for profile in mig_model(model).profiles}))


def _states(snapshot: Snapshot, nodes: Iterable[Node], suspects: Suspects) -> Iterator[int]:
    changing = {asked.device for asked in snapshot.in_flight.repartitions}
    for node in nodes:
        of_node = NOT_READY if not node.ready else CORDONED if node.cordoned else WELL
        if of_node == WELL and (node.name, "") in suspects:
            of_node = SUSPECT
        for gpu in node.gpus:
            if not gpu.healthy:
                yield NOT_WELL
            elif of_node in (NOT_READY, CORDONED):
                yield of_node
            elif gpu.id in changing:
                yield CHANGING
            else:
                yield SUSPECT if (node.name, gpu.id) in suspects else of_node


class _Holder(NamedTuple):
    """What has a part of a GPU, and why it leaves."""

    of: TaskOnNode
    leaves: int


class _Holders:
    """What holds each GPU or parts of it, and what leaves it."""

    def __init__(self, snapshot: Snapshot, numbers: Mapping[JobName, int], profiles: Mapping[str, int]) -> None:
        self._numbers, self._profiles = numbers, profiles
        self._jobs = [job for job in snapshot.jobs if job.placement]
        intents = snapshot.in_flight.intents
        self._stops = {each.job: PURPOSES.index(each.purpose) + 1 for each in intents if each.kind == "stop"}
        self._shrinks = {
            (each.job, task.group, task.index) for each in intents if each.kind == "shrink" for task in each.tasks
        }

    def columns(self, nodes: Iterable[Node], at: Mapping[DeviceId, int]) -> tuple[list[int], list[int], list[int]]:
        """`held` and `leaves` of each GPU, and all parts, by GPU and where they begin."""
        held, leaves, in_parts = [FREE] * len(at), [0] * len(at), defaultdict[DeviceId, list[_Holder]](list)
        for job in self._jobs:
            number = self._numbers[job.name]
            for task in job.placement:
                why = self._why_it_leaves(job, task)
                for device in task.on_gpus:
                    if device not in at:
                        continue  # Its node is gone.
                    if task.mig is None and task.share is None:
                        held[at[device]], leaves[at[device]] = number, why
                    else:
                        in_parts[device].append(_Holder(TaskOnNode(job, task), why))
        parts = list[int]()
        for node in nodes:
            for gpu in node.gpus:
                if gpu.id in in_parts or (gpu.instances and held[at[gpu.id]] == FREE):
                    held[at[gpu.id]] = IN_PARTS
                    parts += self._parts(node, gpu, at[gpu.id], in_parts.get(gpu.id, ()))
        return held, leaves, parts

    def _why_it_leaves(self, job: Job, task: TaskPlacement) -> int:
        if job.name in self._stops:
            return self._stops[job.name]
        return len(PURPOSES) if self._shrinks and (job.name, task.group, task.index) in self._shrinks else 0

    def _parts(self, node: Node, gpu: Gpu, number: int, holders: Sequence[_Holder]) -> Iterator[int]:
        whys = {id(each.of): each.leaves for each in holders}
        for part in gpu_parts(node, gpu, [each.of for each in holders]):
            if part.of is None and not part.profile:
                continue  # What is left over: nothing is there to tell of.
            job = FREE if part.of is None else self._numbers[part.of.job.name]
            profile = self._profiles.get(part.profile, FREE)
            yield from (number, part.start, part.size, job, profile, 0 if part.of is None else whys[id(part.of)])


def _kept(
    snapshot: Snapshot, at: Mapping[DeviceId, int], numbers: Mapping[JobName, int]
) -> tuple[list[int], list[int]]:
    """For what each GPU is kept; a promise counts more than a reservation, of these the first."""
    kept, keeper = [0] * len(at), [FREE] * len(at)
    latest_first = sorted(snapshot.in_flight.reservations, key=lambda each: each.start, reverse=True)
    keeping = [(RESERVED, each.holder, each.tasks) for each in latest_first]
    keeping += [(PROMISED, each.job, each.tasks) for each in snapshot.in_flight.nominations]
    for kind, holder, tasks in keeping:
        for task in tasks:
            for device in task.on_gpus:
                if device in at:
                    kept[at[device]], keeper[at[device]] = kind, numbers[holder]
    return kept, keeper


class _JobLines:
    """The jobs of the map, numbered: those that hold something, then those for which something is kept."""

    def __init__(self, snapshot: Snapshot) -> None:
        in_flight = snapshot.in_flight
        self._reserved = dict[JobName, Reservation]()
        for each in sorted(in_flight.reservations, key=lambda each: each.start):
            self._reserved.setdefault(each.holder, each)
        keepers = {*self._reserved, *(promise.job for promise in in_flight.nominations)}
        holding = [job for job in snapshot.jobs if job.placement]
        waiting = [job for job in snapshot.jobs if not job.placement and job.name in keepers]
        self._jobs = {job.name: job for job in (*holding, *waiting)}
        # Reservation documents; of a job that was promised something and is gone, its name is all that is known.
        self._names = (*self._jobs, *sorted(keepers - self._jobs.keys()))
        self._waiting = range(len(holding), len(self._names))
        self.number = _numbers(self._names)

    def classes(self) -> Iterator[str]:
        """Of every job here."""
        return (job.spec.priority_class for job in self._jobs.values())

    def columns(self, queues: Mapping[str, int], classes: Mapping[str, int]) -> MapJobs:
        """As they are sent."""
        jobs = [self._jobs.get(name) for name in self._names]
        windows = [self._window(name) for name in self._names]
        return MapJobs(
            name=self._names,
            # Under a policy without it, a queue may have jobs that run on.
            queue=tuple(FREE if job is None else queues.get(job.spec.queue, FREE) for job in jobs),
            priority_class=tuple(classes["" if job is None else job.spec.priority_class] for job in jobs),
            user=tuple("" if job is None else job.user for job in jobs),
            since=tuple("" if since is None else str(since) for since, _ in windows),
            until=tuple("" if until is None else str(until) for _, until in windows),
            place=tuple("" if job is None else _place_words(job.spec) for job in jobs),
            waits=tuple(self._waiting),
        )

    def _window(self, name: JobName) -> tuple[Instant | None, Instant | None]:
        """Since when and until when it runs, or has something reserved."""
        job, reserved = self._jobs.get(name), self._reserved.get(name)
        if job is None or not job.placement:
            return (reserved.start, reserved.until) if reserved else (None, None)
        since, limit = job.started_at, job.time_limit
        return since, None if since is None or limit is None else since.after(limit)


def _place_words(spec: JobSpec) -> str:
    """What a job asks of where it runs, in words; "": nothing."""
    types = list(dict.fromkeys(gpu_type for group in spec.task_groups for gpu_type in group.shape.gpu_types))
    labels = list(dict.fromkeys(label for group in spec.task_groups for label in group.shape.node_labels))
    asked = (group.shape.min_gpu_memory for group in spec.task_groups)
    least = dict.fromkeys(str(memory) for memory in asked if memory is not None)
    topology = spec.effective_topology
    return "; ".join(
        (
            *([f"on {' or '.join(types)}"] if types else ()),
            *([f"on GPUs of at least {' and '.join(least)}"] if least else ()),
            *([f"on nodes with {', '.join(labels)}"] if labels else ()),
            *([f"all in one {topology.required}"] if topology.required else ()),
            *([f"in one {' or '.join(topology.wishes)} if it can be"] if topology.wishes else ()),
        )
    )
