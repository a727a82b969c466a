"""A backend seen through something: orders go to it as they come, and what it tells may be told otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.protocols.backend import AttemptKey, Backend, Epoch, Order, PartitionGpu
from solver.model.workload import JobName


class OrdersPassedOn:
    """The half of Backend that gives orders, over another; what nodes tell is for those that derive from it."""

    def __init__(self, real: Backend) -> None:
        self._real = real

    def submit(self, order: Order, epoch: Epoch) -> None:
        """As it comes."""
        self._real.submit(order, epoch)

    def partition(self, order: PartitionGpu, epoch: Epoch) -> None:
        """As it comes."""
        self._real.partition(order, epoch)

    def forget(self, job: JobName, attempt: int, epoch: Epoch) -> None:
        """As it comes."""
        self._real.forget(job, attempt, epoch)

    def forget_all(self, over: Collection[AttemptKey], epoch: Epoch) -> Mapping[AttemptKey, str]:
        """As it comes."""
        return self._real.forget_all(over, epoch)
