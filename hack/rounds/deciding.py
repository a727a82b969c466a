"""Rounds decided as the control plane decides them: with the program in a process of its own, beside the round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from reconciler.control.control import Solve
from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.recording import solver_with
from solver.milp.optimiser import Awaited, ConcurrentOptimiser, Effort, Program
from solver.model.arrays import Floats


class Size(NamedTuple):
    """Of a program."""

    columns: int
    rows: int
    nonzeros: int


NO_PROGRAM = Size(0, 0, 0)


class Sized(ConcurrentOptimiser):
    """An Optimiser that asks another; with the size of the largest program that it was given."""

    def __init__(self, optimiser: ConcurrentOptimiser) -> None:
        self._optimiser = optimiser
        self.largest = NO_PROGRAM

    def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
        """The other's answer, waited for later."""
        self.largest = max(self.largest, Size(len(program.lower), len(program.row_lower), len(program.entry_value)))
        return self._optimiser.begin(program, start, effort)


class Deciding(NamedTuple):
    """What decides rounds that follow each other. `program`: what it asks; None: nobody, and the greedy answers stand."""

    solve: Solve
    program: Sized | None

    @property
    def largest(self) -> Size:
        """Of the programs so far."""
        return self.program.largest if self.program else NO_PROGRAM


@contextmanager
def deciding(*, with_program: bool) -> Iterator[Deciding]:
    """As `quorate run` decides rounds; or without a program."""
    if not with_program:
        yield Deciding(solver_with(None), None)
        return
    with KillableOptimiser() as child:
        child.warm_up()
        program = Sized(child)
        yield Deciding(solver_with(program), program)
