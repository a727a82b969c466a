"""The best answer to a tiny round by trying everything: every subset of jobs, every option, every placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from solver.placement import Placed
from solver.rules.demand import Candidate, SubLayer
from solver.rules.entitlement import Headroom, Shares
from solver.rules.options import Option
from solver.rules.users import UserRoom
from solver.starts import Start, layer_values
from solver.world.cluster import Level, Node
from solver.world.room import Room
from solver.world.workload import Bundle, JobSpec, Shape, SharedShape, Spread

Divided = tuple[tuple[str, int], ...]
"""For each divided GPU of a node its trust domain and the milli-GPU left of it, sorted."""

Free = tuple[tuple[int, int, Divided], ...]
"""Whole free GPUs, CPU and divided GPUs per node."""


def best_values(
    candidates: Sequence[Candidate], room: Room, shares: Shares, sub_layers: Sequence[SubLayer]
) -> tuple[float, ...]:
    """The lexicographically largest layer values that any set of starts reaches.

    `candidates` are all that compete, in order: in a strict queue even one that can't start keeps others from starting.
    Those outside `sub_layers` can't.
    """
    free = tuple(
        (int(room.free_gpus[node]) if room.open_nodes[node] else -1, int(room.free_cpu[node]), _divided(room, node))
        for node in range(len(room.nodes))
    )
    choices = [
        (None, *product(candidate.options, _wishes(candidate), _sizes(candidate.job.spec)))
        if candidate.sub_layer in sub_layers
        else (None,)
        for candidate in candidates
    ]
    best = layer_values((), sub_layers, shares)
    for chosen in product(*choices):
        starts = [
            Start(candidate, choice[0], Placed((), choice[1]), choice[2])
            for candidate, choice in zip(candidates, chosen, strict=True)
            if choice
        ]
        values = layer_values(starts, sub_layers, shares)
        if (
            values > best
            and _lawful(starts, shares)
            and _in_line(starts, candidates)
            and _fits(starts, room.nodes, free)
        ):
            best = values
    return best


def _divided(room: Room, node: int) -> Divided:
    return tuple(sorted((gpu.domain or "", gpu.free_milli) for gpu in room.shared.get(node, ()) if gpu.healthy))


def _wishes(candidate: Candidate) -> tuple[bool, ...]:
    return (True, False) if candidate.job.spec.effective_topology.preferred else (True,)


def _sizes(spec: JobSpec) -> Iterator[tuple[int, ...]]:
    """Every number of tasks of each group that the gang may have."""
    return product(*(range(group.least, group.replicas + 1) for group in spec.task_groups))


def _lawful(starts: Sequence[Start], shares: Shares) -> bool:
    headroom, users = Headroom(shares), UserRoom(shares.users)
    for start in starts:
        job, charge = start.candidate.job, start.charge
        if headroom.blocking(start.queue, charge) or users.blocking(job, charge):
            return False
        headroom.take(start.queue, charge)
        users.take(job, charge)
    return _inside_where_they_must(starts, shares)


def _inside_where_they_must(starts: Sequence[Start], shares: Shares) -> bool:
    inside = Headroom(shares).entitled
    return all(
        inside.take(start.queue, start.charge) == sum(start.charge.values())
        for start in starts
        if start.candidate.inside_only
    )


def _in_line(starts: Sequence[Start], candidates: Sequence[Candidate]) -> bool:
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


def _delays(later: Candidate, option: Option, earlier: Candidate) -> bool:
    for group, gpu_type in zip(later.job.spec.task_groups, option.gpu_types, strict=True):
        for other in earlier.job.spec.task_groups:
            accepted = not other.shape.gpu_types or gpu_type in other.shape.gpu_types
            if gpu_type and other.shape.gpus and accepted:
                return True
            if group.shape.cpu and other.shape.cpu and not other.shape.gpus:
                return True
        if group.shape.cpu and gpu_type is None:
            return True
    return False


def _fits(starts: Sequence[Start], nodes: tuple[Node, ...], free: Free) -> bool:
    if not starts:
        return True
    first, rest = starts[0], starts[1:]
    return any(_fits(rest, nodes, left) for left in _gang(first, nodes, free))


def _gang(start: Start, nodes: tuple[Node, ...], free: Free) -> Iterator[Free]:
    asked = start.candidate.job.spec.effective_topology
    levels: list[Level] = [level for level in (asked.required,) if level]
    if start.placed.preferred_met and asked.preferred:
        levels.append(asked.preferred)
    domains = {tuple(node.domain(level) for level in levels) for node in nodes}
    seen = set()
    for domain in sorted(domains):
        allowed = [i for i, node in enumerate(nodes) if tuple(node.domain(level) for level in levels) == domain]
        for left, hosts in _place(_tasks(start), nodes, allowed, free, ()):
            if left not in seen and _apart(start, [nodes[host] for host in hosts]):
                seen.add(left)
                yield left


def _apart(start: Start, hosts: Sequence[Node]) -> bool:
    """Whether bundles are whole and spreads kept; `hosts` has the nodes of all tasks, group by group."""
    spec, rest = start.candidate.job.spec, list(hosts)
    if _crowd(spec.topology.spread, hosts):
        return False
    for group, count in zip(spec.task_groups, start.tasks, strict=True):
        mine, rest = rest[:count], rest[count:]
        own = group.topology
        bundle = Bundle(count, own.required) if own.required else own.group or spec.topology.group
        for first in range(0, count, bundle.tasks) if bundle else ():
            if bundle and len({node.domain(bundle.within) for node in mine[first : first + bundle.tasks]}) > 1:
                return False
        if _crowd(own.spread, mine):
            return False
    return True


def _crowd(spread: Spread | None, hosts: Sequence[Node]) -> bool:
    if spread is None:
        return False
    domains = [host.name if spread.level == "node" else host.domain(spread.level) for host in hosts]
    return any(domains.count(domain) > spread.max_per_domain for domain in domains)


def _tasks(start: Start) -> list[tuple[Shape, str | None]]:
    return [
        (shape, gpu_type)
        for shape, gpu_type, count in zip(start.option.shapes, start.option.gpu_types, start.tasks, strict=True)
        for _ in range(count)
    ]


def _place(
    tasks: list[tuple[Shape, str | None]],
    nodes: tuple[Node, ...],
    allowed: list[int],
    free: Free,
    hosts: tuple[int, ...],
) -> Iterator[tuple[Free, tuple[int, ...]]]:
    if not tasks:
        yield free, hosts
        return
    (shape, gpu_type), rest = tasks[0], tasks[1:]
    for index in allowed:
        gpus, cpu, divided = free[index]
        if gpu_type in (None, nodes[index].gpu_type) and gpus >= shape.gpus and cpu >= shape.cpu:
            for whole, parts in _ways(shape, nodes[index].pool, gpus, divided):
                left = (*free[:index], (whole, cpu - shape.cpu, parts), *free[index + 1 :])
                yield from _place(rest, nodes, allowed, left, (*hosts, index))


def _ways(shape: Shape, pool: str, gpus: int, divided: Divided) -> Iterator[tuple[int, Divided]]:
    """Every way a task's GPUs can be taken on a node: whole ones, a part of each divided one that may be, or of a new one."""
    if not isinstance(shape, SharedShape):
        yield gpus - shape.gpus, divided
        return
    domain = next((circle.domain for circle in shape.circles if circle.pool == pool), None)
    if domain is None or gpus < 0:
        return
    for place, (known, milli) in enumerate(divided):
        if known == domain and milli >= shape.milli:
            rest = (*divided[:place], (known, milli - shape.milli), *divided[place + 1 :])
            yield gpus, tuple(sorted(rest))
    if gpus:
        yield gpus - 1, tuple(sorted((*divided, (domain, 1000 - shape.milli))))
