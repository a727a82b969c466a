"""Looks now and again whether the task of this supervisor does something."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress

from reconciler.supervisor import processes
from reconciler.supervisor.taskfiles import ACTIVITY, LOG, write_durably

ACTIVE_CPU_SHARE = 0.01
"""Of one core, from one look to the next: a task that uses more does something. The timers and heartbeats of a shell or a
notebook server without a user stay below it; what computes, or feeds a GPU, is far above."""


class ActivityWatch:
    """Looks every few seconds what the task has done since: used a CPU, been typed to, or written to its log.

    Each is told apart: a line in the log alone is no work. `keystrokes` counts what was typed; what is not echoed, such as a
    password, shows nowhere else.
    """

    def __init__(self, every_s: float, keystrokes: Callable[[], int] = lambda: 0) -> None:
        self._every_s = every_s
        self._keystrokes = keystrokes
        self._next_s = time.monotonic()
        self._worked_s = self._typed_s = self._logged_s = self._next_s
        self._cpu_s, self._typed, self._logged = 0.0, 0, 0
        self.look()

    def look(self) -> None:
        """Look if it is time to, and write down what was seen. One look after a long pause is judged as any other."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        before = self._cpu_s, self._typed, self._logged
        self._cpu_s, self._typed, self._logged = processes.cpu_s_of_descendants(), self._keystrokes(), _size_of(LOG)
        if self._typed != before[1]:
            self._typed_s = now_s
        # Less than before is a sign of life too: with a child that is not waited for goes the time that it took.
        if abs(self._cpu_s - before[0]) > ACTIVE_CPU_SHARE * self._every_s or self._typed_s == now_s:
            self._worked_s = now_s
        if self._logged != before[2]:
            self._logged_s = now_s
        self._next_s = now_s + self._every_s
        # For how long, by a clock that is never set, and not since when: a leap of the other one must make no task idle.
        idle_s = {"idleMs": self._worked_s, "typedIdleMs": self._typed_s, "logIdleMs": self._logged_s}
        seen = {name: round(1_000 * (now_s - at_s)) for name, at_s in idle_s.items()}
        with suppress(OSError):  # A full disk: the last look gets old, and what is old ends no job.
            write_durably(ACTIVITY, json.dumps({**seen, "seenAt": time.time_ns() // 1_000_000}))


def _size_of(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0
