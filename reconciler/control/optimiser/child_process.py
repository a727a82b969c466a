"""A process of one's own that answers in frames: begun afresh, not forked, and killed when it is not wanted any more.

It is begun when it is first needed, kept from question to question, and another is begun where it has ended.
"""

from __future__ import annotations

import resource
import select
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Final, NamedTuple, ParamSpec, Self, TypeVar, cast

from reconciler.control.optimiser.wire import READY, WireError, read_frame

P = ParamSpec("P")
T = TypeVar("T")

START_LIMIT_S: Final = 60.0
"""For importing the solver from a cold disk. A child that has not begun by then is given up."""


class ChildProcess(NamedTuple):
    """A child, and what it is asked and answers through."""

    process: subprocess.Popen[bytes]
    questions: IO[bytes]
    answers: IO[bytes]

    @classmethod
    def begin(cls, command: Sequence[str]) -> Self:
        """Start it; it still has to greet. Raises OSError."""
        # Ctrl-C in a terminal reaches its whole process group, and when this one ends is ours to decide.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        return cls(process, cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout))

    def await_greeting(self, memory_bytes_max: int | None = None) -> None:
        """Wait until it can answer. `memory_bytes_max` limits its address space. Raises WireError, OSError."""
        if memory_bytes_max is not None:
            limits = (memory_bytes_max, memory_bytes_max)
            resource.prlimit(self.process.pid, resource.RLIMIT_AS, limits)
        heard = select.poll()
        heard.register(self.answers, select.POLLIN)
        if not heard.poll(1_000 * START_LIMIT_S):
            raise WireError(f"did not begin within {START_LIMIT_S:.1f} s")
        if read_frame(self.answers, bytes_max=len(READY)) != READY:
            raise WireError("did not greet")

    def kill(self) -> None:
        """What waits for it then sees the end of its stream. Any thread may."""
        self.process.kill()

    def end(self) -> None:
        """Kill it, and leave nothing of it behind."""
        self.kill()
        self.process.wait()
        self.answers.close()
        with suppress(OSError):  # What was left to send has no reader.
            self.questions.close()


class KeptChild:
    """A child, and the one thread that talks with it: what it is asked waits there for its turn.

    `memory_bytes_max` limits its address space.
    """

    def __init__(self, command: Sequence[str], thread_name: str, memory_bytes_max: int | None = None) -> None:
        self._command = command
        self._memory_bytes_max = memory_bytes_max
        self._talking = ThreadPoolExecutor(1, thread_name)
        self._child: ChildProcess | None = None
        self._closing = False

    def submit(self, do: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Have something done in its thread, after all that was submitted before."""
        return self._talking.submit(do, *arguments, **named)

    def begun(self) -> ChildProcess:
        """The child, which is begun and has greeted; in its thread. Raises WireError, OSError."""
        if self._child is None:
            self._child = ChildProcess.begin(self._command)
            try:
                self._greet(self._child)
            except (WireError, OSError):
                self.end()
                raise
        return self._child

    def end(self) -> None:
        """End the child; in its thread. The next that needs one begins another."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def kill(self) -> None:
        """What waits for the child then sees the end of its stream. Any thread may."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End the child, also one that is just being started, and the thread. Any other thread may."""
        self._closing = True
        self.kill()
        self._talking.shutdown(cancel_futures=True)
        self.end()

    def _greet(self, child: ChildProcess) -> None:
        if self._closing:
            raise WireError("is not wanted any more")
        child.await_greeting(self._memory_bytes_max)
