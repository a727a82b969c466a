"""The protocol that keeps what pods took with them when they went; its conformance suite is tests/contracts/test_gone_pods.py.

Where jobs are pods no ledger knows of attempts that are over: the API server forgets a pod with its deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from reconciler.protocols.backend import Epoch
from solver.model.inflight import Ended
from solver.model.quantities import Instant
from solver.model.workload import JobName


class GonePods(Protocol):
    """How long gangs ran, and when they were evicted. Every write raises StaleEpochError for an epoch that is not the newest."""

    def keep_ended(self, epoch: Epoch, ended: Iterable[Ended]) -> None:
        """These have ended, in place of what was kept of the same job submitted at the same time. Idempotent."""

    def ended(self) -> tuple[Ended, ...]:
        """The last submitted first; older ones than HISTORY_JOBS are left out."""

    def keep_evictions(self, epoch: Epoch, jobs: Collection[JobName], at: Instant) -> None:
        """They were evicted then. Idempotent."""

    def call_off(self, epoch: Epoch, job: JobName, at: Instant) -> None:
        """It was not evicted then after all. Idempotent."""

    def forget(self, epoch: Epoch, jobs: Collection[JobName]) -> None:
        """It is not asked any more when these were evicted. Idempotent."""

    def evictions(self) -> dict[JobName, tuple[Instant, ...]]:
        """When each job was evicted, the oldest first; jobs that never were, or were forgotten, are left out."""
