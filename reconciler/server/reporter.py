"""Hears what came of each pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from reconciler.control.metrics import Metrics
from reconciler.control.runner import Condition, LoopStatus

_DECIDES: frozenset[Condition] = frozenset({"leading", "observing"})


@dataclass
class Reporter:
    """Hears what came of each pass: feeds the metrics, and logs when the loop's condition changes."""

    metrics: Metrics
    log: FilteringBoundLogger
    _said: tuple[str, str] = field(default=("", ""))

    def hear(self, status: LoopStatus) -> None:
        """One pass is over."""
        if status.condition in _DECIDES and status.last is not None:
            self.metrics.observe(status.last.snapshot, status.last.plan, status.last.phase_ms, status.last.by_hand)
            if status.last.fault:
                self.metrics.fault()
        saying = status.condition, status.message
        if saying != self._said:
            self._said = saying
            is_well = status.condition in _DECIDES and not status.message
            say = self.log.info if is_well else self.log.warning
            say(status.condition, **({"message": status.message} if status.message else {}))
