"""Runs a task's command and writes down, again and again, until when its devices were in use: `witness.py FOLDER COMMAND...`.

What is written is seen by the task itself, so it is true whatever the scheduler believes. One file for each life of a task:
its devices, when it began, and when it was last seen alive, in nanoseconds of this machine's monotonic clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

SEEN_EVERY_S = 0.05


class Use(NamedTuple):
    """One device, and from when until when somebody had it."""

    device: str
    since: int
    until: int
    who: str


def uses(folder: Path) -> Iterator[Use]:
    """What was written by all."""
    for path in folder.glob("*.json"):
        devices, since, until = json.loads(path.read_text())
        yield from (Use(device, since, until, path.stem) for device in devices)


def overlaps(seen: Iterable[Use]) -> list[tuple[Use, Use]]:
    """Every two that had one device at the same time."""
    by_device: dict[str, list[Use]] = {}
    for use in seen:
        by_device.setdefault(use.device, []).append(use)
    pairs = (pair for known in by_device.values() for pair in combinations(known, 2))
    return [(one, other) for one, other in pairs if one.since < other.until and other.since < one.until]


def main(folder: Path, command: list[str]) -> int:
    who = "-".join(os.environ[f"QUORATE_{name}"] for name in ("JOB", "ATTEMPT", "GROUP", "INDEX"))
    path, fresh = folder / f"{who}.{os.getpid()}.json", folder / f"{who}.{os.getpid()}.new"
    devices, since = os.environ["QUORATE_DEVICES"].split(","), time.monotonic_ns()
    with subprocess.Popen(command) as task:
        while True:
            fresh.write_text(json.dumps([devices, since, time.monotonic_ns()]))
            fresh.replace(path)
            try:
                return task.wait(SEEN_EVERY_S)
            except subprocess.TimeoutExpired:
                continue


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
