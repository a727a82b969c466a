"""Hears what came of each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.control.clock_steps import STEP_MIN_S, ClockSteps
from reconciler.control.job_counts import JobTally
from reconciler.control.lending import without_lenders, without_lent
from reconciler.control.metrics import Metrics
from reconciler.control.passes import Pass
from reconciler.control.runner import Condition, LoopStatus
from reconciler.model.clock import Clock
from reconciler.model.cluster_clock import SLEW, ClusterClock
from reconciler.protocols.rounds import RoundSummary
from solver.model.quantities import Duration
from solver.plan.violation import Violation

_COMES_NEARER: Final = f"what runs and waits counts on as time passes, and comes nearer to it by {SLEW:.0%} of that"
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
    _wall: Clock | None = field(init=False)
    """Which `clock` comes nearer to; None: it is one itself."""
    _steps: ClockSteps = field(init=False)
    _said: tuple[str, str] = field(default=("", ""))
    _short: frozenset[str] = frozenset()

    def __post_init__(self, before: Sequence[RoundSummary]) -> None:
        self._wall = self.clock.wall if isinstance(self.clock, ClusterClock) else None
        self._steps = ClockSteps(self._wall or self.clock)
        if self._wall is not None and abs(ahead_ms := self._wall.now() - self.clock.now()) >= STEP_MIN_S * 1_000:
            way, by = "behind" if ahead_ms < 0 else "ahead of", Duration(round(abs(ahead_ms), -3))
            self._warn(f"the clock is {by} {way} the time that jobs counted by before: {_COMES_NEARER}")
        back_s = max((one.time - self.clock.now() for one in before), default=0) / 1_000
        if back_s >= STEP_MIN_S:
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
        follows = _COMES_NEARER if self._wall else "time limits, waiting times and past use are off by that"
        self._warn(f"the clock was set {way} by {by}: {follows}")

    def _warn(self, message: str) -> None:
        self.log.warning("clock-stepped", message=message, fix="Keep the clock by NTP (`chronyc tracking`).")

    def _tell_of(self, shortfalls: Iterable[Violation]) -> None:
        """Each job that waits or leaves though it need not is a line, once for as long as that is so."""
        now = {f"{one.rule}/{one.subject}": one for one in shortfalls}
        for name in sorted(now.keys() - self._short):
            self.log.warning("plan-falls-short", kind=now[name].rule, job=now[name].subject, message=now[name].problem)
        self._short = frozenset(now)
