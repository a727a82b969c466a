"""Fractions move so that GPUs become whole: tried against every set of them and every place for each, on small clusters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

import pytest

from solver.checker.case import moving
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Optimiser
from solver.round.solve import solve
from tests.solver.laws.worlds import World, world_of

NODES, GPUS, MOST = 2, 3, 4
WHOLE = 1000


class Fraction(NamedTuple):
    """A part of a GPU, which is a number."""

    gpu: int
    milli: int


def drawn(seed: int) -> tuple[World, tuple[Fraction, ...], int]:
    """Fractions all over, and a job that waits for so many whole GPUs of one node."""
    chance, left, held = random.Random(seed), [WHOLE] * (NODES * GPUS), list[Fraction]()
    for _ in range(chance.randint(4, 9)):
        gpu, milli = chance.randrange(len(left)), chance.choice((250, 250, 500))
        if left[gpu] >= milli:
            held.append(Fraction(gpu, milli))
            left[gpu] -= milli
    wanted = chance.randint(1, GPUS)
    lines = [f"nodes {' '.join(f'n{node}={GPUS}' for node in range(NODES))}", "rules shared", f"queue a {len(left)}"]
    for number, (gpu, milli) in enumerate(held):
        age = chance.randint(1, 500) + number / 16
        lines.append(f"run j{number} a {milli / WHOLE:g}@n{gpu // GPUS}/{gpu % GPUS} for {age}m")
    return world_of("\n".join([*lines, f"wait w a {wanted} for 1m"])), tuple(held), wanted


def fewest(held: Sequence[Fraction], wanted: int) -> int | None:
    """The least number of fractions that have to move so that the job fits; None: no number suffices, up to the limit."""
    now = [WHOLE - sum(milli for at, milli in held if at == gpu) for gpu in range(NODES * GPUS)]
    for count in range(MOST + 1):
        for leaving in combinations(range(len(held)), count):
            kept = {fraction.gpu for number, fraction in enumerate(held) if number not in leaving}
            sizes = tuple(sorted((held[number].milli for number in leaving), reverse=True))
            for node in range(NODES):
                whole = [gpu for gpu in range(node * GPUS, (node + 1) * GPUS) if gpu not in kept]
                for taken in combinations(whole, wanted):
                    if fit(tuple(sorted(left for gpu, left in enumerate(now) if gpu not in taken)), sizes):
                        return count
    return None


@cache
def fit(left: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether parts of these sizes fit in what is left of GPUs."""
    if not sizes:
        return True
    first, *rest = sizes
    return any(
        fit(tuple(sorted((*left[:at], there - first, *left[at + 1 :]))), tuple(rest))
        for at, there in enumerate(left)
        if there >= first
    )


@pytest.mark.parametrize(("optimiser", "missed_max"), [(optimise, 0), (None, 0)], ids=["program", "search"])
def test_what_moving_finds_and_misses(optimiser: Optimiser | None, missed_max: int) -> None:
    """The program finds whatever there is; the search misses little. Neither moves a fraction in vain."""
    needed = missed = 0
    for seed in range(60):
        world, held, wanted = drawn(seed)
        least, plan = fewest(held, wanted), solve(*world, optimiser)
        moved = len(moving(plan))
        assert violations(*world, plan) == ()
        assert not moved or (least is not None and moved >= least > 0)
        needed += bool(least)
        missed += bool(least) and not moved
    assert needed > 15
    assert missed <= missed_max
