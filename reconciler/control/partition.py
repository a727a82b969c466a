"""Makes GPUs be partitioned as a plan says: the ledger first, then the backend, and again until what came of it is known."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.control.control import ControlPlane
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.gang_stop import RESEND_AFTER
from reconciler.model.causes import geometry_of
from reconciler.protocols.backend import BackendUnreachableError, Epoch, PartitionGpu
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import ClaimRefusedError
from solver.model.inflight import Repartitioning
from solver.model.quantities import Duration
from solver.plan.plan import Repartition

PARTITION_DEADLINE = Duration(120_000)
"""A driver takes seconds to make an instance. Later than this something is wrong, and nothing new is placed on the GPU."""


@dataclass(frozen=True, slots=True)
class GpuPartitioner:
    """A control plane that leads under one epoch. Every method raises StaleEpochError once it no longer does."""

    plane: ControlPlane
    epoch: Epoch

    def settle(self, sighted: BackendReports) -> int:
        """End the changes that are made or have failed, and send again those of which nothing is known; how many that was."""
        settled = 0
        for asked in self.plane.ledger.partitionings.in_flight():
            done = sighted.partitioned.get(asked.device)
            if done is not None and done.attempt >= asked.attempt:
                kind = "partition-failed" if done.refused else "partitioned"
                told = f"{geometry_of(done.instances)}{': ' * bool(done.refused)}{done.refused}"
                with self.plane.together():
                    self.plane.ledger.partitionings.end(self.epoch, asked.device, asked.attempt)
                    self._note(kind, asked.device, told)
                settled += 1
            elif self.plane.clock.now() - asked.asked_at >= RESEND_AFTER:
                self._send(asked)
                settled += 1
        return settled

    def ask(self, step: Repartition) -> bool:
        """Whether the ledger let the GPU be changed; then the backend is told."""
        now = self.plane.clock.now()
        attempt = self.plane.ledger.partitionings.last_attempts().get(step.device, 0) + 1
        asked = Repartitioning(step.node, step.device, attempt, now, now.after(PARTITION_DEADLINE), step.instances)
        try:
            with self.plane.together():
                self.plane.ledger.partitionings.begin(self.epoch, asked)
                self._note("partitions", step.device, f"it is to be {geometry_of(step.instances)}")
        except ClaimRefusedError as refused:
            self._note("partition-refused", step.device, str(refused))
            return False
        self._send(asked)
        return True

    def _send(self, asked: Repartitioning) -> None:
        order = PartitionGpu(asked.node, asked.device, asked.attempt, asked.instances)
        try:
            self.plane.backend.partition(order, self.epoch)
        except BackendUnreachableError as unknown:
            # It stays in flight, so a later pass sends it again until its effect is seen.
            self._note("unanswered", asked.device, f"{order.id}: {unknown}")

    def _note(self, kind: str, subject: str, cause: str) -> None:
        self.plane.history.record_event(Event(self.plane.clock.now(), kind, subject, cause, self.plane.holder))
