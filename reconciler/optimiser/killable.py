"""The parent's side: asks a child process, and kills it when it overruns, crashes or answers nonsense.

HiGHS overruns its time limit by seconds on large models, and native code can't be interrupted from within. The child
is started when first needed, kept between rounds, and started anew after it had to be killed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from types import TracebackType
from typing import IO, Final, NamedTuple, Self, cast

from reconciler.optimiser.judge import complaint
from reconciler.optimiser.limits import answer_due_s
from reconciler.optimiser.wire import READY, Answer, Question, WireError, decode, encode, read_frame, write_frame
from solver.program.optimiser import Effort, Floats, Program, Solution

HIGHS_CHILD: Final = (sys.executable, "-m", "reconciler.optimiser.child")

START_LIMIT_S: Final = 60.0
"""For importing the solver from a cold disk. Outside any round's budget: the child outlives its rounds."""

_BYTES_PER_VALUE = 8
_ANSWER_BYTES_BESIDE_VALUES = 1_000_000


class _Child(NamedTuple):
    process: subprocess.Popen[bytes]
    questions: IO[bytes]
    answers: IO[bytes]


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
        """The child's answer where it is in time and satisfies the program, else None."""
        with self._one_at_a_time:
            try:
                solution = self._ask(encode(Question(program, start, effort)), program, effort)
            except (WireError, OSError) as failure:
                self._report(f"the optimiser {failure}; it was ended and starts anew with the next round")
                self._end()
                return None
            return solution

    def warm_up(self) -> None:
        """Start the child now rather than with the first round. A failure shows with the first round."""
        with self._one_at_a_time, suppress(WireError, OSError):
            self._running()

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

    def _ask(self, question: bytes, program: Program, effort: Effort) -> Solution | None:
        child = self._running()
        bytes_max = _BYTES_PER_VALUE * program.lower.size + _ANSWER_BYTES_BESIDE_VALUES
        with _killed_after(answer_due_s(effort), child.process):
            write_frame(child.questions, question)
            answer = decode(read_frame(child.answers, bytes_max), Answer)
        wrong = complaint(program, answer.solution) if answer.solution else None
        if wrong:
            raise WireError(wrong)
        return answer.solution

    def _running(self) -> _Child:
        if self._child is None:
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._child = child = _Child(process, cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout))
            if self._memory_bytes_max is not None:
                resource.prlimit(process.pid, resource.RLIMIT_AS, (self._memory_bytes_max, self._memory_bytes_max))
            with _killed_after(START_LIMIT_S, process):
                greeting = read_frame(child.answers, bytes_max=len(READY))
            if greeting != READY:
                raise WireError("did not greet")
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.process.kill()
        child.process.wait()
        child.answers.close()
        with suppress(OSError):  # What was left to send has no reader.
            child.questions.close()


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
