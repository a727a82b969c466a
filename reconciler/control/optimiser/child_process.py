"""A process of one's own that answers in frames: begun afresh, not forked, and killed when it is not wanted any more."""

from __future__ import annotations

import resource
import select
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Final, NamedTuple, Self, cast

from reconciler.control.optimiser.wire import READY, WireError, read_frame

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
