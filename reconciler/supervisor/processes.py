"""What proc(5) says of processes: when one started, which children it has, what CPU time and memory a task takes.

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


def descendants() -> list[int]:
    """The children of this process, theirs, and so on."""
    found = parents = children_of(os.getpid())
    while parents:
        parents = [child for parent in parents for child in children_of(parent)]
        found = found + parents
    return found


def contained_processes() -> list[int]:
    """The descendants that are in a namespace of process ids other than this one: what a container runs, and not what runs it."""
    own = _pid_namespace(os.getpid())
    return [pid for pid in descendants() if _pid_namespace(pid) not in (own, None)]


def cpu_s_of_descendants() -> float:
    """CPU time of all descendants of this process, with those that have ended and were waited for."""
    ended, ticks = os.times(), sum(map(_cpu_ticks, descendants()))
    return ended.children_user + ended.children_system + ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """The memory of a process that is in RAM; what it shares with others counts whole. Quick to read."""
    return int((read_of(pid, "statm").split() or ["0", "0"])[1]) * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(pid: int) -> int:
    """The same, each shared page divided by how many share it. Slow to read; where it may not be read, `resident_bytes`."""
    for line in read_of(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return resident_bytes(pid)


def read_of(pid: int, name: str) -> str:
    """A file of a process or thread; "" where it has ended, or the file is not ours to read."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _pid_namespace(pid: int) -> str | None:
    """As namespaces(7) names it; None where the process has ended, or may not be looked at."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return None


def _cpu_ticks(pid: int) -> int:
    """Fields 14 to 17: of a process, and of its children that it has waited for."""
    return sum(map(int, (_stat(pid) or [])[11:15]))


def _stat(pid: int) -> list[str] | None:
    """The fields of proc_pid_stat(5) from the third on; None if there is no such process."""
    # Before them stands the command's name, which may hold anything.
    return read_of(pid, "stat").rpartition(")")[2].split() or None
