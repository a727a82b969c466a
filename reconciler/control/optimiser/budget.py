"""One time limit for all that a round asks: each question has what the earlier ones have left, less a margin."""

from __future__ import annotations

from dataclasses import replace

from reconciler.control.optimiser.limits import margin_s
from reconciler.model.clock import Clock
from solver.milp.optimiser import Awaited, ConcurrentOptimiser, Effort, Optimiser, Program, Solution, begun
from solver.model.arrays import Floats

LEAST_S = 0.02
"""A question with less time than it takes to send it and to state its program would only get the child killed."""


class RoundBudget(ConcurrentOptimiser):
    """An Optimiser which asks another: the time limit of a round's questions is that of all of them together.

    What comes when the time is over is answered None at once. Waiting counts, and not what the round does between questions.
    """

    def __init__(self, optimiser: Optimiser, clock: Clock) -> None:
        self._optimiser = optimiser
        self._clock = clock
        self._waited_s = 0.0

    def for_a_round(self) -> RoundBudget:
        """One with its whole time limit left."""
        return RoundBudget(self._optimiser, self._clock)

    def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
        """The other's answer within what is left now. What it does before it is waited for takes nothing from later questions."""
        left_s = effort.time_limit_s - margin_s(effort.time_limit_s) - self._waited_s
        if left_s < LEAST_S:
            return lambda: None
        waiting = begun(self._optimiser, program, start, replace(effort, time_limit_s=left_s))

        def answer() -> Solution | None:
            since_s = self._clock.monotonic_s()
            try:
                return waiting()
            finally:
                self._waited_s += self._clock.monotonic_s() - since_s

        return answer
