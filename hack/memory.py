"""How much memory processes took, for benchmarks that say so."""

from __future__ import annotations

from reconciler.supervisor.processes import read_of


def peak_mb(*pids: int) -> int:
    """The most that each of these processes had in RAM so far, added up: they need not have had it at the same time.

    VmHWM of proc(5), in MiB. getrusage(2) is no substitute: it counts what a process had before it began another program, and after
    vfork that is its parent's.
    """
    lines = (line for pid in pids for line in read_of(pid, "status").splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024
