"""The way to the simulated cluster: messages get lost, late or unanswered, and epochs are checked where they arrive."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.protocols.backend import (
    AttemptKey,
    BackendChanges,
    BackendUnreachableError,
    Cursor,
    Epoch,
    Order,
    PartitionGpu,
    StaleEpochError,
    forget_each,
)
from solver.model.quantities import Instant
from solver.model.workload import JobName


class SimulatedBackend:
    """Implements Backend and Logs. The newest epoch is kept where the orders arrive, and outlives control planes."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self._newest_epoch = Epoch(0)

    def changes(self, since: Cursor) -> BackendChanges:
        """What became visible after `since`; what really happened may be ahead of it."""
        self.cluster.catch_up()
        if self.cluster.chance.random() < self.cluster.faults.blind:
            raise BackendUnreachableError("the simulated network lost the question")
        return self.cluster.journal.since(since, self.cluster.clock.now())

    def submit(self, order: Order, epoch: Epoch) -> None:
        """Send an order on its way."""
        self._send(order.id, partial(self.cluster.accept, order), epoch)

    def partition(self, order: PartitionGpu, epoch: Epoch) -> None:
        """Send such an order on its way: the same may befall it."""
        self._send(order.id, partial(self.cluster.gpus.accept, order), epoch)

    def forget(self, job: JobName, attempt: int, epoch: Epoch) -> None:
        """Stop reporting an attempt. That it was, or was stopped, stays known, so that a late order can't start it."""
        self.cluster.catch_up()
        if self.cluster.chance.random() < self.cluster.faults.lost:
            raise BackendUnreachableError(f"the simulated network lost the message to forget {job}/{attempt}")
        self._check(epoch)
        self.cluster.journal.forget(job, attempt)

    def forget_all(self, over: Collection[AttemptKey], epoch: Epoch) -> dict[AttemptKey, str]:
        """One after the other."""
        return forget_each(self.forget, over, epoch)

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """A made-up log: one line each time that the task began and one when it ended."""
        self.cluster.catch_up()
        wanted = (job, attempt, group, index)
        lines = []
        for task in self.cluster.intervals:
            if (task.job, task.attempt, task.group, task.index) == wanted:
                lines.append(f"{task.begin} begins on {task.node}")
                if task.end is not None:
                    lines.append(f"{task.end} {task.state}, exit code {task.exit_code}")
        if not lines:
            raise KeyError(f"{job}/{attempt} has no task {group}/{index} that ever began")
        return "".join(f"{line}\n" for line in lines).encode()[offset : offset + limit]

    def _send(self, name: str, arrive: Callable[[Instant], None], epoch: Epoch) -> None:
        self.cluster.catch_up()
        faults, fate = self.cluster.faults, self.cluster.chance.random()
        if fate < faults.lost:
            raise BackendUnreachableError(f"the simulated network lost {name}")
        if fate < faults.lost + faults.late:
            arrival = self.cluster.clock.now().after(self.cluster.chance.randint(0, faults.arrival_delay))
            self.cluster.schedule(arrival, partial(self._arrive_unnoticed, arrive, epoch))
            raise BackendUnreachableError(f"the simulated network delays {name}")
        self._check(epoch)
        arrive(self.cluster.clock.now())
        if fate < faults.lost + faults.late + faults.unacknowledged:
            raise BackendUnreachableError(f"the simulated network lost the answer to {name}")

    def _arrive_unnoticed(self, arrive: Callable[[Instant], None], epoch: Epoch, at: Instant) -> None:
        """The sender has long given up: a refusal reaches no sender."""
        if epoch >= self._newest_epoch:
            self._check(epoch)
            arrive(at)

    def _check(self, epoch: Epoch) -> None:
        if epoch < self._newest_epoch:
            raise StaleEpochError(f"epoch {epoch} is over; the backend has heard from epoch {self._newest_epoch}")
        self._newest_epoch = epoch
