"""Settles beside a round what happens while it is decided, as the next pass would first of all.

A round of a large cluster takes seconds. Meanwhile gangs are cancelled, begin to run, end and fail, nodes are not well any more,
and people do something by hand. What follows is put on record, then told, by the same decisions as in a pass. The round may want
something else of such a gang; the ledger refuses it, or knows the stop already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Final

from reconciler.control.control import ControlPlane, NoPolicyError
from reconciler.control.interventions import InterventionController
from reconciler.control.node_health import Ward
from reconciler.control.partition import GpuPartitioner
from reconciler.control.plan_executor import PlanExecutor
from reconciler.control.settler import Settler
from reconciler.lifecycle.health.effects import drained_places
from reconciler.lifecycle.health.signs import signs_of
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.device_readiness import gpus_of
from reconciler.lifecycle.jobs.gang_stop import asked_by_people
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.backend import BackendChanges, BackendUnreachableError, Epoch, StaleEpochError
from reconciler.protocols.store_errors import StoreFullError, StoreUnreachableError
from solver.model.workload import JobName

POLL_S: Final = 0.1
"""Between two looks at what the backend reports. A round that is decided sooner is followed by a pass that looks."""

REST_PER_LOOK: Final = 9
"""So many times what a look took is the rest after it, up to REST_S_MAX: about a tenth of one CPU at most goes into looking."""

REST_S_MAX: Final = 2.0


class EventSettler:
    """Call `run` in a thread of its own; `tell` and `stop` from any; the loop calls `follow` and `hold`.

    `epoch` gives that of the loop, None before it led. `ended` hears which gangs hold nothing any more.
    """

    def __init__(
        self,
        plane: ControlPlane,
        epoch: Callable[[], Epoch | None],
        ended: Callable[[Collection[JobName]], None] = lambda _: None,
    ) -> None:
        self._plane, self._epoch, self._ended = plane, epoch, ended
        self._asked: SimpleQueue[Collection[JobName] | None] = SimpleQueue()
        self._lock = Lock()
        self._seen: BackendReports | None = None
        self._by_hand: tuple[Intervention, ...] = ()
        self._rest_s = POLL_S

    def tell(self, jobs: Collection[JobName]) -> None:
        """It is on record that these are to end."""
        self._asked.put(tuple(jobs))

    def stop(self) -> None:
        """Let `run` return after what is under way."""
        self._asked.put(None)

    def follow(self, seen: BackendReports) -> None:
        """A round is decided from here on, in a world in which the backend had reported this."""
        with self._lock:
            self._seen, self._by_hand = seen, self._plane.interventions.in_force()
        self.tell(())

    def hold(self) -> None:
        """The loop settles by itself from here on. Waits for what is under way."""
        with self._lock:
            self._seen = None

    def run(self) -> None:
        """Settle what is told and what is reported until stopped. Raises StoreUnusableError.

        Nothing is lost where it can't be done: the next pass, of whichever leads, sees all of it again.
        """
        while (names := self._next()) is not None:
            clock = self._plane.clock
            began_s = clock.monotonic_s()
            try:
                self.cancel(names)
                self.settle()
            except (
                StaleEpochError,
                NoPolicyError,
                StoreFullError,
                StoreUnreachableError,
                BackendUnreachableError,
            ):
                continue
            finally:
                self._rest_s = min(REST_S_MAX, max(POLL_S, REST_PER_LOOK * (clock.monotonic_s() - began_s)))

    def _next(self) -> Collection[JobName] | None:
        """What is told, as soon as anything is; nothing once it is time to look; None once stopped."""
        together = set[JobName]()
        try:
            names = self._asked.get(timeout=None if self._seen is None else self._rest_s)
            while names is not None:
                together |= {*names}
                names = self._asked.get_nowait()
        except Empty:
            return together
        if together:
            self._asked.put(None)
        return together or None

    def cancel(self, names: Collection[JobName]) -> None:
        """Ask those of the jobs to stop that hold devices and were not asked yet. Raises what the store does, StaleEpochError."""
        epoch, plane = self._epoch(), self._plane
        if epoch is None or not names:
            return
        holds = plane.ledger.of(names)
        stopping = {(intent.job, intent.attempt) for intent in holds.intents if intent.kind == "stop"}
        wanted = []
        for record in plane.jobs.named(names).values():
            claim = holds.claims.get(record.name)
            if claim is None or record.outcome is not None or not record.cancel_requested_by:
                continue
            asked = asked_by_people(record, claim)
            if asked is not None and (claim.job, claim.attempt) not in stopping:
                wanted.append(asked)
        Settler(plane, epoch).apply_all(wanted)

    def settle(self) -> None:
        """Settle what the backend has reported and people have done since the loop looked, if it decides a round now.

        Raises as `cancel`, NoPolicyError, BackendUnreachableError.
        """
        with self._lock:
            epoch = None if self._seen is None else self._epoch()
            gone = () if epoch is None or self._seen is None else self._settled(epoch, self._seen)
        if gone:
            self._ended(gone)

    def _settled(self, epoch: Epoch, before: BackendReports) -> tuple[JobName, ...]:
        plane, leader = self._plane, PlanExecutor(self._plane, epoch)
        _, policy, declared, operations = plane.policies.current()
        by_hand = plane.interventions.in_force()
        if by_hand != self._by_hand:
            InterventionController(plane, epoch).settle(policy, declared)
            self._by_hand = plane.interventions.in_force()
        changes = plane.backend.changes(before.cursor)
        self._seen = seen = before.after(changes)
        names = {job for job, _ in BackendReports.of(changes).attempts}
        if operations.health is not None and _is_unwell(changes, seen, operations.health):
            Ward(plane, epoch).settle(seen, operations.health, declared)
            names |= self._drained()
        if changes.partitioned:
            GpuPartitioner(plane, epoch).settle(seen)
        if not names:
            return ()
        leader.accrue(policy, declared)
        return leader.settle_some(names, seen, operations, declared)

    def _drained(self) -> set[JobName]:
        """The jobs that hold something which is to be left."""
        drained = drained_places(self._plane.health.all())
        if not drained:
            return set()
        return {
            claim.job
            for claim in self._plane.ledger.claims()
            if any(task.node in drained or gpus_of((task,)) & drained.keys() for task in claim.tasks)
        }


def _is_unwell(changes: BackendChanges, seen: BackendReports, policy: HealthPolicy) -> bool:
    """Whether anything speaks against a node of which something new is told. That one is well again is left to passes."""
    told = {*(node.name for node in changes.nodes), *(facts.node for facts in changes.facts)}
    return any(any(signs_of(seen.nodes.get(name), seen.facts.get(name), (), policy)) for name in told)
