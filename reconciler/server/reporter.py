"""Hears what came of each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.control.job_counts import JobTally
from reconciler.control.lending import without_lenders, without_lent
from reconciler.control.metrics import Metrics
from reconciler.control.passes import Pass
from reconciler.control.runner import Condition, LoopStatus
from reconciler.model.clock import Clock
from reconciler.protocols.rounds import RoundSummary
from solver.model.quantities import Duration
from solver.plan.violation import Violation

_STEP_MIN_S: Final = 1.0
"""What the wall clock may be corrected by between two passes, and nobody needs to know."""

_DECIDES: frozenset[Condition] = frozenset({"leading", "observing"})


@dataclass
class Reporter:
    """Hears what came of each pass: feeds the metrics, and logs when the loop's condition changes, or the clock is set.

    `before`: the newest rounds on record from before this process, newest first.
    """

    metrics: Metrics
    log: FilteringBoundLogger
    clock: Clock
    tally: JobTally = field(default_factory=JobTally)
    trace: Callable[[Pass], None] = lambda _: None
    before: InitVar[Sequence[RoundSummary]] = ()
    _steps: ClockSteps = field(init=False)
    _said: tuple[str, str] = field(default=("", ""))
    _short: frozenset[str] = frozenset()

    def __post_init__(self, before: Sequence[RoundSummary]) -> None:
        self._steps = ClockSteps(self.clock)
        back_s = max((one.time - self.clock.now() for one in before), default=0) / 1_000
        if back_s >= _STEP_MIN_S:
            self._warn_of_step(-back_s)

    def hear(self, status: LoopStatus) -> None:
        """One pass is over."""
        if step_s := self._steps.look_s():
            self._warn_of_step(step_s)
        if status.condition in _DECIDES and status.last is not None:
            last = status.last
            seen, rules = without_lent(last.snapshot), without_lenders(last.policy)
            self.metrics.observe(seen, last.plan, last.phase_ms, last.by_hand, last.shortfalls, rules)
            self.tally.rules(rules)
            if last.is_whole:
                self.tally.foretell(last.plan)
            self.trace(last)
            self._tell_of(last.shortfalls)
            if status.last.fault:
                self.metrics.fault()
        saying = status.condition, status.message
        if saying != self._said:
            self._said = saying
            is_well = status.condition in _DECIDES and not status.message
            say = self.log.info if is_well else self.log.warning
            say(status.condition, **({"message": status.message} if status.message else {}))

    def _warn_of_step(self, step_s: float) -> None:
        way, by = "back" if step_s < 0 else "forward", Duration(round(abs(step_s)) * 1_000)
        message = f"the clock was set {way} by {by}: time limits, waiting times and past use are off by that"
        self.log.warning("clock-stepped", message=message, fix="Keep the clock by NTP (`chronyc tracking`).")

    def _tell_of(self, shortfalls: Iterable[Violation]) -> None:
        """Each job that waits or leaves though it need not is a line, once for as long as that is so."""
        now = {f"{one.rule}/{one.subject}": one for one in shortfalls}
        for name in sorted(now.keys() - self._short):
            self.log.warning("plan-falls-short", kind=now[name].rule, job=now[name].subject, message=now[name].problem)
        self._short = frozenset(now)


class ClockSteps:
    """By how much the wall clock was set, as against the monotonic one, which nobody can set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now, self._monotonic_s = clock.now(), clock.monotonic_s()

    def look_s(self) -> float:
        """How far it was set since the last look, forward or (negative) back; 0: no more than clocks are corrected by."""
        now, monotonic_s = self._clock.now(), self._clock.monotonic_s()
        step_s = (now - self._now) / 1_000 - (monotonic_s - self._monotonic_s)
        self._now, self._monotonic_s = now, monotonic_s
        return step_s if abs(step_s) >= _STEP_MIN_S else 0.0
