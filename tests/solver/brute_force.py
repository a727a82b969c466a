"""The best answer to a tiny round by trying everything: every subset of jobs, every option, every placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.mig_gpus import MigRule
from solver.capacity.reserved_view import NOBODY, Against, seen
from solver.model.cluster import Level, Node
from solver.model.mig import Geometry, PlacedInstance, is_valid, mig_model
from solver.model.mig_layout import realisations
from solver.model.shape import MigShape, Shape, SharedShape
from solver.model.workload import Bundle, JobSpec, Spread, TaskGroup
from solver.placement.placement import PlacedGang as GangPlaced
from solver.placement.starts import JobStart, layer_values
from solver.policy.tree import QuotaLine
from solver.queueing.demand import StartCandidate, SubLayer
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.quota.options import Option
from solver.quota.users import UserRoom

Divided = tuple[tuple[str, int], ...]
"""For each divided GPU of a node its trust domain and the milli-GPU left of it, sorted."""

States = tuple[tuple[Geometry | None, Geometry], ...]
"""For each GPU of a node in MIG mode what it was partitioned into (None: it was whole), and what of it is in use."""

Free = tuple[tuple[int, int, Divided, States, int], ...]
"""Whole free GPUs, CPU, divided GPUs and GPUs in MIG mode per node, and how many of those were made whole."""


Seen = tuple[tuple[Against, tuple[tuple[int, int], ...]], ...]
"""For each set of reservations that holds somebody back, the whole GPUs and CPU per node that are left beside what they keep."""


def best_values(
    candidates: Sequence[StartCandidate], room: FreeCapacity, shares: Shares, sub_layers: Sequence[SubLayer]
) -> tuple[float, ...]:
    """The lexicographically largest layer values that any set of starts reaches.

    `candidates` are all that compete, in order: in a strict queue even one that can't start keeps others from starting.
    Those outside `sub_layers` can't.
    """
    free = tuple(
        (
            int(room.free_gpus[node]) if room.open_nodes[node] else -1,
            int(room.free_cpu[node]),
            _divided(room, node),
            tuple((gpu.before, gpu.held) for gpu in room.partitions.gpus.get(node, ())),
            0,
        )
        for node in range(len(room.nodes))
    )
    choices = [
        (None, *_choices(candidate, room.nodes))
        if {candidate.sub_layer, *((candidate.sub_layer.of_growth,) if candidate.can_grow else ())} <= set(sub_layers)
        else (None,)
        for candidate in candidates
    ]
    beside = ((view, seen(room, view)) for view in sorted({c.against for c in candidates} - {NOBODY}, key=sorted))
    views = tuple((view, tuple(zip(r.free_gpus.tolist(), r.free_cpu.tolist(), strict=True))) for view, r in beside)
    best = layer_values((), sub_layers, shares)
    for chosen in product(*choices):
        starts = [
            JobStart(candidate, choice[0], GangPlaced((), choice[1]), choice[2])
            for candidate, choice in zip(candidates, chosen, strict=True)
            if choice
        ]
        values = layer_values(starts, sub_layers, shares)
        if (
            values > best
            and _lawful(starts, shares)
            and _in_line(starts, candidates)
            and _fits(starts, room, free, views)
        ):
            best = values
    return best


def _choices(candidate: StartCandidate, nodes: Sequence[Node]) -> Iterator[tuple[Option, float, tuple[int, ...]]]:
    """Every way to serve it, what it may pay for being apart, and every size."""
    spec = candidate.job.spec
    for option, sizes in product(candidate.options, _sizes(spec)):
        missing = {0.0}
        for levels, part in _wishes_inside(spec, option, sizes):
            missing = {known + part * count for known in missing for count in range(len(levels) + 1)}
        for strain in sorted({base + more for base in _strains(candidate, nodes) for more in missing}):
            yield option, strain, sizes


def _wishes_inside(spec: JobSpec, option: Option, sizes: tuple[int, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    """For each of its parts that prefer to be together the levels, and what of its GPUs, or else of its tasks, the part has."""
    cost = [int(shape.cost) for shape in option.shapes]
    cost = cost if any(each * count for each, count in zip(cost, sizes, strict=True)) else [1] * len(cost)
    total = sum(each * count for each, count in zip(cost, sizes, strict=True))
    for levels, tasks in _parts_inside(spec, sizes):
        if levels:
            yield levels, sum(cost[group] for group, _ in tasks) / total


def _parts_inside(spec: JobSpec, sizes: tuple[int, ...]) -> Iterator[tuple[tuple[str, ...], list[tuple[int, int]]]]:
    """The levels that each part of it prefers, and its tasks, each by its group and index."""
    for known in spec.topology.together:
        numbers = [number for number, group in enumerate(spec.task_groups) if group.name in known.groups]
        for unit in range(known.units):
            tasks = [task for number in numbers for task in _of_unit(spec, known.units, unit, number, sizes[number])]
            if tasks:
                yield _as_tuple(known.preferred), tasks
    for number, group in enumerate(spec.task_groups):
        yield _as_tuple(group.topology.preferred), [(number, index) for index in range(sizes[number])]
        for bundle in _bundles(spec, group):
            for first in range(0, sizes[number], bundle.tasks):
                last = min(first + bundle.tasks, sizes[number])
                yield _as_tuple(bundle.preferred), [(number, index) for index in range(first, last)]


def _of_unit(spec: JobSpec, units: int, unit: int, number: int, size: int) -> list[tuple[int, int]]:
    """The tasks of a group, by its number and theirs, that are in one of its units."""
    each = spec.task_groups[number].replicas // units
    return [(number, index) for index in range(unit * each, min(size, (unit + 1) * each))]


def _bundles(spec: JobSpec, group: TaskGroup) -> tuple[Bundle, ...]:
    said = group.topology.group or (None if group.topology.required else spec.topology.group)
    return (said,) if isinstance(said, Bundle) else said or ()


def _as_tuple(preferred: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (preferred,) if isinstance(preferred, str) else preferred or ()


def _divided(room: FreeCapacity, node: int) -> Divided:
    return tuple(sorted((gpu.domain or "", gpu.free_milli) for gpu in room.shared.get(node, ()) if gpu.healthy))


def _strains(candidate: StartCandidate, nodes: Sequence[Node]) -> tuple[float, ...]:
    """What a gang may come to pay for being apart, by level; the links of all pools are alike in these worlds."""
    return tuple({level: _strain(candidate, nodes, level) for level in _levels(candidate)}.values())


def _levels(candidate: StartCandidate) -> list[Level | None]:
    every: list[Level | None] = ["island", "rack", "block", "pool", None]
    required = candidate.job.spec.effective_topology.required
    return every[: every.index(required) + 1]


def _strain(candidate: StartCandidate, nodes: Sequence[Node], level: Level | None) -> float:
    """One for each preferred level that is closer, and where communication binds 900 GB/s by the link of the level."""
    asked, order = candidate.job.spec.effective_topology, ("island", "rack", "block", "pool", None)
    wanted = {asked.preferred} if isinstance(asked.preferred, str) else set(asked.preferred or ())
    strain = float(sum(order.index(wish) < order.index(level) for wish in wanted))
    if asked.communication == "bound":
        links = nodes[0].links
        gb_per_s = {"island": links.island, "rack": links.rack, "block": links.block}.get(level or "", links.pool)
        strain += max(0.0, 900 / gb_per_s - 1)
    return strain


def _sizes(spec: JobSpec) -> Iterator[tuple[int, ...]]:
    """Every number of tasks of each group that the gang may have: of groups in units as many units of each."""
    every = product(*(range(group.least, group.replicas + 1, group.replica_step) for group in spec.task_groups))
    for sizes in every:
        known = {group.name: size / group.replicas for group, size in zip(spec.task_groups, sizes, strict=True)}
        if all(each.units == 1 or len({known[name] for name in each.groups}) == 1 for each in spec.topology.together):
            yield sizes


def _lawful(starts: Sequence[JobStart], shares: Shares) -> bool:
    headroom, users = QuotaHeadroom(shares), UserRoom(shares.users)
    for start in starts:
        job, charge = start.candidate.job, start.charge
        if headroom.blocking(start.queue, charge) or users.blocking(job, charge):
            return False
        headroom.take(start.queue, charge)
        users.take(job, charge)
    return _inside_where_they_must(starts, shares) and _lent(starts, shares)


def _lent(starts: Sequence[JobStart], shares: Shares) -> bool:
    """No start takes what others keep back: the roots count with no more than there is, or than they did before."""
    tree, kept = shares.tree, shares.lending.kept

    def counts_with(line: QuotaLine, use: Mapping[QuotaLine, int]) -> int:
        children = [QuotaLine(child.name, line.gpu_type) for child in tree.children.get(line.queue, ())]
        below = sum(counts_with(child, use) for child in children) if children else use.get(line, 0)
        return max(below, kept.get(line, 0))

    after = Counter(shares.used)
    for start in starts:
        for gpu_type, milli in start.charge.items():
            after[QuotaLine(start.queue, gpu_type)] += milli
    for gpu_type in {line.gpu_type for line in kept}:
        roots = [QuotaLine(root.name, gpu_type) for root in tree.children[None]]
        before, now = (sum(counts_with(root, use) for root in roots) for use in (shares.used, after))
        if now > max(before, shares.lending.capacity.get(gpu_type, 0)):
            return False
    return True


def _inside_where_they_must(starts: Sequence[JobStart], shares: Shares) -> bool:
    inside = QuotaHeadroom(shares).entitled
    return all(
        inside.take(start.queue, start.charge) == sum(start.charge.values())
        for start in starts
        if start.candidate.inside_only or start.option.inside_only
    )


def _in_line(starts: Sequence[JobStart], candidates: Sequence[StartCandidate]) -> bool:
    """No start takes what one of its strict queue could use that comes earlier and does not start."""
    options = {start.candidate.job.name: start.option for start in starts}
    for place, later in enumerate(candidates):
        option = options.get(later.job.name)
        if option is None or not later.strict:
            continue
        for earlier in candidates[:place]:
            waits = earlier.job.spec.queue == later.job.spec.queue and earlier.job.name not in options
            if waits and _delays(later, option, earlier):
                return False
    return True


def _delays(later: StartCandidate, option: Option, earlier: StartCandidate) -> bool:
    for group, gpu_type in zip(later.job.spec.task_groups, option.gpu_types, strict=True):
        for other in earlier.job.spec.task_groups:
            accepted = not other.shape.gpu_types or gpu_type in other.shape.gpu_types
            if gpu_type and other.shape.uses_gpus and accepted:
                return True
            if group.shape.cpu and other.shape.cpu and not other.shape.uses_gpus:
                return True
        if group.shape.cpu and gpu_type is None:
            return True
    return False


def _fits(starts: Sequence[JobStart], room: FreeCapacity, free: Free, views: Seen) -> bool:
    if not starts:
        return True
    first, rest = starts[0], starts[1:]
    return any(_fits(rest, room, *left) for left in _gang(first, room, free, views))


def _beside(start: JobStart, views: Seen, hosts: tuple[int, ...]) -> Seen | None:
    """What its tasks leave to those whom the same reservations hold back; None where that is too little for itself."""
    left = []
    for view, nodes in views:
        after = [list(node) for node in nodes]
        for (shape, _, _), host in zip(_tasks(start), hosts, strict=True) if view <= start.candidate.against else ():
            after[host][0] -= shape.gpus
            after[host][1] -= shape.cpu
            if (shape.gpus and after[host][0] < 0) or (shape.cpu and after[host][1] < 0):
                return None
        left.append((view, tuple((gpus, cpu) for gpus, cpu in after)))
    return tuple(left)


def _gang(start: JobStart, room: FreeCapacity, free: Free, views: Seen) -> Iterator[tuple[Free, Seen]]:
    nodes = room.nodes
    asked = start.candidate.job.spec.effective_topology
    levels: list[Level] = [level for level in (asked.required,) if level]
    widest = [at for at in _levels(start.candidate) if _strain(start.candidate, nodes, at) <= start.placed.strain][-1]
    if widest is not None:
        levels.append(widest)
    domains = {tuple(node.domain(level) for level in levels) for node in nodes}
    known = set()
    for domain in sorted(domains):
        allowed = [i for i, node in enumerate(nodes) if tuple(node.domain(level) for level in levels) == domain]
        for left, hosts in _place(_tasks(start), room, allowed, free, ()):
            beside = _beside(start, views, hosts)
            if beside is None or (left, beside) in known:
                continue
            if _apart(start, [nodes[host] for host in hosts]):
                known.add((left, beside))
                yield left, beside


def _apart(start: JobStart, hosts: Sequence[Node]) -> bool:
    """Whether bundles are whole and spreads kept; `hosts` has the nodes of all tasks, group by group."""
    spec, rest = start.candidate.job.spec, list(hosts)
    if _crowd(spec.topology.spread, hosts):
        return False
    if _torn_groups(start, hosts):
        return False
    for group, count in zip(spec.task_groups, start.tasks, strict=True):
        mine, rest = rest[:count], rest[count:]
        own = group.topology
        if own.required and len({node.domain(own.required) for node in mine}) > 1:
            return False
        for bundle in _bundles(spec, group):
            for first in range(0, count, bundle.tasks) if bundle.within else ():
                together = mine[first : first + bundle.tasks]
                if len({node.domain(bundle.within or "pool") for node in together}) > 1:
                    return False
        if _crowd(own.spread, mine):
            return False
    return _pays(start, hosts) <= start.placed.strain + 1e-9


def _torn_groups(start: JobStart, hosts: Sequence[Node]) -> bool:
    """Whether groups that have to be together are not, or a unit of them is not."""
    spec = start.candidate.job.spec
    places = [(number, index) for number, count in enumerate(start.tasks) for index in range(count)]
    host_of = dict(zip(places, hosts, strict=True))
    for known in spec.topology.together:
        numbers = [number for number, group in enumerate(spec.task_groups) if group.name in known.groups]
        for unit in range(known.units) if known.within else ():
            tasks = [t for n in numbers for t in _of_unit(spec, known.units, unit, n, start.tasks[n])]
            if len({host_of[task].domain(known.within or "pool") for task in tasks}) > 1:
                return True
    return False


def _pays(start: JobStart, hosts: Sequence[Node]) -> float:
    """What it pays on these hosts for its parts that are apart, and, where it has such parts, for itself."""
    spec = start.candidate.job.spec
    parts = list(_parts_inside(spec, start.tasks))
    if not any(levels for levels, _ in parts):
        return 0.0
    places = [(number, index) for number, count in enumerate(start.tasks) for index in range(count)]
    host_of = dict(zip(places, hosts, strict=True))

    def apart(tasks: Sequence[tuple[int, int]], level: str) -> bool:
        return len({host_of[task].domain(level) for task in tasks}) > 1  # type: ignore[arg-type]

    closest = next(level for level in _levels(start.candidate) if level is None or not apart(places, level))
    wishing = [(levels, tasks) for levels, tasks in parts if levels]
    pays = _strain(start.candidate, hosts, closest)
    for (levels, part), (_, tasks) in zip(_wishes_inside(spec, start.option, start.tasks), wishing, strict=True):
        pays += part * sum(apart(tasks, level) for level in levels)
    return pays


def _crowd(spread: Spread | None, hosts: Sequence[Node]) -> bool:
    if spread is None:
        return False
    domains = [host.name if spread.level == "node" else host.domain(spread.level) for host in hosts]
    return any(domains.count(domain) > spread.max_per_domain for domain in domains)


def _tasks(start: JobStart) -> list[tuple[Shape, str | None, str]]:
    """What each of its tasks takes, on which type, and to which set of nodes it is limited."""
    groups = start.candidate.job.spec.task_groups
    return [
        (shape, gpu_type, group.nodes)
        for group, shape, gpu_type, count in zip(
            groups, start.option.shapes, start.option.gpu_types, start.tasks, strict=True
        )
        for _ in range(count)
    ]


def _place(
    tasks: list[tuple[Shape, str | None, str]],
    room: FreeCapacity,
    allowed: list[int],
    free: Free,
    hosts: tuple[int, ...],
) -> Iterator[tuple[Free, tuple[int, ...]]]:
    if not tasks:
        yield free, hosts
        return
    (shape, gpu_type, nodes), rest = tasks[0], tasks[1:]
    for index in allowed:
        if nodes and not room.sets[nodes][index]:
            continue
        gpus, cpu, divided, states, made = free[index]
        node = room.nodes[index]
        if gpu_type in (None, node.gpu_type) and gpus >= 0 and cpu >= shape.cpu:
            for whole, parts, partitioned, more in _ways_on(shape, room, index, (gpus, divided, states)):
                left = (
                    *free[:index],
                    (whole, cpu - shape.cpu, parts, partitioned, made + more),
                    *free[index + 1 :],
                )
                if _changes_allow(room, node.pool, left):
                    yield from _place(rest, room, allowed, left, (*hosts, index))


def _ways_on(
    shape: Shape, room: FreeCapacity, index: int, have: tuple[int, Divided, States]
) -> Iterator[tuple[int, Divided, States, int]]:
    """Every way a task's GPUs can be taken on a node, with GPUs made whole again or partitioned anew."""
    gpus, divided, states = have
    rule = room.partitions.rules.get(index)
    if isinstance(shape, MigShape):
        if rule is not None and rule.model == shape.model:
            had = {(gpus, states)}
            for _ in range(shape.devices):
                had = {after for before in had for after in _instances(shape, rule, *before)}
            for whole, partitioned in had:
                yield whole, divided, partitioned, 0
        return
    if gpus >= shape.gpus:
        for whole, parts in _ways(shape, room.nodes[index].pool, gpus, divided):
            yield whole, parts, states, 0
    elif rule is not None and rule.mode != "fixed":
        # Which of the unused GPUs is made whole matters: one may have the instances that others want.
        unused = [place for place, (_, held) in enumerate(states) if not held]
        for taken in combinations(unused, shape.gpus - gpus):
            rest = tuple(state for place, state in enumerate(states) if place not in taken)
            yield 0, divided, rest, len(taken)


def _instances(shape: MigShape, rule: MigRule, gpus: int, states: States) -> Iterator[tuple[int, States]]:
    profile = rule.profile(shape.mig or "")
    assert profile is not None
    for place, (before, held) in enumerate((*states, *(((None, ()),) if gpus else ()))):
        for start in profile.starts:
            after = tuple(sorted((*held, PlacedInstance(start, profile)), key=lambda placed: placed.start))
            if PlacedInstance(start, profile) not in held and _may_be(rule, before, after):
                whole = gpus - (place == len(states))
                rest = (*states[:place], *states[place + 1 :])
                yield whole, tuple(sorted((*rest, (before, after)), key=repr))


def _may_be(rule: MigRule, before: Geometry | None, held: Geometry) -> bool:
    if set(held) <= set(before or ()):
        return True
    if rule.mode == "bounded":
        targets = (target for layout in rule.layouts for target in realisations(rule.model, layout))
        return any(set(held) <= set(target) for target in targets)
    return rule.mode == "free" and is_valid(mig_model(rule.model), held)


def _changes_allow(room: FreeCapacity, pool: str, free: Free) -> bool:
    changed = sum(
        made + sum(not set(held) <= set(before or ()) for before, held in states)
        for node, (_, _, _, states, made) in zip(room.nodes, free, strict=True)
        if node.pool == pool
    )
    return changed <= room.partitions.changes_left.get(pool, 0)


def _ways(shape: Shape, pool: str, gpus: int, divided: Divided) -> Iterator[tuple[int, Divided]]:
    """Every way a task's GPUs can be taken on a node: whole ones, a part of each divided one that may be, or of a new one."""
    if not isinstance(shape, SharedShape):
        yield gpus - shape.gpus, divided
        return
    domain = next((circle.domain for circle in shape.circles if circle.pool == pool), None)
    if domain is None or gpus < 0:
        return
    able = [place for place, (known, milli) in enumerate(divided) if known == domain and milli >= shape.milli]
    for new in range(min(gpus, shape.devices) + 1):
        for places in combinations(able, shape.devices - new):
            left = [(known, milli - shape.milli * (place in places)) for place, (known, milli) in enumerate(divided)]
            yield gpus - new, tuple(sorted((*left, *[(domain, 1000 - shape.milli)] * new)))
