"""Writes into the task's log what its supervisor can see of it: processes, threads, where they wait, files, memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from reconciler.supervisor import processes
from reconciler.supervisor.memory import written

BEGIN, END = "----- quorate: dump of this task", "----- quorate: end of the dump"
_WORDS = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible sleep",
    "T": "stopped",
    "t": "traced",
    "Z": "ended, not waited for",
    "I": "idle",
}
"""The states of proc_pid_stat(5) that a process of a user can be in."""


def dump() -> None:
    """Write it to the log, between two marked lines. Nothing of the task is touched: it reads proc(5)."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    lines = [f"{BEGIN} at {at}", *dump_lines(), END]
    text = "".join(f"{line}\n" for line in lines).encode()
    with suppress(OSError):  # A full disk: there is no log to write to, and the task need not suffer for it.
        os.write(2, text)


def dump_lines() -> Iterator[str]:
    """What there is to see, a line each; what may not be read is left out."""
    pids = processes.descendants()
    yield f"{len(pids)} processes, {written(sum(map(processes.resident_bytes, pids)))} resident"
    for pid in pids:
        yield from _process(pid)


def _process(pid: int) -> Iterator[str]:
    command = processes.read_of(pid, "cmdline").replace("\0", " ").strip() or processes.read_of(pid, "comm").strip()
    threads = sorted(map(int, _listed(pid, "task")))
    memory, files = written(processes.resident_bytes(pid)), len(_listed(pid, "fd"))
    yield f"process {pid}: {command[:200]!r}, {memory} resident, {files} open files, {len(threads)} threads"
    for thread in threads:
        yield from _thread(thread)


def _thread(thread: int) -> Iterator[str]:
    """A thread has a folder of its own in proc(5), under its number, though none lists it."""
    stat = processes.read_of(thread, "stat")
    name, _, rest = stat.partition("(")[2].rpartition(")")
    letter = (rest.split() or ["?"])[0]
    waits = processes.read_of(thread, "wchan").strip()
    where = f", in {waits}" if waits not in ("", "0") else ""
    yield f"  thread {thread} {name!r}: {_WORDS.get(letter, letter)}{where}"
    # Only a process that may trace every other may read it, which a supervisor seldom may.
    yield from (f"    {frame}" for frame in processes.read_of(thread, "stack").splitlines())


def _listed(pid: int, name: str) -> list[str]:
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return os.listdir(f"/proc/{pid}/{name}")
    return []
