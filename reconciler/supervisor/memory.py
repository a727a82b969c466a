"""Measures the memory of the task of this supervisor, and says when it has more than its shape asks for."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

from reconciler.supervisor import processes
from reconciler.supervisor.taskfiles import MEMORY, write_durably

_REST_S, _REST_WITHOUT_LIMIT_S = 0.2, 2.0
_RESTS_PER_LOOK = 50
"""A look at many processes takes long: the rest after it is so many times as long, so that looking uses 2 % of a core at most."""
_WRITE_EVERY_S = 1.0
_WORTH_WRITING = 1.01
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


class Meter:
    """Looks at all processes of the task together, `only_contained`: those in containers. A limit of 0 bytes is none."""

    def __init__(self, limit: int, *, only_contained: bool = False) -> None:
        self._limit = limit
        self._listed = processes.contained_processes if only_contained else processes.descendants
        self._rest_s = _REST_S if limit else _REST_WITHOUT_LIMIT_S
        self._peak = 0
        self._written = 0
        self._next_look_s = self._next_write_s = 0.0
        self._exceeded = False

    def look(self) -> bool:
        """Look if it is time to; True once, when the task has more than its limit."""
        began_s = time.monotonic()
        if began_s < self._next_look_s or self._exceeded:
            return False
        used = used_bytes(self._limit, self._listed())
        ended_s = time.monotonic()
        self._next_look_s = ended_s + max(self._rest_s, _RESTS_PER_LOOK * (ended_s - began_s))
        self._peak = max(self._peak, used)
        self._exceeded = 0 < self._limit < used
        self._write(ended_s)
        return self._exceeded

    def seen(self) -> dict[str, Any]:
        """The most there was at any look, in bytes, the limit, and whether it was exceeded."""
        return {"peak": self._peak, "limit": self._limit, "exceeded": self._exceeded}

    def note_end_by_kernel(self) -> None:
        """The kernel has ended it at its limit, which may have come between two looks."""
        self._peak, self._exceeded = max(self._peak, self._limit), True

    def verdict(self) -> str:
        """Why the task is ended, for its log."""
        return (
            f"ended: its processes have {written(self._peak)} of memory, and its shape asks for {written(self._limit)}"
        )

    def _write(self, now_s: float) -> None:
        if self._exceeded or (now_s >= self._next_write_s and self._peak > _WORTH_WRITING * self._written):
            with suppress(OSError):  # A full disk: the next look tries again, and `exit` has it in the end.
                write_durably(MEMORY, json.dumps(self.seen()))
                self._written, self._next_write_s = self._peak, now_s + _WRITE_EVERY_S


def used_bytes(limit: int, pids: list[int]) -> int:
    """The memory of these processes together.

    Quickly, with shared pages counted once for each process that has them; only if that is more than the limit, exactly:
    else a loader with eight forked workers would seem to have nine times what it has.
    """
    used = sum(map(processes.resident_bytes, pids))
    return sum(map(processes.proportional_bytes, pids)) if 0 < limit < used else used


def written(size: int) -> str:
    """Bytes as people read them, with one decimal: 1.3Gi."""
    unit = 0
    amount = float(size)
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f}".removesuffix(".0") + _UNITS[unit]
