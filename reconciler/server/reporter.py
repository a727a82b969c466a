"""Hears what came of each pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from reconciler.control.lending import without_lent
from reconciler.control.metrics import Metrics
from reconciler.control.runner import Condition, LoopStatus
from solver.plan.violation import Violation

_DECIDES: frozenset[Condition] = frozenset({"leading", "observing"})


@dataclass
class Reporter:
    """Hears what came of each pass: feeds the metrics, and logs when the loop's condition changes."""

    metrics: Metrics
    log: FilteringBoundLogger
    _said: tuple[str, str] = field(default=("", ""))
    _short: frozenset[str] = frozenset()

    def hear(self, status: LoopStatus) -> None:
        """One pass is over."""
        if status.condition in _DECIDES and status.last is not None:
            last = status.last
            self.metrics.observe(without_lent(last.snapshot), last.plan, last.phase_ms, last.by_hand, last.shortfalls)
            self._tell_of(last.shortfalls)
            if status.last.fault:
                self.metrics.fault()
        saying = status.condition, status.message
        if saying != self._said:
            self._said = saying
            is_well = status.condition in _DECIDES and not status.message
            say = self.log.info if is_well else self.log.warning
            say(status.condition, **({"message": status.message} if status.message else {}))

    def _tell_of(self, shortfalls: Iterable[Violation]) -> None:
        """Each job that waits or leaves though it need not is a line, once for as long as that is so."""
        now = {f"{one.rule}/{one.subject}": one for one in shortfalls}
        for name in sorted(now.keys() - self._short):
            self.log.warning("plan-falls-short", kind=now[name].rule, job=now[name].subject, message=now[name].problem)
        self._short = frozenset(now)
