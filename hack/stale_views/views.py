"""The way back from a simulated cluster, on which views are late, older than the one before, or have holes."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Collection
from typing import Final, Literal, get_args

import msgspec

from hack.watched_backend import OrdersPassedOn
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Backend, BackendChanges, Cursor
from solver.model.quantities import Duration, Instant

Staleness = Literal["lags", "back", "misses"]
"""Of views: each is as old as the window says; they go back once, and on from there; tasks and nodes are left out of them."""
KINDS: tuple[Staleness, ...] = get_args(Staleness)
WINDOWS_MS: Final = (5_000, 40_000)
OLDEST_MS: Final = 60_000
HONEST_SHARE: Final = 0.25
MISSED: Final = 0.3


class StaleViews(OrdersPassedOn):
    """Implements Backend over another, with windows of one kind of staleness until `until`. `befell` counts views by their kind.

    What is missed in one window stays missed for all of it, as where the event of it was lost. A view is never made up.
    """

    def __init__(self, real: Backend, clock: Clock, seed: int, until: Instant, kinds: Collection[Staleness]) -> None:
        self.befell: Counter[str] = Counter()
        super().__init__(real)
        self._clock, self._until = clock, until
        self._chance = random.Random(f"stale views {seed}")
        self._kinds = sorted(kinds)
        self._seen: deque[tuple[Instant, BackendChanges]] = deque()
        self._window: tuple[Instant, Staleness | None, int] = (Instant(0), None, 0)

    def changes(self, since: Cursor) -> BackendChanges:
        """What is seen now: not always what is so."""
        view, now = self._real.changes(Cursor(0)), self._clock.now()
        self._seen.append((now, view))
        while self._seen[0][0] < now.after(-OLDEST_MS):
            self._seen.popleft()
        kind, number = self._kind(now)
        if kind is None or now >= self._until:
            return self._real.changes(since)
        self.befell[kind] += 1
        return self._without_some(view, number) if kind == "misses" else self._older(now, kind, number)

    def _kind(self, now: Instant) -> tuple[Staleness | None, int]:
        ends, kind, number = self._window
        if now >= ends:
            honest = not self._kinds or self._chance.random() < HONEST_SHARE
            kind, number = None if honest else self._chance.choice(self._kinds), self._chance.randrange(2**30)
            self._window = now.after(self._chance.randint(*WINDOWS_MS)), kind, number
        return kind, number

    def _older(self, now: Instant, kind: Staleness, number: int) -> BackendChanges:
        """Of a window that lags the newest that is so old; of one that goes back any, from which it goes on at half the pace."""
        by = random.Random(number).randint(1_000, OLDEST_MS // 2)
        if kind == "back":
            by = Duration((self._window[0] - now) // 2 + by)
        before = [view for at, view in self._seen if at <= now.after(-by)]
        return before[-1] if before else self._seen[0][1]

    def _without_some(self, view: BackendChanges, number: int) -> BackendChanges:
        def there(*of: object) -> bool:
            return random.Random(f"{number} {of}").random() >= MISSED

        tasks = tuple(task for task in view.tasks if there(task.job, task.attempt, task.index))
        # A backend says late what is so, and nothing that contradicts it: no stop is seen before how the tasks ended.
        unseen = {(task.job, task.attempt) for task in view.tasks if task not in tasks}
        return msgspec.structs.replace(
            view,
            tasks=tasks,
            stopped=tuple(stop for stop in view.stopped if (stop.job, stop.attempt) not in unseen),
            nodes=tuple(node for node in view.nodes if there(node.name)),
        )
