"""Keeps what an optimiser answered in a round where a clock may have decided it, so that the round can be solved again."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace

import msgspec

from reconciler.control.control import Concluded, Solve, Solved
from reconciler.control.optimiser.budget import RoundBudget
from reconciler.control.optimiser.heap import give_back
from reconciler.control.optimiser.wire import OptimiserAnswer, WireError, decode, encode
from reconciler.model.clock import Clock, SystemClock
from solver.milp.optimiser import Awaited, ConcurrentOptimiser, Effort, Optimiser, Program, Solution, begun
from solver.model.arrays import Floats
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy
from solver.round.solve import RoundAnswer, decide

NO_CLOCK_S = 1e6
"""A time limit that is never met: solving again must not be cut where the first time was not."""


WITHOUT_PROGRAM = "without a program"
"""What is recorded of a round that was decided so."""


class BadRecordingError(Exception):
    """A recorded answer can't be read, or is not one to what the round asks."""


def solver_with(optimiser: Optimiser | None, clock: Clock = SystemClock()) -> Solve:
    """Rounds decided with an optimiser, each within one time limit, and recorded so that `optimiser_of` can decide them again.

    What a round leaves for the next is kept; replaying one needs none of it.
    """
    kept = RoundCache()

    def solve_once(snapshot: Snapshot, policy: Policy) -> Solved:
        recording = Recording(RoundBudget(optimiser, clock)) if optimiser else None
        return _in_parts(decide(snapshot, policy, recording, kept), lambda: recording.text if recording else "")

    return solve_once


def without_program(snapshot: Snapshot, policy: Policy) -> Solved:
    """A round decided from nothing, by the greedy answer alone, and recorded so that it is decided in this way again."""
    return _in_parts(decide(snapshot, policy, None), lambda: WITHOUT_PROGRAM)


def _in_parts(answer: RoundAnswer, solution: Callable[[], str]) -> Solved:
    def conclude() -> Concluded:
        plan = answer.plan()
        give_back()
        return Concluded(plan, solution())

    return Solved(Concluded(answer.deed(), solution()), conclude)


class Recording(ConcurrentOptimiser):
    """An Optimiser that asks another, and remembers its answers."""

    def __init__(self, optimiser: Optimiser) -> None:
        self._optimiser = optimiser
        self._answers: list[Solution | None] = []

    def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
        """The other's answer, waited for later. Its place is that of its question."""
        waiting, place = begun(self._optimiser, program, start, effort), len(self._answers)
        self._answers.append(None)

        def answer() -> Solution | None:
            self._answers[place] = waiting()
            return self._answers[place]

        return answer

    @property
    def text(self) -> str:
        """The answers in their order; "" where each came in its own time, so that asking again gives the same."""
        if all(answer is not None and not answer.cut_by_clock for answer in self._answers):
            return ""
        frames = [encode(OptimiserAnswer(answer)) for answer in self._answers]
        return base64.b64encode(msgspec.msgpack.encode(frames)).decode("ascii")


def optimiser_of(recorded: str, optimiser: Optimiser) -> Optimiser | None:
    """What answers a round again: its recorded answers, or where there are none the optimiser, without a time limit.

    None where the round was decided without one.

    Raises BadRecordingError, also when asked for more than was recorded.
    """
    if recorded == WITHOUT_PROGRAM:
        return None
    if recorded:
        return _Recorded(recorded)

    def without_clock(program: Program, start: Floats, effort: Effort) -> Solution | None:
        return optimiser(program, start, replace(effort, time_limit_s=NO_CLOCK_S))

    return without_clock


class _Recorded:
    """An Optimiser that answers as it once did."""

    def __init__(self, recorded: str) -> None:
        try:
            frames = msgspec.msgpack.decode(base64.b64decode(recorded, validate=True), type=list[bytes])
            self._answers = iter([decode(frame, OptimiserAnswer).solution for frame in frames])
        except (ValueError, msgspec.MsgspecError, WireError) as error:
            raise BadRecordingError(f"the recorded answer can't be read: {error}") from error

    def __call__(self, program: Program, start: Floats, effort: Effort) -> Solution | None:  # noqa: ARG002  (Optimiser's)
        """The next recorded answer."""
        try:
            solution = next(self._answers)
        except StopIteration:
            raise BadRecordingError("the round asks the optimiser more often than it did") from None
        if solution is not None and not program.is_satisfied_by(solution.values):
            raise BadRecordingError("the recorded answer is none to the program that the round states now")
        return solution
