"""When each agent sent its newest beat, in memory that the server's process and those of agents share."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_BYTES: Final = 8
"""Of one number. Writing it is one store: a reader sees the number before or the one after."""


class Stamps:
    """A file of nanoseconds of the monotonic clock, which is the same for all processes of a machine (clock_gettime(2))."""

    def __init__(self, path: Path, agents: int) -> None:
        path.touch()
        with path.open("r+b") as file:
            file.truncate(agents * _BYTES)
            self._mapped = mmap.mmap(file.fileno(), agents * _BYTES)
        self._numbers = memoryview(self._mapped).cast("q")

    def sent(self, agent: int, at_ns: int) -> None:
        """The agent of this number sends now."""
        self._numbers[agent] = at_ns

    def last_ns(self, agent: int) -> int:
        """When it did."""
        return self._numbers[agent]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._numbers.release()
        self._mapped.close()
