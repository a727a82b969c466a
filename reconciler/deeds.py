"""What a leader does, one deed at a time: the ledger first, then the backend, and a line on record of what and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.backend import BackendUnreachableError, Epoch, Order, StopGang
from reconciler.causes import names_of
from reconciler.control import ControlPlane
from reconciler.jobs.ground import gpus_of
from reconciler.jobs.orders import order_of
from reconciler.jobs.record import JobState
from reconciler.jobs.states import stopping_state
from reconciler.store.protocols import Event
from solver.world.cluster import DeviceId
from solver.world.inflight import Intent
from solver.world.quantities import Duration
from solver.world.workload import JobName, TaskPlacement


@dataclass(frozen=True, slots=True)
class Deeds:
    """A control plane that leads under one epoch. Every method raises StaleEpochError once it no longer does."""

    plane: ControlPlane
    epoch: Epoch

    def stop(self, intent: Intent, cause: str) -> None:
        """Ask a gang to stop."""
        self.plane.ledger.ask(self.epoch, intent)
        self.note_of(intent, cause)
        self.send(StopGang(intent.job, intent.attempt, Duration(intent.deadline - intent.asked_at)))

    def ask_to_leave(self, intent: Intent, cause: str) -> None:
        """Ask some tasks to leave a gang that goes on without them."""
        self.plane.ledger.ask(self.epoch, intent)
        self.note("asked-to-shrink", intent.job, f"{names_of(intent.tasks)} leave: {cause}")
        # What the ledger says is what is ordered: it keeps a shrink that it knew before, and none of a gang that has ended.
        claim = next((claim for claim in self.plane.ledger.claims() if claim.job == intent.job), None)
        if claim is not None and intent in self.plane.ledger.intents():
            self.send(order_of(intent, claim, self.plane.jobs.job(intent.job)))

    def begin(self, order: Order, tasks: Iterable[TaskPlacement]) -> None:
        """Start tasks, unless a GPU of theirs is being partitioned: then a later pass does, once it is."""
        if not gpus_of(tasks) & self.changing():
            self.send(order)

    def changing(self) -> set[DeviceId]:
        """The GPUs that are being partitioned."""
        return {asked.device for asked in self.plane.ledger.repartitions()}

    def send(self, order: Order) -> None:
        """Tell the backend; what is not answered is told again by a later pass."""
        try:
            self.plane.backend.submit(order, self.epoch)
        except BackendUnreachableError as unknown:
            # Its intent stays in the ledger, so a later pass sends it again until its effect is seen.
            self.note("unanswered", order.job, f"{order.id}: {unknown}")

    def forget(self, job: JobName, attempt: int) -> None:
        """Nobody needs to hear of an attempt any more."""
        try:
            self.plane.backend.forget(job, attempt, self.epoch)
        except BackendUnreachableError as unknown:
            # The backend reports the attempt again, and a later pass sees that nobody claims it.
            self.note("unanswered", job, f"forget/{job}/{attempt}: {unknown}")

    def note(self, kind: str, subject: str, cause: str, state: JobState | None = None, attempt: int = 0) -> None:
        """One line on record; `state`: what the job is from now on; `attempt`: in which of its attempts."""
        self.plane.history.record_event(
            Event(self.plane.clock.now(), kind, subject, cause, self.plane.holder, state or "", attempt)
        )

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
