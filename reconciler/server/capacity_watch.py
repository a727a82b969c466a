"""The thread that puts on record that a leader is there to see what GPUs there are: where none is, changes are seen late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event as Signal

from reconciler.control.capacity import WATCH_GAP
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.capacity import Capacities


@dataclass
class CapacityWatch:
    """Call `run` in a thread of its own; `stop` from any. `epoch` gives that of the loop, None while it does not lead."""

    capacities: Capacities
    clock: Clock
    epoch: Callable[[], Epoch | None]
    every_s: float = 60.0
    _stopped: Signal = field(default_factory=Signal)

    def run(self) -> None:
        """Say so until stopped. Raises StoreUnusableError."""
        while not self._stopped.wait(self.every_s):
            self.look()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()

    def look(self) -> None:
        """Say so once; nothing without the lead."""
        epoch = self.epoch()
        if epoch is not None:
            try:
                self.capacities.watch(epoch, self.clock.now(), WATCH_GAP)
            except StaleEpochError:
                return  # the next leader says so
