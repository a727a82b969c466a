"""The parent's side: asks a child process, and kills it when it overruns, crashes or answers nonsense.

HiGHS overruns its time limit by seconds on large models, and native code can't be interrupted from within. The child
is started when first needed, kept between rounds, and started anew at once after it had to be killed.

One thread talks with the child, and a caller waits for that thread no longer than its time limit: on a busy machine a
process that was killed takes a while to die, and a new one to begin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Final, Self

import numpy as np

from reconciler.control.optimiser.child_process import ChildProcess, KeptChild
from reconciler.control.optimiser.wire import (
    OptimiserAnswer,
    OptimiserQuestion,
    WireError,
    decode,
    encode,
    read_frame,
    write_frame,
)
from solver.milp.optimiser import Awaited, ConcurrentOptimiser, Effort, Program, Solution
from solver.model.arrays import Floats

HIGHS_CHILD: Final = (sys.executable, "-m", "reconciler.control.optimiser.child")

_BYTES_PER_VALUE = 8

_ANSWER_BYTES_BESIDE_VALUES = 1_000_000

REFUSED = (
    "the optimiser refused a program of which the greedy answer breaks a row; that answer stands. "
    "This is a defect of Quorate: please report it"
)


class KillableOptimiser(ConcurrentOptimiser):
    """An Optimiser with failures as answers of None. Threads may share it; they wait for each other.

    `report` hears in a sentence why an answer is None; `memory_bytes_max` limits the child's address space.
    Close it, or use it as a context manager.
    """

    def __init__(
        self,
        command: Sequence[str] = HIGHS_CHILD,
        memory_bytes_max: int | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._report = report
        self._child = KeptChild(command, "optimiser", memory_bytes_max)

    def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
        """Ask the child, which works before it is waited for; its time runs from now on."""
        begun = self._child.submit(self._child.begun)
        asked = self._child.submit(self._ask, OptimiserQuestion(program, start, effort), begun)
        return partial(self._answer, asked, monotonic() + effort.time_limit_s, effort.time_limit_s)

    def _answer(self, asked: Future[Solution | None], until_s: float, limit_s: float) -> Solution | None:
        try:
            solution = asked.result(max(0.0, until_s - monotonic()))
        except TimeoutError:
            if asked.cancel():
                self._report("the optimiser is still starting, or answers another")
                return None
            self._child.kill()
            failure = f"gave no answer within {limit_s:.2f} s"
        except (WireError, OSError) as found:
            failure = str(found)
        else:
            if solution is None:
                self._report(REFUSED)
            return solution
        self._report(f"the optimiser {failure}; it was ended and starts anew")
        self._child.submit(self._renew)  # Should that fail, the next caller is told.
        return None

    def start(self) -> None:
        """Start the child, if there is none, beside what is done until it is asked. A failure shows then."""
        self._child.submit(self._child.begun)

    def warm_up(self) -> None:
        """Wait until the child can answer, so that the first round need not. A failure shows with the first round."""
        self._child.submit(self._child.begun).exception()

    def close(self) -> None:
        """End the child, also one that is just being started."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _renew(self) -> None:
        self._child.end()
        self._child.begun()

    def _ask(self, question: OptimiserQuestion, begun: Future[ChildProcess]) -> Solution | None:
        child = begun.result()
        write_frame(child.questions, encode(question))
        bytes_max = _BYTES_PER_VALUE * question.program.lower.size + _ANSWER_BYTES_BESIDE_VALUES
        solution = decode(read_frame(child.answers, bytes_max), OptimiserAnswer).solution
        wrong = _complaint(question.program, solution) if solution else None
        if wrong:
            raise WireError(wrong)
        return solution


def _complaint(program: Program, solution: Solution) -> str | None:
    """What is wrong with an answer; None where it satisfies every bound, row and integrality."""
    values = solution.values
    if values.shape != program.lower.shape:
        return f"answered {values.size} values for {program.lower.size} columns"
    if not np.isfinite(values).all():
        return "answered values that are not finite"
    if len(solution.reached) != len(program.objectives):
        return f"answered for {len(solution.reached)} objectives of {len(program.objectives)}"
    if any(np.isnan([reached.value, reached.bound]).any() for reached in solution.reached):
        return "answered an objective that is not a number"
    if not program.is_satisfied_by(values):
        return "answered values that break the program's bounds, rows or integrality"
    return None
