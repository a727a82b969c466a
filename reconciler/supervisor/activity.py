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
    """Looks every few seconds whether the task has done something since: has used a CPU, written to its log, or been typed to.

    `keystrokes` counts what was typed; what is not echoed, such as a password, shows nowhere else.
    """

    def __init__(self, every_s: float, keystrokes: Callable[[], int] = lambda: 0) -> None:
        self._every_s = every_s
        self._keystrokes = keystrokes
        self._active_s = self._next_s = time.monotonic()
        self._seen = 0.0, (0, 0)
        self.look()

    def look(self) -> None:
        """Look if it is time to, and write down what was seen. One look after a long pause is judged as any other."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        signs = _size_of(LOG), self._keystrokes()
        (cpu_s, signs_before), self._seen = self._seen, (processes.cpu_s_of_descendants(), signs)
        # Less than before is a sign of life too: with a child that is not waited for goes the time that it took.
        if abs(self._seen[0] - cpu_s) > ACTIVE_CPU_SHARE * self._every_s or signs != signs_before:
            self._active_s = now_s
        self._next_s = now_s + self._every_s
        # For how long, by a clock that is never set, and not since when: a leap of the other one must make no task idle.
        seen = {"idleMs": round(1_000 * (now_s - self._active_s)), "seenAt": time.time_ns() // 1_000_000}
        with suppress(OSError):  # A full disk: the last look gets old, and what is old ends no job.
            write_durably(ACTIVITY, json.dumps(seen))


def _size_of(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0
