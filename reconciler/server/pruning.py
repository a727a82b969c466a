"""The thread that deletes records which are old by policy (rounds, placements, capacity, use of GPUs), under the loop's epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Event as Signal

from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.capacity import Capacities
from reconciler.protocols.gpu_use import GpuUses, UseStep
from reconciler.protocols.history import History
from reconciler.protocols.placements import Placements
from solver.model.quantities import Duration, Instant


@dataclass
class Pruning:
    """Call `run` in a thread of its own; `stop` from any. `epoch` gives that of the loop, None while it does not lead."""

    history: History
    placements: Placements
    capacities: Capacities
    gpu_uses: GpuUses
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
        """Delete what is old, piece by piece; nothing without the lead or a policy, and no rounds without a time that it states."""
        epoch = self.epoch()
        try:
            scheduling = self.policies.current().policy.scheduling
            if epoch is None:
                return
            if scheduling.keep_rounds is not None:
                self._prune(self.history.prune_rounds, epoch, scheduling.keep_rounds)
            self._prune(self.placements.prune, epoch, scheduling.keep_placements)
            self._prune(self.capacities.prune, epoch, scheduling.keep_placements)
            use = scheduling.gpu_use
            kept: dict[UseStep, Duration] = {"minute": use.keep_minutes, "hour": use.keep_hours, "day": use.keep_days}
            for step, keep in kept.items():
                self._prune(partial(_prune_use, self.gpu_uses, step), epoch, keep)
        except (NoPolicyError, StaleEpochError):
            return  # the next leader, under whatever policy, looks again

    def _prune(self, prune: Callable[[Epoch, Instant], int], epoch: Epoch, keep: Duration) -> None:
        before = self.clock.now().after(-keep)
        while prune(epoch, before) and not self._stopped.wait(self.apart_s):
            pass


def _prune_use(uses: GpuUses, step: UseStep, epoch: Epoch, before: Instant) -> int:
    return uses.prune(epoch, step, before)
