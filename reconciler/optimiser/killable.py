"""The parent's side: asks a child process, and kills it when it overruns, crashes or answers nonsense.

HiGHS overruns its time limit by seconds on large models, and native code can't be interrupted from within. The child
is started when first needed, kept between rounds, and started anew at once after it had to be killed: no round waits
for a new one longer than for an answer.
"""

from __future__ import annotations

import resource
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock, Timer
from time import monotonic
from types import TracebackType
from typing import IO, Final, Self, cast

from reconciler.optimiser.judge import complaint
from reconciler.optimiser.wire import READY, Answer, Question, WireError, decode, encode, read_frame, write_frame
from solver.program.optimiser import Effort, Floats, Program, Solution

HIGHS_CHILD: Final = (sys.executable, "-m", "reconciler.optimiser.child")

START_LIMIT_S: Final = 60.0
"""For importing the solver from a cold disk. A child that has not begun by then is given up."""

_BYTES_PER_VALUE = 8
_ANSWER_BYTES_BESIDE_VALUES = 1_000_000


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    questions: IO[bytes]
    answers: IO[bytes]
    began_s: float
    has_greeted: bool = False

    def greets(self, within_s: float) -> bool:
        """Whether it has imported its solver; waits for that. Raises WireError where it never will."""
        if not self.has_greeted:
            waiting = select.poll()
            waiting.register(self.answers, select.POLLIN)
            if not waiting.poll(1_000 * within_s):
                if monotonic() - self.began_s > START_LIMIT_S:
                    raise WireError(f"did not begin within {START_LIMIT_S:.1f} s")
                return False
            if read_frame(self.answers, bytes_max=len(READY)) != READY:
                raise WireError("did not greet")
            self.has_greeted = True
        return True


class KillableOptimiser:
    """An Optimiser whose failures are answers of None. Threads may share it; they wait for each other.

    `report` hears in a sentence why an answer is None; `memory_bytes_max` limits the child's address space.
    Close it, or use it as a context manager.
    """

    def __init__(
        self,
        command: Sequence[str] = HIGHS_CHILD,
        memory_bytes_max: int | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._command = command
        self._memory_bytes_max = memory_bytes_max
        self._report = report
        self._one_at_a_time = Lock()
        self._child: _Child | None = None

    def __call__(self, program: Program, start: Floats, effort: Effort) -> Solution | None:
        """The child's answer where it is there within the time limit and satisfies the program, else None."""
        with self._one_at_a_time:
            due_s = monotonic() + effort.time_limit_s
            try:
                child = self._child or self._begin()
                if child.greets(effort.time_limit_s):
                    return _answer(child, Question(program, start, effort), due_s - monotonic())
                self._report("the optimiser is still starting")
            except (WireError, OSError) as failure:
                self._report(f"the optimiser {failure}; it was ended and starts anew")
                self._end()
                with suppress(OSError):  # Whoever asks next is told.
                    self._begin()
            return None

    def warm_up(self) -> None:
        """Wait until the child can answer, so that the first round need not. A failure shows with the first round."""
        with self._one_at_a_time, suppress(WireError, OSError):
            (self._child or self._begin()).greets(START_LIMIT_S)

    def close(self) -> None:
        """End the child."""
        with self._one_at_a_time:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> _Child:
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        streams = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        self._child = child = _Child(process, *streams, monotonic())
        if self._memory_bytes_max is not None:
            resource.prlimit(process.pid, resource.RLIMIT_AS, (self._memory_bytes_max, self._memory_bytes_max))
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.process.kill()
        child.process.wait()
        child.answers.close()
        with suppress(OSError):  # What was left to send has no reader.
            child.questions.close()


def _answer(child: _Child, question: Question, within_s: float) -> Solution | None:
    bytes_max = _BYTES_PER_VALUE * question.program.lower.size + _ANSWER_BYTES_BESIDE_VALUES
    with _killed_after(within_s, child.process):
        write_frame(child.questions, encode(question))
        answer = decode(read_frame(child.answers, bytes_max), Answer)
    wrong = complaint(question.program, answer.solution) if answer.solution else None
    if wrong:
        raise WireError(wrong)
    return answer.solution


@contextmanager
def _killed_after(limit_s: float, child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the child if the block takes longer; what waits for it then sees the end of its stream."""
    overran = False

    def kill() -> None:
        nonlocal overran
        overran = True
        child.kill()

    watchdog = Timer(limit_s, kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    except (WireError, OSError) as failure:
        if overran:
            raise WireError(f"gave no answer within {limit_s:.1f} s") from failure
        raise
    finally:
        watchdog.cancel()
