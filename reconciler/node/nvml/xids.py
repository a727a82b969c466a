"""Hears what errors the driver reports of GPUs, and keeps the newest until they are reported."""

from __future__ import annotations

from collections import defaultdict, deque
from threading import Event, Lock, Thread
from typing import Final

from reconciler.model.clock import Clock
from reconciler.model.facts import Xid
from reconciler.node.nvml.driver import Driver, DriverError, GpuUuid

KEPT: Final = 32
"""Of each GPU. One that fails can report thousands; what is wrong with it is among the last ones."""


class XidWatch:
    """A thread that waits for them. What was before `start`, or while it did not listen, is in the kernel's log alone."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._heard: dict[GpuUuid, deque[Xid]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._lock = Lock()
        self._stopped = Event()
        self._thread = Thread(target=self._listen, name="xids", daemon=True)
        self.failure = ""
        """Why nothing is heard any more; "" while it is."""

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """End; returns within the second in which a wait ends."""
        self._stopped.set()
        self._thread.join()

    def heard(self, gpu: GpuUuid) -> tuple[Xid, ...]:
        """The last ones of a GPU since `start`, oldest first."""
        with self._lock:
            return tuple(self._heard.get(gpu, ()))

    def _listen(self) -> None:
        try:
            self._driver.listen(self._stopped, self._note)
        except DriverError as error:
            self.failure = str(error)

    def _note(self, gpu: GpuUuid, number: int) -> None:
        with self._lock:
            self._heard[gpu].append(Xid(number, self._clock.now()))
