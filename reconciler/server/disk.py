"""Whether the disks of this server have room: said as a condition and as figures, asked anew each time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.api.payloads import Condition
from reconciler.supervisor.log import is_nearly_full
from solver.model.quantities import Memory

PRESSURE: Final = "DiskPressure"
"""As the condition of a Kubernetes node."""


FOLDER_MISSING: Final = "StateFolderMissing"
"""A folder that the server keeps things in is gone, or can't be asked after."""


@dataclass(frozen=True, eq=False)
class StateDisks(Collector):
    """`folders`: what is kept there, and where."""

    folders: dict[str, Path]

    def conditions(self) -> Iterator[Condition]:
        """One while a disk is nearly full, and one while a folder is missing."""
        full, missing = list[str](), list[str]()
        for what, path in self.folders.items():
            try:
                if is_nearly_full(str(path)):
                    full.append(f"{path} ({what}): {_free(path)} free")
            except OSError as error:
                missing.append(f"{path} ({what}): {error.strerror}")
        if full:
            message = f"{'; '.join(full)}. Output of tasks is dropped until there is room again: free some space"
            yield Condition(PRESSURE, status=True, reason="DiskNearlyFull", message=message)
        if missing:
            message = f"{'; '.join(missing)}. Bring it back (mount it), or stop the server and start it anew"
            yield Condition(FOLDER_MISSING, status=True, reason="CannotBeRead", message=message)

    def collect(self) -> Iterator[Metric]:
        """The room of each folder that is there, and whether that is little."""
        free = GaugeMetricFamily("quorate_disk_free_bytes", "Room on the disk of a folder.", labels=["folder"])
        pressure = GaugeMetricFamily(
            "quorate_disk_nearly_full", "1 while output of tasks is dropped for want of room.", labels=["folder"]
        )
        for what, path in self.folders.items():
            try:
                room, is_little = int(_free(path)), is_nearly_full(str(path))
            except OSError:
                continue  # It has no room to tell of; the condition says so.
            free.add_metric([what], room)
            pressure.add_metric([what], is_little)
        yield free
        yield pressure


def _free(path: Path) -> Memory:
    disk = os.statvfs(path)
    return Memory(disk.f_bavail * disk.f_frsize)
