"""The door to the terminals of tasks: a line carries what is shown and typed, sizes of windows, and how it ended.

The holder of a line reads and writes it from one event loop. A backend that gives tasks no terminals has NO_TERMINALS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from solver.model.workload import JobName

TYPED_BYTES_MAX: Final = 32_768
"""In one message."""

WINDOW_MAX: Final = 10_000
"""Rows or columns: far more than any window has, and less than the kernel's sixteen bits."""


class NoTerminalError(Exception):
    """The task has no terminal to attach to, or has it no longer."""


@dataclass(frozen=True, slots=True)
class Window:
    """The size of an attached user's window. Programs draw for the one that was told last."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class TerminalEnd:
    """The task has ended, with this exit code; `stopped`: it was told to."""

    code: int
    stopped: bool


class TerminalLine(Protocol):
    """One attached user of a task's terminal."""

    async def receive(self) -> bytes | TerminalEnd | None:
        """What is shown next, first the end of what was shown before; how the task ended; None: the line is broken."""

    async def send(self, typed: bytes | Window) -> None:
        """Type, or say how large the window is. Raises NoTerminalError where the line is broken."""

    def close(self) -> None:
        """Let go of the terminal. The task does not notice."""


class Terminals(Protocol):
    """Where the terminals of tasks can be reached."""

    def open_terminal(self, job: JobName, attempt: int, group: str, index: int) -> TerminalLine:
        """Attach to a task that runs. Several may be attached at once. Raises NoTerminalError."""


class _None:
    def open_terminal(self, job: JobName, attempt: int, group: str, index: int) -> TerminalLine:
        raise NoTerminalError(f"what runs task {group}/{index} of attempt {attempt} of {job} gives tasks no terminals")


NO_TERMINALS: Final[Terminals] = _None()
"""Those of a backend that has none."""
