"""Running elastic gangs that are not at their full size, and the tasks by which they could grow inside their guarantees.

Such a task is written as a pending job of its own, named as a part of its gang (solver/model/parts), so that whatever serves jobs
serves it: on what is free, or once others have given back what they borrowed (DESIGN section 5, amendment 7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress, count, islice

import msgspec

from solver.backfill.eligibility import ends_in, held_back
from solver.backfill.reservation_documents import document_reservations, kept_from
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import sharing_of
from solver.model.arrays import Mask
from solver.model.cluster import GpuType, Level
from solver.model.kept_columns import KeptValues
from solver.model.parts import missing_part, owner_of
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement, Unit
from solver.placement.placement import PlacedGang, missing_units
from solver.placement.starts import JobStart
from solver.placement.views import place_in_view
from solver.policy.policy import Policy
from solver.policy.precedence import ordering_of
from solver.policy.reclaim import preempts_from
from solver.policy.tree import QueueTree
from solver.queueing.demand import StartCandidate, in_order
from solver.queueing.entry import lets_in
from solver.queueing.loans import loans_in
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.quota.options import Option, option_of, option_of_unit, options_of


def growing_gangs(
    snapshot: Snapshot,
    policy: Policy,
    tree: QueueTree,
    room: FreeCapacity,
    in_line: Collection[QueueName],
    kept: RoundCache | None = None,
) -> Iterator[tuple[Job, Option]]:
    """Running gangs that are not at their full size, and of which nothing is in flight; each as it is served now.

    `in_line`: strict queues of which jobs wait: growth would pass them. `kept`: what was known in the rounds before.
    """
    busy = {intent.job for intent in snapshot.in_flight.intents}
    sharing = sharing_of(policy, tree, snapshot.nodes)
    types, type_of = {node.gpu_type for node in snapshot.nodes if node.gpus}, snapshot.gpu_types
    for job in _incomplete(snapshot, kept):
        if job.name in busy or job.name != owner_of(job.name):
            continue
        known, queue = policy.priority_class(job), job.spec.queue
        if known is None or queue in in_line or not _lets_in(tree, job, known.name):
            continue
        if any(task.node not in room.index for task in job.placement):
            continue
        option = option_of(job, options_of(job.spec, types, sharing, known.slo_class), type_of)
        if option is not None:
            yield job, option


def queues_in_line(candidates: Sequence[StartCandidate], started: Collection[JobName]) -> set[QueueName]:
    """Strict queues of which jobs wait."""
    return {c.job.spec.queue for c in candidates if c.strict and c.job.name not in started}


def _lets_in(tree: QueueTree, job: Job, priority_class: str) -> bool:
    """Whether its queue would let such a job start now. Whose jobs take turns does not: the next turn would take it back."""
    queue = job.spec.queue
    return lets_in(tree, queue, priority_class, job.kubernetes_namespace) and ordering_of(tree, queue).turns is None


def _incomplete(snapshot: Snapshot, kept: RoundCache | None) -> list[Job]:
    """Running gangs that are not at their full size."""
    known: KeptValues[Job, bool] = KeptValues() if kept is None else kept.lasting("incomplete gangs", KeptValues)
    may_be_larger = known.of(snapshot.jobs, lambda job: job.phase == "running" and _may_be_larger(job))
    return list(compress(snapshot.jobs, may_be_larger))


def _may_be_larger(job: Job) -> bool:
    """Some tasks are missing, and where new ones go is settled by the rest: bundles have to be whole for that, or steps of them."""
    groups = job.spec.task_groups
    if len(job.placement) >= sum([group.replicas for group in groups]):
        return False
    counts = Counter([task.group for task in job.placement])
    if all(counts[group.name] >= group.replicas for group in groups):
        return False
    gaps = any(task.index >= counts[task.group] for task in job.placement)
    bundled = any(
        group.replica_step % size or group.least % size
        for group in groups
        for size, _ in job.spec.kept_in_bundles(group)
        if size < group.replicas
    )
    instances = any(group.shape.mig is not None for group in groups)
    return not (gaps and bundled) and not instances


def held_back_growing(
    gangs: Sequence[tuple[Job, tuple[Option, ...]]],
    snapshot: Snapshot,
    policy: Policy,
    candidates: Sequence[StartCandidate],
    shares: Shares,
    room: FreeCapacity,
) -> tuple[StartCandidate, ...]:
    """Gangs that may grow, in their order. They come after all that wait, and reservations hold them back as they do those."""
    ordered, declared = in_order(gangs, policy, shares, snapshot.time), document_reservations(snapshot)
    growing = kept_from(ordered, declared, policy, shares.tree, snapshot.time)
    reserved = [held for held in snapshot.in_flight.reservations if held.holder in room.reserved]
    if not reserved:
        return growing
    everybody, ends = (*candidates, *growing), ends_in(snapshot, loans_in(snapshot, policy, shares))
    held = held_back(everybody, reserved, ends, policy, shares, room, snapshot.time)
    return held[len(candidates) :]


def missing_tasks(
    snapshot: Snapshot,
    policy: Policy,
    candidates: Sequence[StartCandidate],
    started: Collection[JobName],
    shares: Shares,
    room: FreeCapacity,
    kept: RoundCache | None = None,
) -> list[StartCandidate]:
    """The tasks by which running gangs could grow inside their guarantees, each as a job that waits, in the order of the gangs.

    What is to be near the others, or apart from them, is left out: that grows on what is free alone. `room` knows the domains in
    which others have to stay.
    """
    in_line, headroom = queues_in_line(candidates, started), QuotaHeadroom(shares)
    able = [
        (job, (option,))
        for job, option in growing_gangs(snapshot, policy, shares.tree, room, in_line, kept)
        if not job.spec.topology.spread and _has_guarantee_left(headroom, job, option)
    ]
    if not able:
        return []
    gangs = held_back_growing(able, snapshot, policy, candidates, shares, room)
    return [task for number, gang in enumerate(gangs) for task in _tasks_of(gang, number, headroom, room)]


def awaited_types(
    candidates: Iterable[StartCandidate], policy: Policy, shares: Shares, now: Instant
) -> frozenset[GpuType]:
    """Types of GPUs for which one of these, inside its guarantee, has to wait before others leave for it.

    None leaves for growth there meanwhile: that job would have what is left.
    """
    inside, found = QuotaHeadroom(shares).entitled, set[GpuType]()
    for candidate in candidates:
        opens = preempts_from(policy, shares.tree, candidate.job)
        if opens is not None and opens > now:
            is_firm, queue = policy.is_firm(candidate.job), candidate.job.spec.queue
            for option in candidate.options:
                found.update(option.charge if is_firm or inside.holds(queue, option.charge) else ())
    return frozenset(found)


def kept_to_domains(snapshot: Snapshot, kept: RoundCache | None = None) -> list[tuple[Job, Level]]:
    """Running gangs that are not at their full size and have to stay in one domain, each with its level."""
    levels = ((job, job.spec.effective_topology.required) for job in _incomplete(snapshot, kept))
    return [(job, level) for job, level in levels if level is not None]


def with_domains(gangs: Iterable[tuple[Job, Level]], room: FreeCapacity) -> FreeCapacity:
    """The room, which knows the domains in which these gangs have to stay as they grow, as sets of nodes."""
    sets = dict(room.sets)
    for job, level in gangs:
        node = room.index.get(job.placement[0].node)
        if node is None:
            continue
        domains = room.topology[level].of_node
        for group in job.spec.task_groups:
            name = _nodes_of(job, group, room)
            if name not in sets:
                here: Mask = domains == domains[node]
                sets[name] = here & sets[group.nodes] if group.nodes else here
    return room if len(sets) == len(room.sets) else room.with_sets(sets)


def _nodes_of(job: Job, group: TaskGroup, room: FreeCapacity) -> str:
    """The set of the only nodes on which more of a running gang's tasks may be."""
    level = job.spec.effective_topology.required
    if level is None:
        return group.nodes
    domain = f"{level} {room.nodes[room.index[job.placement[0].node]].domain(level)}"
    return f"{group.nodes}, {domain}" if group.nodes else domain


def _has_guarantee_left(headroom: QuotaHeadroom, job: Job, option: Option) -> bool:
    return any(
        all(headroom.entitled.left(line) for line in headroom.shares.tree.lines(job.spec.queue, kind))
        for kind in option.charge
    )


def _tasks_of(
    gang: StartCandidate, number: int, headroom: QuotaHeadroom, room: FreeCapacity
) -> Iterator[StartCandidate]:
    spec, option = gang.job.spec, gang.options[0]
    for unit in spec.units:
        groups = [spec.task_groups[place] for place in unit.groups]
        if any(group.shape.uses_gpus for group in groups) and all(_joins_anywhere(spec, group) for group in groups):
            nodes = [_nodes_of(gang.job, group, room) for group in groups]
            alone = option_of_unit(option, unit, nodes)
            likeness = -1 - number * len(spec.task_groups) - unit.groups[0]
            lacking = _lacking(gang.job, unit)
            most = _inside_at_most(headroom, spec.queue, alone, lacking)
            yield from (_as_candidate(gang, job, alone, likeness) for job in _missing(gang.job, unit, nodes, most))


def _lacking(job: Job, unit: Unit) -> int:
    """How many whole units a gang lacks."""
    if unit.numbered:
        return len(missing_units(job.spec, unit, job.placement))
    ((place,), (size,)) = unit.groups, unit.sizes
    group = job.spec.task_groups[place]
    return (group.replicas - sum(task.group == group.name for task in job.placement)) // size


def _joins_anywhere(spec: JobSpec, group: TaskGroup) -> bool:
    """Whether it makes no difference to more units of a group where those are that it has."""
    known = spec.together_of(group)
    is_torn = any(group.replica_step % size or group.least % size for size, _ in spec.kept_in_bundles(group))
    return not (is_torn or group.topology.spread or (known and known.units == 1))


def fit_beside(tasks: Iterable[StartCandidate], starts: Iterable[JobStart], room: FreeCapacity) -> bool:
    """Whether all of these find a place on what is left beside these starts."""
    left = room.copy()
    for start in starts:
        left.occupy(start.held)
    return all(place_in_view(left, task, task.options, None) for task in tasks)


def in_gangs(starts: Iterable[JobStart], snapshot: Snapshot) -> list[JobStart]:
    """The same tasks with the numbers that they have in their gangs: the least that are missing."""
    gangs, found = {job.name: job for job in snapshot.jobs}, list[JobStart]()
    free = dict[tuple[JobName, str], Iterator[int]]()
    for start in starts:
        gang = gangs[owner_of(start.candidate.job.name)]
        tasks = list[TaskPlacement]()
        for group in start.candidate.job.spec.task_groups:
            numbers = free.setdefault((gang.name, group.name), _missing_numbers(gang, group.name))
            mine = sorted(
                (task for task in start.placed.tasks if task.group == group.name), key=lambda task: task.index
            )
            tasks += (msgspec.structs.replace(task, index=next(numbers)) for task in mine)
        found.append(replace(start, placed=replace(start.placed, tasks=tuple(tasks))))
    return found


def _missing_numbers(gang: Job, name: str) -> Iterator[int]:
    """The numbers of tasks that a group lacks, from the least; of one that is in units with others those of whole units."""
    spec, place = gang.spec, [group.name for group in gang.spec.task_groups].index(name)
    unit = next(unit for unit in spec.units if place in unit.groups)
    if unit.numbered:
        size = unit.sizes[unit.groups.index(place)]
        return (number * size + more for number in missing_units(spec, unit, gang.placement) for more in range(size))
    there = {task.index for task in gang.placement if task.group == name}
    return (number for number in count() if number not in there)


def _inside_at_most(headroom: QuotaHeadroom, queue: QueueName, option: Option, most: int) -> int:
    """So many tasks lie inside the guarantees as a whole, each beside the ones before."""

    def inside(tasks: int) -> bool:
        return headroom.entitled.holds(queue, {kind: milli * tasks for kind, milli in option.charge.items()})

    return next((tasks - 1 for tasks in range(1, most + 1) if not inside(tasks)), most)


def _missing(job: Job, unit: Unit, nodes: Sequence[str], most: int) -> Iterator[Job]:
    """So many units that a gang lacks, each as a job; their groups on nodes of these sets."""
    groups, size = list(job.spec.task_groups), unit.sizes[0]
    for place, name in zip(unit.groups, nodes, strict=True):
        groups[place] = msgspec.structs.replace(groups[place], nodes=name)
    kept = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, task_groups=tuple(groups)))
    numbers = islice(_missing_numbers(job, groups[unit.groups[0]].name), 0, most * size, size)
    return (missing_part(kept, unit, number) for number in numbers)


def _as_candidate(gang: StartCandidate, job: Job, option: Option, likeness: int) -> StartCandidate:
    layer = gang.sub_layer.of_growth
    return replace(gang, job=job, sub_layer=layer, options=(option,), likeness=likeness, inside_only=True, strict=False)


def as_start(gang: StartCandidate, more: Sequence[JobStart] = ()) -> JobStart:
    """A running gang, as one that has just started: its tasks are the first, and the rest is missing.

    `more`: tasks that are settled to join gangs, each as a job of its own.
    """
    joining = (start for start in more if owner_of(start.candidate.job.name) == gang.job.name)
    tasks = (*gang.job.placement, *(task for start in joining for task in start.placed.tasks))
    counts = Counter(task.group for task in tasks)
    sizes = tuple(counts[group.name] for group in gang.job.spec.task_groups)
    return JobStart(gang, gang.options[0], PlacedGang(tasks, strain=0.0), sizes)
