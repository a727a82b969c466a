"""A file that holds some room on the disk of SQLite, and gives it to the database when that finds the disk full.

So outcomes of jobs can be recorded while a person makes room. It is made again once there is room for logs, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.supervisor.log import is_nearly_full

BYTES_MAX: Final = 16 * 2**20
"""A pass writes some KiB, and a round of 100,000 GPUs a few MiB."""

SHARE: Final = 16
"""Of a small disk it takes no more than this part."""


@dataclass(frozen=True, slots=True)
class DiskReserve:
    """`release` and `refill` may be called at any time, by any thread."""

    path: Path

    def begin(self) -> None:
        """When a process starts: have it, or give its room to the start where that needs it."""
        disk = os.statvfs(self.path.parent)
        if disk.f_bavail * disk.f_frsize < self._size():
            self.release()
        else:
            self.refill()

    def refill(self) -> None:
        """Have it, if it is not there and the disk has room; else later."""
        if self.path.exists() or is_nearly_full(str(self.path.parent)):
            return
        size = self._size()
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(file, 0, size)
        except OSError:  # No room after all, or a file system that sets none aside: what it has got is given back.
            with suppress(FileNotFoundError):
                self.path.unlink()
        finally:
            os.close(file)

    def release(self) -> bool:
        """Give its room to others; False where it has given it already."""
        try:
            self.path.unlink()
        except OSError:
            return False
        return True

    def _size(self) -> int:
        disk = os.statvfs(self.path.parent)
        return min(BYTES_MAX, disk.f_blocks * disk.f_frsize // SHARE)
