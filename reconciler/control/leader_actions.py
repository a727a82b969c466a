"""What a leader does, one action at a time: the ledger first, then the backend, and a line on record of what and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from reconciler.control.control import ControlPlane
from reconciler.lifecycle.checkpoints.resume_point import begun_from, checkpoint_environment, resume_point
from reconciler.lifecycle.checkpoints.turns import storage_of
from reconciler.lifecycle.jobs.device_readiness import gpus_of
from reconciler.lifecycle.jobs.orders import order_of
from reconciler.lifecycle.jobs.states import stopping_state
from reconciler.model.causes import names_of
from reconciler.model.job_record import JobState
from reconciler.protocols.backend import (
    AttemptKey,
    BackendUnreachableError,
    Epoch,
    GrowGang,
    Order,
    StartGang,
    StopGang,
)
from reconciler.protocols.history import Event
from solver.model.cluster import DeviceId
from solver.model.inflight import Intent
from solver.model.quantities import Duration
from solver.model.workload import TaskPlacement


@dataclass(frozen=True, slots=True)
class LeaderActions:
    """A control plane that leads under one epoch. Every method raises StaleEpochError once it no longer does."""

    plane: ControlPlane
    epoch: Epoch

    def stop(self, intent: Intent, cause: str) -> None:
        """Ask a gang to stop; one that goes on later saves its work first, if it can. One that holds nothing is not asked."""
        if intent.sends_back and self._saves(intent):
            intent = msgspec.structs.replace(intent, stage="waits-to-save")
        with self.plane.together():
            if not self.plane.ledger.ask(self.epoch, intent):
                return
            self.note_of(intent, cause)
        if intent.stage == "ends":
            self.send(StopGang(intent.job, intent.attempt, Duration(intent.deadline - intent.asked_at)))

    def _saves(self, stop: Intent) -> bool:
        """It runs, and where its checkpoints go is known."""
        spec, policies = self.plane.jobs.job(stop.job).spec, self.plane.policies.current().operations.storages
        if storage_of(spec, policies) is None:
            return False
        claim = self.plane.ledger.held_by(stop.job)
        return claim is not None and claim.running_since is not None

    def ask_to_leave(self, intent: Intent, cause: str) -> None:
        """Ask some tasks to leave a gang that goes on without them. One that holds nothing is not asked."""
        with self.plane.together():
            if not self.plane.ledger.ask(self.epoch, intent):
                return
            self.note("asked-to-shrink", intent.job, f"{names_of(intent.tasks)} leave: {cause}")
        # What the ledger says is what is ordered: it keeps a shrink that it knew before, and none of a gang that has ended.
        claim = self.plane.ledger.held_by(intent.job)
        if claim is not None and intent == self.plane.ledger.asked(intent.id):
            self.send(order_of(intent, claim, self.plane.jobs.job(intent.job)))

    def begin(self, order: Order, tasks: Iterable[TaskPlacement]) -> None:
        """Start tasks, unless a GPU of theirs is being partitioned: then a later pass does, once it is."""
        if not gpus_of(tasks) & self.changing():
            self.send(order)

    def changing(self) -> set[DeviceId]:
        """The GPUs that are being partitioned."""
        return {asked.device for asked in self.plane.ledger.partitionings.in_flight()}

    def send(self, order: Order) -> None:
        """Tell the backend; what is not answered is told again by a later pass."""
        if isinstance(order, StartGang | GrowGang):
            environment = {**order.environment, **self._continuation(order)}
            log_max = self.plane.policies.current().policy.scheduling.logs.max_per_task
            order = msgspec.structs.replace(order, environment=environment, log_max=log_max)
        try:
            self.plane.backend.submit(order, self.epoch)
        except BackendUnreachableError as unknown:
            # Its intent stays in the ledger, so a later pass sends it again until its effect is seen.
            self.note("unanswered", order.job, f"{order.id}: {unknown}")

    def _continuation(self, order: StartGang | GrowGang) -> dict[str, str]:
        """Where its checkpoints go, and from which of them it goes on: that which was noted before it began."""
        checkpoint = order.spec.checkpoint
        if checkpoint is None:
            return {}
        policy = storage_of(order.spec, self.plane.policies.current().operations.storages)
        if isinstance(order, GrowGang):
            # A task that joins later catches up from what the gang has saved since.
            resume = resume_point(self.plane.checkpoints, order.job, policy)
        else:
            resume = begun_from(self.plane.checkpoints, order.job, order.attempt)
        return checkpoint_environment(order.job, checkpoint.interval, policy, resume)

    def forget_all(self, over: Collection[AttemptKey]) -> None:
        """These attempts need not be reported any more."""
        unknown = self.plane.backend.forget_all(over, self.epoch) if over else {}
        # The backend reports such an attempt again, and a later pass sees that no job claims it.
        self.plane.history.record_events(
            self.event("unanswered", job, f"forget/{job}/{attempt}: {why}") for (job, attempt), why in unknown.items()
        )

    def note(self, kind: str, subject: str, cause: str, state: JobState | None = None, attempt: int = 0) -> None:
        """One line on record; `state`: what the job is from now on; `attempt`: in which of its attempts."""
        self.plane.history.record_event(self.event(kind, subject, cause, state, attempt))

    def event(self, kind: str, subject: str, cause: str, state: JobState | None = None, attempt: int = 0) -> Event:
        """Such a line, to be put on record with others."""
        return Event(self.plane.clock.now(), kind, subject, cause, self.plane.holder, state or "", attempt)

    def note_of(self, stop: Intent, cause: str) -> None:
        """The line of a gang that is asked to stop, with what it is for."""
        self.plane.history.record_event(
            Event(
                *(self.plane.clock.now(), "asked-to-stop", stop.job, cause, self.plane.holder, stopping_state(stop)),
                attempt=stop.attempt,
                purpose=stop.purpose,
                beneficiary=stop.beneficiary or "",
            )
        )
