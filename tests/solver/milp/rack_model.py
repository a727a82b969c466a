"""The layers of a round as an integer program of classes by racks, for rounds of one GPU type.

It is written anew and shares nothing with `solver.milp`: a column says how many gangs of a class start in one rack, and
another how many tasks of a class without a rack of its own run there. Sizes must divide each other, so that tasks that fit
a rack's slots find nodes in it. Layers are solved one after the other, with CBC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulp

SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class GangClass:
    """Like gangs: `count` of them, each `tasks` of `gpus` GPUs, in one rack or anywhere.

    `rank`: of their sub-layer; `weight`: what one of their GPUs counts for in it.
    """

    queue: str
    rank: int
    weight: float
    tasks: int
    gpus: int
    count: int
    one_rack: bool

    @property
    def size(self) -> int:
        """GPUs of one gang."""
        return self.tasks * self.gpus


def layer_values_of(
    classes: Sequence[GangClass],
    racks: Sequence[Sequence[int]],
    guaranteed: Mapping[str, int],
    ceiling: Mapping[str, int],
    fair: Mapping[str, int],
) -> list[float]:
    """The best value of each layer, given those before: inside guarantees, inside fair shares, at all, each by rank.

    `racks`: the free GPUs of each node of each rack. `guaranteed` and `fair`: what is left inside them, by queue.
    """
    problem = pulp.LpProblem("racks", pulp.LpMaximize)
    started = [problem.add_variable(f"start{i:04}", 0, known.count, "Integer") for i, known in enumerate(classes)]
    tasks = [
        [problem.add_variable(f"run{i:04}in{r:03}", 0, None, "Integer") for r in range(len(racks))]
        for i in range(len(classes))
    ]
    for i, known in enumerate(classes):
        per_flow = 1 if known.one_rack else known.tasks
        problem += pulp.lpSum(tasks[i]) == per_flow * started[i]
    for r, nodes in enumerate(racks):
        for size in SIZES:
            slots = sum(free // size for free in nodes)
            needs = [
                (known.gpus // size) * (known.tasks if known.one_rack else 1) * tasks[i][r]
                for i, known in enumerate(classes)
                if known.gpus >= size
            ]
            problem += pulp.lpSum(needs) <= slots
    queues = sorted({known.queue for known in classes})
    for queue in queues:
        taken = [known.size * started[i] for i, known in enumerate(classes) if known.queue == queue]
        problem += pulp.lpSum(taken) <= ceiling[queue]
    layers: list[tuple[int, pulp.LpAffineExpression]] = []
    for number, room in enumerate((guaranteed, fair)):
        inside = [problem.add_variable(f"inside{number}of{i:04}", 0) for i in range(len(classes))]
        for i, known in enumerate(classes):
            problem += inside[i] <= known.size * started[i]
        for queue in queues:
            problem += pulp.lpSum(inside[i] for i, known in enumerate(classes) if known.queue == queue) <= room[queue]
        layers += _by_rank(classes, [(known.weight, inside[i]) for i, known in enumerate(classes)])
    layers += _by_rank(classes, [(known.weight * known.size, started[i]) for i, known in enumerate(classes)])
    return [_settled(problem, layer) for _, layer in layers]


def _by_rank(
    classes: Sequence[GangClass], terms: Sequence[tuple[float, pulp.LpVariable]]
) -> list[tuple[int, pulp.LpAffineExpression]]:
    ranks = sorted({known.rank for known in classes})
    return [
        (rank, pulp.lpSum(f * x for known, (f, x) in zip(classes, terms, strict=True) if known.rank == rank))
        for rank in ranks
    ]


def _settled(problem: pulp.LpProblem, layer: pulp.LpAffineExpression) -> float:
    """Solve for one layer and hold what it reached."""
    problem.setObjective(layer)
    problem.solve(pulp.COIN_CMD(path=pulp.apis.coin_api.pulp_cbc_path, msg=False, gapRel=0.0))
    if problem.sol_status != pulp.LpSolutionOptimal:
        raise AssertionError(f"CBC ends with {pulp.LpStatus[problem.status]}")
    value = float(pulp.value(layer) or 0.0)
    problem += layer >= value - 1e-7
    return value
