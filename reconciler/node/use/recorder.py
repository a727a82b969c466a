"""The thread that samples a node's GPUs, and keeps its minutes until whatever leads has had time to keep them too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread
from typing import Final

from reconciler.model.clock import Clock
from reconciler.model.gpu_use import NodeMinute
from reconciler.node.use.minutes import GpuSample, MinuteAggregator
from reconciler.protocols.backend import BackendUnreachableError
from solver.model.quantities import Duration

KEPT_MINUTES: Final = 90
"""A control plane keeps a node's minutes within the hour (control/gpu_use.py). If it ends before, the next is told them again."""

Read = Callable[[], Iterable[GpuSample]]
"""Ask the GPUs what they did since they were asked last. Raises OSError or BackendUnreachableError where that can't be known."""


class UseRecorder:
    """Call `run` in a thread of its own, or `start`. Threads may share it."""

    def __init__(
        self,
        read: Read,
        every: Callable[[], Duration],
        clock: Clock,
        failed: Callable[[str], None],
        told: Callable[[NodeMinute], None] = lambda _: None,
    ) -> None:
        """`every`: between two samples. `failed`: hears, once until it works again, why nothing is read. `told`: hears minutes."""
        self._read = read
        self._every = every
        self._told = told
        self._clock = clock
        self._failed = failed
        self._minutes = MinuteAggregator()
        self._kept: deque[tuple[int, NodeMinute]] = deque(maxlen=KEPT_MINUTES)
        self._number = 0
        self._lock = Lock()
        self._stopped = Event()
        self._failure = ""

    def start(self) -> None:
        """Sample for as long as this process lives."""
        Thread(target=self.run, name="gpu-use", daemon=True).start()

    def run(self) -> None:
        """Sample until stopped."""
        while not self._stopped.wait(self._every() / 1_000):
            self.look()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()

    def look(self) -> None:
        """Take one sample."""
        try:
            samples, failure = tuple(self._read()), ""
        except (OSError, BackendUnreachableError) as error:
            # Not known is what it is then: the minute has fewer samples, or none.
            samples, failure = (), str(error)
        if failure and failure != self._failure:
            self._failed(failure)
        self._failure = failure
        over = self._minutes.add(self._clock.now(), samples)
        if over is not None:
            with self._lock:
                self._number += 1
                self._kept.append((self._number, over))
            self._told(over)

    def after(self, number: int) -> tuple[tuple[NodeMinute, ...], int]:
        """Minutes that are over, after a number: 0 for all that are kept; and the number to ask with next."""
        with self._lock:
            return tuple(minute for own, minute in self._kept if own > number), self._number
