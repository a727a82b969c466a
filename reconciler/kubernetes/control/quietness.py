"""Whether a pass over pods would see anything that the one before did not. Watches wake the loop; this is for the polls between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from reconciler.control.passes import Pass
from reconciler.control.quietness import Rest, due_times, rest_after
from reconciler.kubernetes.control.limits import limit_ends
from reconciler.kubernetes.control.node_health import without_tests
from reconciler.kubernetes.control.plane import PodPlane
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.status.conditions import gathered_at
from reconciler.lifecycle.health.judge import due_times as health_due_times
from solver.model.quantities import Instant

_FOLLOWED: Final = ("start", "grow")
"""What is in flight and goes on by itself: kubelets begin pods, which watches show. All else is for passes to go on with."""
_BEGUN: Final = (names.GANG_PLAN, names.RELEASE)
"""Written on pods of starts that passes finish, or give up."""


class _Quiet(NamedTuple):
    """What else the last pass went by, and for how long it is enough."""

    written: int
    revision: str
    stalled: str
    rest: Rest


class PodQuietness:
    """Of one loop. `begin` and `end` belong around each pass; a look that a watch has woken is not asked about."""

    def __init__(self, plane: PodPlane) -> None:
        self._plane = plane
        self._written = 0
        self._began_s = 0.0
        self._quiet: _Quiet | None = None

    def begin(self) -> None:
        """A pass is about to read."""
        self._quiet = None
        handed = self._plane.handed
        self._written, self._began_s = handed.memory.ledger.written(), handed.clock.monotonic_s()

    def end(self, done: Pass, sight: Sight) -> None:
        """It has gone through. One that did something, or began what is not over, is followed by another."""
        if done.settled or done.refused or done.fault or done.round is not None or self._goes_on(done, sight):
            return
        handed = self._plane.handed
        due = (*due_times(done), *_due_times(done, sight), *self._health_due(done.snapshot.time))
        rest = rest_after(self._began_s, due, handed.clock)
        self._quiet = _Quiet(self._written, done.revision, handed.stalled(), rest)

    def holds(self) -> bool:
        """Whether nothing has changed since, but what watches would have told. Raises StoreUnusableError, NoPolicyError."""
        quiet, handed = self._quiet, self._plane.handed
        return (
            quiet is not None
            and quiet.rest.holds(handed.clock)
            and handed.policies.current().revision == quiet.revision
            and handed.stalled() == quiet.stalled
            and handed.memory.ledger.written() == quiet.written
        )

    def _health_due(self, now: Instant) -> Iterator[Instant]:
        """When a node is not well, or well again, though it says nothing new."""
        policy = self._plane.handed.policies.current().operations.health
        if policy is not None:
            dues = health_due_times(self._plane.handed.health.all(), without_tests(policy))
            yield from (at for at in dues if at > now)

    def _goes_on(self, done: Pass, sight: Sight) -> bool:
        """What only looks does nothing of what its plans say, and says it once."""
        hands = self._plane.hands
        if hands is None:
            return False
        begun = any(not pod.metadata.annotations.keys().isdisjoint(_BEGUN) for pod in sight.pods.noted.values())
        in_flight = done.snapshot.in_flight
        others = any(intent.kind not in _FOLLOWED for intent in sight.intents)
        return bool(begun or others or done.plan.steps or in_flight.repartitions or hands.binder.remembered)


def _due_times(done: Pass, sight: Sight) -> Iterator[Instant]:
    """When something follows from time alone of what pods are: starts that take too long, limits, gangs that have gathered."""
    now = done.snapshot.time
    yield from (intent.deadline for intent in sight.intents if intent.deadline > now)
    for end in limit_ends(sight, done.policy):
        yield from (at for at in (end.told_at, end.over_at) if at > now)
    yield from (
        at for gang in sight.cluster.index.incomplete.values() for at in gathered_at(gang, sight.pods) if at > now
    )
