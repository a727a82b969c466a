"""The layout of the state folder: where an attempt, a task and a log lie.

epoch                      the newest epoch seen
openings                   how often a backend was opened on this folder
live/JOB.ATTEMPT/          attempts that are still reported
    order.json             the start order as accepted
    order.GROWTH.json      an order by which it grew, as accepted
    stop                   the stop order; an attempt that has one never starts
    tells.json             what its tasks were told
    gang.json              its members now
    hosts                  the same for a launcher: on which hosts, and how many
    GROUP.INDEX/           one task; its files are described in taskfiles.py
    GROUP.INDEX.GROWTH/    one task that came with a growth; its log is that of GROUP.INDEX, by another name
gpus/GPU.json              the last order to partition a GPU, as it was done or refused
quarantine/GPU.json        a GPU that a task has left unclean, while it is
forgotten/JOB.ATTEMPT/     the same, for attempts whose end the control plane has recorded, until they are deleted (retention.py)
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import msgspec

from reconciler.supervisor.taskfiles import STOP, sync_folder, write_durably
from solver.model.quantities import Instant
from solver.model.workload import JobName

ORDER = "order.json"
NS_PER_MS = 1_000_000


class StateFolders:
    """Paths below one state folder, and the counters in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._live = root / "live"
        self._forgotten = root / "forgotten"
        self.gpus = root / "gpus"
        self.quarantine = root / "quarantine"
        for folder in (root, self._live, self._forgotten):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """One writer at a time, over all processes and threads that use this folder."""
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def count_opening(self) -> int:
        """How often the folder was opened, this time included."""
        with self.exclusive():
            return self._store("openings", self._number("openings") + 1)

    def epoch(self) -> int:
        """The newest epoch that was seen; 0: none."""
        return self._number("epoch")

    def raise_epoch(self, epoch: int) -> bool:
        """Keep the newest epoch; False for one that is older. Call it while holding the folder."""
        newest = self._number("epoch")
        if epoch > newest:
            self._store("epoch", epoch)
        return epoch >= newest

    def attempt(self, job: JobName, attempt: int) -> Path:
        """Where a live attempt lies, or would."""
        return self._live / _folder_name(job, attempt)

    def make_attempt(self, job: JobName, attempt: int) -> Path:
        """The folder of a live attempt, made if there is none yet."""
        folder = self.attempt(job, attempt)
        if not folder.exists():
            folder.mkdir(mode=0o700)
            sync_folder(str(self._live))
        return folder

    def live(self) -> set[Path]:
        """Every attempt that is still reported."""
        return {Path(entry) for entry in os.scandir(self._live)}

    def is_forgotten(self, job: JobName, attempt: int) -> bool:
        """Whether the control plane has recorded this attempt's end."""
        return (self._forgotten / _folder_name(job, attempt)).exists()

    def forget(self, job: JobName, attempt: int, at: Instant) -> None:
        """Move an attempt out of what is reported. When it was is the time of its folder."""
        live = self.attempt(job, attempt)
        os.utime(live, ns=(at * NS_PER_MS, at * NS_PER_MS))
        live.rename(self._forgotten / _folder_name(job, attempt))
        sync_folder(str(self._forgotten))
        sync_folder(str(self._live))

    def forgotten_before(self, then: Instant) -> list[Path]:
        """The attempts that were forgotten before a time, in the order of their names. Others may delete them meanwhile."""
        found = []
        with os.scandir(self._forgotten) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat().st_mtime_ns < then * NS_PER_MS:
                        found.append(Path(entry))
        return sorted(found)

    def task_places(self, job: JobName, attempt: int, group: str, index: int) -> tuple[Path, Path]:
        """Where a task may lie: live, then forgotten. To be tried in this order, since it only moves that way."""
        task = Path(_folder_name(job, attempt), task_folder_name(group, index))
        return self._live / task, self._forgotten / task

    def _number(self, name: str) -> int:
        path = self.root / name
        return msgspec.json.decode(path.read_bytes(), type=int) if path.exists() else 0

    def _store(self, name: str, number: int) -> int:
        write_durably(str(self.root / name), str(number))
        return number


def order_name(growth: int) -> str:
    """The file of the order by which an attempt grew; growth 0 is its start."""
    return f"order.{growth}.json" if growth else ORDER


def task_folder_name(group: str, index: int, growth: int = 0) -> str:
    """The folder of a task within its attempt: one for each growth with which it came; the first has its log."""
    name = f"{_as_file_name(group)}.{index}"
    return f"{name}.{growth}" if growth else name


def stop_file(attempt: Path) -> Path:
    """Where the stop order of an attempt lies: where each of its tasks' shims looks for it."""
    return attempt / Path(STOP).name


def _folder_name(job: JobName, attempt: int) -> str:
    return f"{_as_file_name(job)}.{attempt}"


def _as_file_name(name: str) -> str:
    """One path component whatever the name holds: `..` and `a/b` stay inside their folder."""
    return quote(name, safe="").replace(".", "%2E")
