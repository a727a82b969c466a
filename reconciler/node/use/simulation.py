"""Use of GPUs that are simulated: made up from a seed, the same on every run, and marked as simulated."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator

from reconciler.model.clock import Clock
from reconciler.model.gpu_use import Metric
from reconciler.node.use.minutes import GpuSample
from solver.model.cluster import DeviceId, Node

_LEVEL_MS = 1_800_000
"""So long a GPU keeps a level."""
_JITTER = 0.05


class SimulatedUse:
    """`declared` nodes; GPUs that tasks use (`in_use`) are busy, more or less, and others do nothing."""

    def __init__(
        self,
        declared: Callable[[], Iterable[Node]],
        in_use: Callable[[], Collection[DeviceId]],
        clock: Clock,
        seed: int = 0,
    ) -> None:
        self._declared = declared
        self._in_use = in_use
        self._clock = clock
        self._seed = seed

    def read(self) -> Iterator[GpuSample]:
        """A sample of every GPU; of one that is partitioned nothing is known, as of real ones."""
        now, in_use = self._clock.now(), self._in_use()
        for node in self._declared():
            for gpu in node.gpus:
                if gpu.instances is None:
                    values = self._busy(gpu.id, now) if gpu.id in in_use else _IDLE
                    yield GpuSample(gpu.id, "", "simulated", values)

    def _busy(self, gpu: DeviceId, now: int) -> dict[Metric, float]:
        level = random.Random(f"{self._seed}/{gpu}/{now // _LEVEL_MS}")  # noqa: S311  (no secret)
        active, memory = level.uniform(20, 95), level.uniform(30, 90)
        jitter = random.Random(f"{self._seed}/{gpu}/{now}").gauss(1, _JITTER)  # noqa: S311
        active = min(100.0, max(0.0, active * jitter))
        return {
            "active": active,
            "occupancy": active * 0.6,
            "tensor": active * 0.5,
            "dram": active * 0.4,
            "nvlink": active * 1_000,
            "memory": memory,
        }


_IDLE: dict[Metric, float] = {
    "active": 0.0,
    "occupancy": 0.0,
    "tensor": 0.0,
    "dram": 0.0,
    "nvlink": 0.0,
    "memory": 0.5,
}
