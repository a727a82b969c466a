"""The best answer to a tiny round by trying everything: every subset of jobs, every option, every placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from solver.placement import Placed
from solver.rules.demand import Candidate, Option, SubLayer
from solver.rules.entitlement import Headroom, Shares
from solver.rules.users import UserRoom
from solver.starts import Start, layer_values
from solver.world.cluster import Level, Node
from solver.world.room import Room
from solver.world.workload import Shape, SharedShape, TaskPlacement

Divided = tuple[tuple[str, int], ...]
"""For each divided GPU of a node its trust domain and the milli-GPU left of it, sorted."""

Free = tuple[tuple[int, int, Divided], ...]
"""Whole free GPUs, CPU and divided GPUs per node."""


def best_values(
    candidates: Sequence[Candidate], room: Room, shares: Shares, sub_layers: Sequence[SubLayer]
) -> tuple[float, ...]:
    """The lexicographically largest layer values that any set of starts reaches."""
    free = tuple(
        (int(room.free_gpus[node]) if room.open_nodes[node] else -1, int(room.free_cpu[node]), _divided(room, node))
        for node in range(len(room.nodes))
    )
    choices = [(None, *product(candidate.options, _wishes(candidate))) for candidate in candidates]
    best = layer_values((), sub_layers, shares)
    for chosen in product(*choices):
        starts = [
            Start(candidate, choice[0], Placed((), choice[1]))
            for candidate, choice in zip(candidates, chosen, strict=True)
            if choice
        ]
        values = layer_values(starts, sub_layers, shares)
        if values > best and _lawful(starts, shares) and _fits(starts, room.nodes, free):
            best = values
    return best


def _divided(room: Room, node: int) -> Divided:
    return tuple(sorted((gpu.domain or "", gpu.free_milli) for gpu in room.shared.get(node, ()) if gpu.healthy))


def _wishes(candidate: Candidate) -> tuple[bool, ...]:
    return (True, False) if candidate.job.spec.effective_topology.preferred else (True,)


def _lawful(starts: Sequence[Start], shares: Shares) -> bool:
    headroom, users = Headroom(shares), UserRoom(shares.users)
    for start in starts:
        job, charge = start.candidate.job, start.option.charge
        if headroom.blocking(start.queue, charge) or users.blocking(job, charge):
            return False
        headroom.take(start.queue, charge)
        users.take(job, charge)
    return True


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
        tasks = _tasks(start.candidate.job.spec.task_groups, start.option)
        for left in _place(tasks, nodes, allowed, free):
            if left not in seen:
                seen.add(left)
                yield left


def _tasks(groups: Sequence[object], option: Option) -> list[tuple[Shape, str | None]]:
    return [
        (shape, gpu_type)
        for group, shape, gpu_type in zip(groups, option.shapes, option.gpu_types, strict=True)
        for _ in range(group.replicas)  # type: ignore[attr-defined]
    ]


def _place(
    tasks: list[tuple[Shape, str | None]], nodes: tuple[Node, ...], allowed: list[int], free: Free
) -> Iterator[Free]:
    if not tasks:
        yield free
        return
    (shape, gpu_type), rest = tasks[0], tasks[1:]
    for index in allowed:
        gpus, cpu, divided = free[index]
        if gpu_type in (None, nodes[index].gpu_type) and gpus >= shape.gpus and cpu >= shape.cpu:
            for whole, parts in _ways(shape, nodes[index].pool, gpus, divided):
                left = (*free[:index], (whole, cpu - shape.cpu, parts), *free[index + 1 :])
                yield from _place(rest, nodes, allowed, left)


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


__all__ = ["TaskPlacement", "best_values"]
