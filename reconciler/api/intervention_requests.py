"""What people do by hand: a cordon, a hold, a boost, put in force and ended. On record with who asked, and told to the loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from reconciler.access.policy import BreakGlass
from reconciler.api.payloads import InterventionAsked
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.lifecycle.health.effects import ended
from reconciler.lifecycle.interventions.spans import UnfitEndError, end_of
from reconciler.model.intervention_record import REASON_MAX, Intervention, InterventionKind, Subject
from reconciler.model.problem import did_you_mean
from reconciler.protocols.history import Event
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree

_BEGUN: Final[dict[InterventionKind, str]] = {"cordon": "cordoned", "hold": "held", "boost": "boosted"}
_RELEASED: Final[dict[InterventionKind, str]] = {
    "cordon": "uncordoned",
    "hold": "hold-released",
    "boost": "boost-released",
}
"""Events, by what is done."""


class InterventionRequests:
    """Of one server. Any thread may ask; each request is harmless to repeat. Whether the caller may ask was judged before."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def longest(self) -> Duration:
        """How long anything by hand may last."""
        access = self._services.access()
        return (access.break_glass if access else BreakGlass()).max_duration

    def require(self, kind: InterventionKind, subject: Subject) -> None:
        """Raises RequestRefusedError where there is no such subject, or nothing of this kind can be done about it."""
        match subject.kind:
            case "node":
                self._require_node(subject.name)
            case "queue":
                self._require_queue(subject.name)
            case "job":
                self._require_live(JobName(subject.name))
        if kind == "boost":
            queue = self._services.jobs.job(JobName(subject.name)).spec.queue
            if self.takes_turns(queue):
                message = f"Jobs of queue {queue} take turns: a boost would change nothing."
                raise RequestRefusedError(422, "takes-turns", message, "Hold others that come before it.")

    def takes_turns(self, queue: QueueName) -> bool:
        """Whether the jobs of a queue take turns: then none can be boosted."""
        return ordering_of(QueueTree.of(self._services.policy()[1]), queue).turns is not None

    def refusals(self, asked: InterventionAsked) -> Iterator[RequestRefusedError]:
        """All that is wrong with what was asked for, whatever it is about."""
        for check in (self._end, self._reason):
            try:
                check(asked, self._services.clock.now())
            except RequestRefusedError as error:
                yield error

    def begin(
        self, kind: InterventionKind, subjects: Sequence[Subject], asked: InterventionAsked, user: str
    ) -> tuple[Intervention, ...]:
        """Put it in force about each subject, all until the same time; what is in force of them after that.

        Raises RequestRefusedError; then nothing is done.
        """
        for subject in subjects:
            self.require(kind, subject)
        now = self._services.clock.now()
        until, reason = self._end(asked, now), self._reason(asked, now)
        with self._services.together():
            kept = tuple(
                self._services.interventions.begin(Intervention(kind, subject, user, reason, now, until))
                for subject in subjects
            )
            new = [each for each in kept if each.at == now]
            self._services.history.record_events(
                Event(now, _BEGUN[kind], each.subject.name, f"until {until}: {reason}", user) for each in new
            )
        self._wake(new)
        return kept

    def release(self, kind: InterventionKind, subjects: Iterable[Subject], user: str) -> tuple[Intervention, ...]:
        """End it about each subject, of a node also what its health has closed; returns what was in force.

        Harmless where nothing was, and without effect on what Git says. Raises RequestRefusedError for a subject that there is not.
        """
        now, over, asked = self._services.clock.now(), list[Intervention](), tuple(subjects)
        self._require_any(kind, asked)
        with self._services.together():
            for subject in asked:
                over += self._released(kind, subject, now, user)
            self._services.history.record_events(
                Event(now, _RELEASED[kind], each.subject.name, f"the {each} is over", user) for each in over
            )
        self._wake(over)
        return tuple(over)

    def _released(self, kind: InterventionKind, subject: Subject, now: Instant, user: str) -> Iterator[Intervention]:
        record = self._services.health.forgive(NodeName(subject.name), now) if kind == "cordon" else None
        by_hand = self._services.interventions.release(kind, subject, now, user)
        of_health = None if record is None else ended(record, now, user)
        yield from (each for each in (by_hand, of_health) if each is not None)

    def _end(self, asked: InterventionAsked, now: Instant) -> Instant:
        try:
            return end_of(asked.until, now, self.longest)
        except UnfitEndError as error:
            raise RequestRefusedError(422, "unfit-end", str(error), error.fix) from error

    @staticmethod
    def _reason(asked: InterventionAsked, _: Instant) -> str:
        """In one line."""
        reason = " ".join(asked.reason.split())
        if not 0 < len(reason) <= REASON_MAX:
            fix = "Say what the next operator needs to know."
            raise RequestRefusedError(422, "no-reason", f"A reason has 1 to {REASON_MAX} characters.", fix)
        return reason

    def _require_node(self, node: str) -> None:
        known = [declared.name for declared in self._services.snapshot().nodes]
        if node not in known:
            fix = did_you_mean(node, known) or "List the nodes to see their names."
            raise RequestRefusedError(404, "unknown-node", f"There is no node {node}.", fix)

    def _require_queue(self, queue: str) -> None:
        known = [each.name for each in self._services.policy()[1].queues]
        if queue not in known:
            fix = did_you_mean(queue, known) or "List the queues to see their names."
            raise RequestRefusedError(404, "unknown-queue", f"There is no queue {queue}.", fix)

    def _require_live(self, name: JobName) -> None:
        if self._services.jobs.job(name).outcome is not None:
            fix = "There is nothing left to do about it."
            raise RequestRefusedError(422, "job-ended", f"Job {name} has ended.", fix)

    def _require_any(self, kind: InterventionKind, subjects: Iterable[Subject]) -> None:
        """Raises RequestRefusedError for what is not there, and was not before: of what is lost, something may be in force."""
        known = {each.subject for each in self._services.interventions.in_force() if each.kind == kind}
        if kind == "cordon":
            known |= {Subject("node", each.node) for each in self._services.health.all()}
        for subject in subjects:
            if subject.kind != "job" and subject not in known:
                self.require(kind, subject)

    def _wake(self, changed: Sequence[Intervention]) -> None:
        """Let the loop know, once it is on record."""
        if changed:
            self._services.wake()
