"""The thread that works out how budgets stand, and puts on record where one reaches a part of which alerts are to be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event as Signal
from typing import Final

from reconciler.analysis.showback.budgets import Paths, SpendingRecords, standings
from reconciler.control.control import NoPolicyError, PolicyInForce, PolicySource
from reconciler.model.budget import BudgetStanding, GpuBudget
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event, History
from solver.policy.tree import QueueTree

PART: Final = 0.05
"""Of one core, so much at most goes into it: in a large cluster a month takes seconds to add up."""
_EVENTS_MAX: Final = 200


@dataclass
class BudgetWatch:
    """Call `run` in a thread of its own; `stop` from any. `epoch` gives that of the loop, None while it does not lead.

    `changed` hears that jobs may be held back, or may start, that were not or might not before.
    """

    records: SpendingRecords
    history: History
    policies: PolicySource
    clock: Clock
    epoch: Callable[[], Epoch | None]
    changed: Callable[[], None]
    holder: str
    every_s: float = 60.0
    _latest: tuple[BudgetStanding, ...] = ()
    _stopped: Signal = field(default_factory=Signal)

    def standings(self) -> tuple[BudgetStanding, ...]:
        """As they were found last, of budgets whose period goes on; () before that. Any thread may ask."""
        now = self.clock.now()
        return tuple(known for known in self._latest if known.end > now)

    def run(self) -> None:
        """Look until stopped. Raises StoreUnusableError."""
        rest_s = 0.0
        while not self._stopped.wait(rest_s):
            began_s = self.clock.monotonic_s()
            self.look()
            rest_s = max(self.every_s if self._latest else 1.0, (self.clock.monotonic_s() - began_s) / PART)

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()

    def look(self) -> None:
        """Work them out, and tell what is new; nothing before there is a policy."""
        try:
            current = self.policies.current()
        except NoPolicyError:
            return
        budgets = current.operations.budgets
        before, self._latest = self._latest, self._found(current, budgets) if budgets else ()
        for budget, known in zip(budgets, self._latest, strict=True):
            self._tell(budget, known)
        if _effects(before) != _effects(self._latest):
            self.changed()

    def _found(self, current: PolicyInForce, budgets: tuple[GpuBudget, ...]) -> tuple[BudgetStanding, ...]:
        tree = QueueTree.of(current.policy)
        paths: Paths = {queue.name: tree.path(queue.name) for queue in current.policy.queues}
        default, rates = current.policy.scheduling.default_priority_class, current.operations.rates
        found = standings(
            budgets, paths, lambda start, end: self.records.charges(rates, default, start, end), self.clock.now()
        )
        return tuple(found)

    def _tell(self, budget: GpuBudget, known: BudgetStanding) -> None:
        """The highest part that is reached and was not told in this period, by whichever control plane."""
        reached = max((part for part in budget.alert_at if known.percent >= part), default=0)
        if not reached or self.epoch() is None:
            return
        told = (
            event.attempt
            for event in self.history.events(_subject(budget), _EVENTS_MAX)
            if event.kind == "budget" and event.time >= known.start
        )
        if reached > max(told, default=0):
            cause = f"{reached} % reached: {known} ({known.origin})"
            event = Event(self.clock.now(), "budget", _subject(budget), cause, self.holder, attempt=reached)
            self.history.record_event(event)


def _subject(budget: GpuBudget) -> str:
    """No job's name has a colon."""
    return f"budget:{budget.name}"


def _effects(standings: tuple[BudgetStanding, ...]) -> Mapping[str, str]:
    return {known.budget: known.when_spent for known in standings if known.is_spent}
