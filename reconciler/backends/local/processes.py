"""What proc(5) says of processes: when one started, whose children there are, and what CPU time a task took.

The supervisor has it too, so it imports nothing but the standard library.
"""

from __future__ import annotations

import os
from contextlib import suppress


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid it names one process. None if there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None  # Field 22.


def children_of(pid: int) -> list[int]:
    """The processes that one has made and that have not been waited for; each is listed under the thread that made it."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # It has ended, or one of its threads has.
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found


def cpu_s_of_descendants() -> float:
    """CPU time of all descendants of this process, with those that have ended and were waited for."""
    ended, ticks, parents = os.times(), 0, [os.getpid()]
    while parents:
        children = children_of(parents.pop())
        ticks += sum(map(_cpu_ticks, children))
        parents += children
    return ended.children_user + ended.children_system + ticks / os.sysconf("SC_CLK_TCK")


def _cpu_ticks(pid: int) -> int:
    """Fields 14 to 17: of a process, and of its children that it has waited for."""
    return sum(map(int, (_stat(pid) or [])[11:15]))


def _stat(pid: int) -> list[str] | None:
    """The fields of proc_pid_stat(5) from the third on; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return (
                file.read().rpartition(")")[2].split()
            )  # Before it stands the command's name, which may hold anything.
    except (FileNotFoundError, ProcessLookupError):
        return None
