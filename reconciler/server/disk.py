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


@dataclass(frozen=True, eq=False)
class StateDisks(Collector):
    """`folders`: what is kept there, and where."""

    folders: dict[str, Path]

    def conditions(self) -> Iterator[Condition]:
        """One, while a disk is nearly full."""
        full = [
            f"{path} ({what}): {_free(path)} free" for what, path in self.folders.items() if is_nearly_full(str(path))
        ]
        if full:
            message = f"{'; '.join(full)}. Output of tasks is dropped until there is room again: free some space"
            yield Condition(PRESSURE, status=True, reason="DiskNearlyFull", message=message)

    def collect(self) -> Iterator[Metric]:
        """The room of each folder, and whether that is little."""
        free = GaugeMetricFamily("quorate_disk_free_bytes", "Room on the disk of a folder.", labels=["folder"])
        pressure = GaugeMetricFamily(
            "quorate_disk_nearly_full", "1 while output of tasks is dropped for want of room.", labels=["folder"]
        )
        for what, path in self.folders.items():
            free.add_metric([what], int(_free(path)))
            pressure.add_metric([what], is_nearly_full(str(path)))
        yield free
        yield pressure


def _free(path: Path) -> Memory:
    disk = os.statvfs(path)
    return Memory(disk.f_bavail * disk.f_frsize)
