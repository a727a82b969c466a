"""One claim with everything that is known of it: which tasks of the gang stay, join and leave, and why it is to stop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.lifecycle.jobs.device_readiness import UNKNOWN, DeviceReadiness
from reconciler.lifecycle.jobs.evidence import NO_EVIDENCE, Evidence
from reconciler.lifecycle.jobs.idle_rules import RunningTasks, limit_is_over
from reconciler.lifecycle.jobs.idleness import activity_of
from reconciler.model.failure import Failure
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import Activity
from reconciler.protocols.ledger import Claim
from solver.model.inflight import Intent, IntentKind
from solver.model.quantities import Duration, Instant
from solver.model.workload import TaskPlacement

CLOCKS_AGREE_WITHIN: Final = Duration(1_000)
"""Clocks that NTP keeps in step differ by less. What a node tells that is further off is not what the leader's clock said then."""


@dataclass(frozen=True)
class ClaimContext:
    """One claim with its intents and what the backend reports of its attempt. What is asked again and again is worked out once."""

    record: JobRecord
    claim: Claim
    intents: tuple[Intent, ...]
    attempt: AttemptReport
    now: Instant
    ground: DeviceReadiness = UNKNOWN
    evidence: Evidence = NO_EVIDENCE

    @property
    def stopping(self) -> bool:
        """It has been asked to stop."""
        return self.stop is not None

    @cached_property
    def stop(self) -> Intent | None:
        """What was asked for when it was asked to stop."""
        return self.asked("stop")

    @property
    def leaving(self) -> tuple[TaskPlacement, ...]:
        """Tasks that were asked to leave, and are its own until they have: how they end says nothing of the job."""
        shrink = self.asked("shrink")
        return shrink.tasks if shrink else ()

    @property
    def joining(self) -> tuple[TaskPlacement, ...]:
        """Tasks by which it grows, without those that are to leave before they have joined."""
        grow = self.asked("grow")
        return without(grow.tasks, self.leaving) if grow else ()

    @cached_property
    def staying(self) -> tuple[TaskPlacement, ...]:
        """The tasks by which the job is judged."""
        return without(self.claim.tasks, self.leaving)

    @cached_property
    def stays(self) -> AttemptReport:
        """What is known of those."""
        return self._known(self.staying)

    @cached_property
    def judged(self) -> tuple[TaskPlacement, ...]:
        """Of those, the ones that end the job: where a launcher has begun, the launcher alone."""
        by = self.stays.launched_by(self.record.spec)
        return tuple(task for task in self.staying if not by or task.group == by)

    @property
    def ended_well(self) -> bool:
        """All of these have."""
        return self._known(self.judged).all_succeeded(self.judged)

    @property
    def is_over(self) -> bool:
        """No task runs or ever will."""
        tasks = self.claim.tasks
        known = self.stays if self.staying is tasks else self._known(tasks)
        return known.is_over(tasks)

    @property
    def is_service(self) -> bool:
        """Its replicas are each of their own: how one ends says nothing of the job."""
        return self.record.spec.type == "service"

    @property
    def goes_on(self) -> bool:
        """Some task runs or may yet; of a service that is not ended, those that have ended are started again."""
        ended = self.stopping or self.record.outcome is not None or self.attempt.stopped
        return not self.is_over or (self.is_service and not ended)

    @property
    def has_left(self) -> bool:
        """Every task that was asked to leave has, for good."""
        return self._known(self.leaving).have_left(self.leaving)

    @property
    def limit_reached(self) -> bool:
        """It has run for as long as it may."""
        reached_at = self.claim.limit_reached_at
        return reached_at is not None and reached_at <= self.now

    @property
    def timed_out(self) -> bool:
        """It was asked to stop because of its limit: then, and before any task had failed or all had ended by themselves."""
        reached_at = self.claim.limit_reached_at
        if self.stop is None or reached_at is None or self.stop.asked_at < reached_at:
            return False
        return self.is_service or self._ended_by(self.stop)

    @property
    def activity(self) -> Activity | None:
        """What is known of all its tasks together; None: it does not run yet, or too little is known."""
        since = self.claim.running_since
        return None if since is None else activity_of(self.stays, self.staying, since)

    @property
    def idle_limit_reached(self) -> bool:
        """It has done nothing for as long as it may."""
        gpus, running = self.evidence.gpus_of_limits.get((self.claim.job, self.claim.attempt)), self.running
        return running is not None and limit_is_over(running, gpus)

    @property
    def running(self) -> RunningTasks | None:
        """What is judged of a gang that runs; None: it does not run yet."""
        since = self.claim.running_since
        if since is None:
            return None
        return RunningTasks(self.record, self.claim, self.staying, self.stays, since, self.now)

    @property
    def unwatched(self) -> bool:
        """It matters whether it does anything, and of some running task it is not known what it does."""
        matters = self.claim.idle_limit is not None or self.record.spec.stuck is not None
        silent = any(task.state == "running" and task.activity is None for task in self.stays.tasks)
        return matters and silent

    @property
    def culled(self) -> bool:
        """It was asked to stop because it was idle, and that ended it."""
        return self.stop is not None and self.stop.purpose == "cull" and self._ended_by(self.stop)

    @property
    def ended_stuck(self) -> bool:
        """It was asked to stop because it was stuck, and that ended it."""
        return self.stop is not None and self.stop.purpose == "stuck" and self._ended_by(self.stop)

    @property
    def sent_back(self) -> bool:
        """It was asked to leave and go on later, and that ended it: no task had failed before, and some task did not end well.

        A backend reports a task that ends after its stop arrived as stopped. One that succeeded was faster than that.
        """
        if self.stop is None or not self.stop.sends_back or self.ended_well:
            return False
        return not self._had_failed(self.stop)

    @property
    def groundless(self) -> bool:
        """Nothing of it has begun, and what it was bound to is not there and will not be: a GPU was not partitioned for it."""
        begun = self.claim.running_since is not None or self.attempt.tasks
        return not begun and self.ground.under(self.claim.tasks) == "missing"

    def _ended_by(self, stop: Intent) -> bool:
        """Before it was asked to stop no task had failed, nor had all ended well by themselves."""
        if self.ended_well and all(task.at < stop.asked_at for task in self._known(self.judged).tasks):
            return False
        return not self._had_failed(stop)

    def _had_failed(self, stop: Intent) -> bool:
        """Before it was asked to stop a task had failed, and the gang did not go on all the same."""
        culprit = self._known(self.judged).culprit
        if culprit is None or self.outlived(culprit.at) is not None:
            return False
        # What failed before it was claimed did so by a wrong clock. At the latest look before the stop it had not.
        return self.claim.since.after(-CLOCKS_AGREE_WITHIN) <= culprit.at < stop.asked_at

    def when(self, told: Instant) -> Instant:
        """What a node told as the time of something of this attempt, if that can be; else now, when it is seen.

        It goes by the node's clock, which may be wrong: then it lies before the claim, or is still to come.
        """
        can_be = self.claim.since.after(-CLOCKS_AGREE_WITHIN) <= told <= self.now.after(CLOCKS_AGREE_WITHIN)
        return told if can_be else self.now

    def outlived(self, at: Instant) -> Failure | None:
        """What is on record of a failure at that instant which the attempt goes on after."""
        attempt = self.claim.attempt
        failures = (failure for failure in self.record.failures if failure.outlived and failure.attempt == attempt)
        return next((failure for failure in failures if failure.at == at), None)

    def asked(self, kind: IntentKind) -> Intent | None:
        """What is in flight of a kind."""
        for intent in self.intents:
            if intent.kind == kind:
                return intent
        return None

    def _known(self, tasks: Iterable[TaskPlacement]) -> AttemptReport:
        """What is known of some tasks. Those that still join may have been in it before: that says nothing of them."""
        grow = self.asked("grow")
        if grow is None:
            return self.attempt.of_tasks({(task.group, task.index): 0 for task in tasks})
        joining = {(task.group, task.index) for task in grow.tasks}
        return self.attempt.of_tasks(
            {key: self.claim.growth if key in joining else 0 for key in ((task.group, task.index) for task in tasks)}
        )


def without(tasks: tuple[TaskPlacement, ...], gone: tuple[TaskPlacement, ...]) -> tuple[TaskPlacement, ...]:
    """Those of some tasks that are not among others, whatever they hold."""
    if not gone:
        return tasks
    keys = {(task.group, task.index) for task in gone}
    return tuple(task for task in tasks if (task.group, task.index) not in keys)
