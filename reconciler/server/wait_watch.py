"""The thread that puts on record which jobs wait for too long, for the thresholds that AlertPolicies name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Event as Signal
from typing import Final

from reconciler.alerts.kinds import ABOUT_WAITS, AlertKind
from reconciler.analysis.capacity.alarms import Alarm, WaitAlarms
from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.control.passes import Pass
from reconciler.model.clock import Clock
from reconciler.protocols.history import Event, History
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Plan, Waits

_EVENTS_MAX: Final = 200


@dataclass
class WaitWatch:
    """Call `run` in a thread of its own; `stop` from any. `leads`: whether the loop does.

    `last`: the newest pass, None before there is one. What a job was told first is known from when this began.
    """

    history: History
    policies: PolicySource
    clock: Clock
    leads: Callable[[], bool]
    last: Callable[[], Pass | None]
    holder: str
    every_s: float = 30.0
    _foretold: dict[JobName, Instant] = field(default_factory=dict)
    _told: set[tuple[str, str, Duration]] = field(default_factory=set)
    _stopped: Signal = field(default_factory=Signal)

    def run(self) -> None:
        """Look until stopped. Raises StoreUnusableError."""
        while not self._stopped.wait(self.every_s):
            self.look()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()

    def look(self) -> None:
        """Tell what is new; nothing before there is a policy and a pass, or without the lead."""
        last = self.last()
        try:
            alerts = self.policies.current().operations.alerts
        except NoPolicyError:
            return
        if last is None:
            return
        if last.is_whole:
            self._foretell(last.plan)
        thresholds = {
            kind: {policy.after.of(kind) for policy in alerts if policy.enabled and kind in policy.on}
            for kind in ABOUT_WAITS
        }
        if self.leads() and any(thresholds.values()):
            waiting = WaitAlarms(last.snapshot, last.plan, last.policy, self.clock.now())
            self._record(list(self._alarms(waiting, thresholds)))

    def _foretell(self, plan: Plan) -> None:
        """What each waiting job is told, where it was told nothing before."""
        waits = [one for one in plan.verdicts if isinstance(one, Waits)]
        before = self._foretold
        self._foretold = {one.job: before[one.job] for one in waits if one.job in before}
        for one in waits:
            if isinstance(one.estimate, EarliestStart):
                self._foretold.setdefault(one.job, one.estimate.at)

    def _alarms(self, waiting: WaitAlarms, thresholds: dict[AlertKind, set[Duration]]) -> Iterator[Alarm]:
        if thresholds["capacity"]:
            yield from waiting.short(thresholds["capacity"])
        if thresholds["forecast-missed"]:
            yield from waiting.overdue(self._foretold, thresholds["forecast-missed"])
        if thresholds["guarantee-not-met-for"]:
            yield from waiting.unserved(thresholds["guarantee-not-met-for"])
        if thresholds["finish-by-at-risk"]:
            yield from waiting.at_risk()

    def _record(self, alarms: Iterable[Alarm]) -> None:
        """Once for as long as it is so, by whichever control plane."""
        still = set[tuple[str, str, Duration]]()
        for alarm in alarms:
            known = (alarm.kind, alarm.subject, alarm.after)
            still.add(known)
            if known not in self._told and not self._is_on_record(alarm):
                cause, after = alarm.cause, str(alarm.after)
                event = Event(self.clock.now(), alarm.kind, alarm.subject, cause, self.holder, purpose=after)
                self.history.record_event(event)
        self._told = still

    def _is_on_record(self, alarm: Alarm) -> bool:
        return any(
            event.kind == alarm.kind and event.purpose == str(alarm.after) and event.time >= alarm.since
            for event in self.history.events(alarm.subject, _EVENTS_MAX)
        )
