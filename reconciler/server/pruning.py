"""The thread that deletes rounds which the policy says are old, beside the loop and under its epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event as Signal

from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.history import History


@dataclass
class Pruning:
    """Call `run` in a thread of its own; `stop` from any. `epoch` gives that of the loop, None while it does not lead."""

    history: History
    policies: PolicySource
    clock: Clock
    epoch: Callable[[], Epoch | None]
    every_s: float = 600.0
    apart_s: float = 0.2
    """Between two pieces: writers come one after the other, and the loop is one of them."""
    _stopped: Signal = field(default_factory=Signal)

    def run(self) -> None:
        """Look until stopped. Raises StoreUnusableError."""
        while not self._stopped.wait(self.every_s):
            self.look()

    def stop(self) -> None:
        """Let `run` return after the piece that is being deleted."""
        self._stopped.set()

    def look(self) -> None:
        """Delete what is old, piece by piece; nothing without the lead, a policy, or a time that it states."""
        epoch = self.epoch()
        try:
            keep = self.policies.current().policy.scheduling.keep_rounds
            if epoch is None or keep is None:
                return
            before = self.clock.now().after(-keep)
            while self.history.prune_rounds(epoch, before) and not self._stopped.wait(self.apart_s):
                pass
        except (NoPolicyError, StaleEpochError):
            return  # the next leader, under whatever policy, looks again
