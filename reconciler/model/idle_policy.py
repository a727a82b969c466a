"""What an IdlePolicy says: which jobs count as idle, by which evidence, and what follows after a warning."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal

import msgspec

from solver.model.document import Document
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, JobType, QueueName

IdleAction = Literal["notify", "lend", "suspend", "end"]

MEASURED: Final = 0.9


class GpuActivityBelow(Document, frozen=True):
    """All GPUs of a job are less active than `below` percent in each known minute of so long.

    `measured`: the least part of the minutes that must be known of each GPU.
    """

    below: float
    lasts: Duration = msgspec.field(name="for")
    measured: float = MEASURED


class IdleEvidence(Document, frozen=True):
    """What must hold together; None: it does not matter. `no_task_activity_for`: of CPU, log and terminal."""

    gpu_activity: GpuActivityBelow | None = None
    no_progress_for: Duration | None = None
    no_task_activity_for: Duration | None = None


class IdleExemption(Document, frozen=True):
    """Jobs that are left alone until an instant: those that fit all that it names; () fits any."""

    until: Instant
    reason: str
    queues: tuple[QueueName, ...] = ()
    users: tuple[str, ...] = ()
    jobs: tuple[JobName, ...] = ()

    def fits(self, job: JobName, user: str, path: Collection[QueueName]) -> bool:
        """Whether it is for such a job. `path`: its queue and those above it."""
        return (
            (not self.jobs or job in self.jobs)
            and (not self.users or user in self.users)
            and (not self.queues or any(queue in path for queue in self.queues))
        )


class IdlePolicy(Document, frozen=True):
    """Which jobs (empty: all), when they are idle, and what follows `grace` after the warning."""

    name: str
    idle_when: IdleEvidence
    queues: tuple[QueueName, ...] = ()
    priority_classes: tuple[str, ...] = ()
    job_types: tuple[JobType, ...] = ()
    grace: Duration = Duration(15 * 60_000)
    action: IdleAction = "notify"
    exempt: tuple[IdleExemption, ...] = ()
    origin: str = ""

    def fits(self, path: Collection[QueueName], priority_class: str, job_type: JobType) -> bool:
        """Whether it is for jobs of a type and class in a queue; `path`: that queue and those above it."""
        return (
            (not self.queues or any(queue in path for queue in self.queues))
            and (not self.priority_classes or priority_class in self.priority_classes)
            and (not self.job_types or job_type in self.job_types)
        )

    def exemption(self, job: JobName, user: str, path: Collection[QueueName], now: Instant) -> IdleExemption | None:
        """The exemption that holds longest for a job; None: none does now."""
        holding = (each for each in self.exempt if each.until > now and each.fits(job, user, path))
        return max(holding, key=lambda each: each.until, default=None)

    def overlaps(self, other: IdlePolicy) -> bool:
        """Whether there may be jobs for which neither is nearer than the other: they would both count."""
        same_queues = bool(set(self.queues) & set(other.queues)) or not (self.queues or other.queues)
        return (
            same_queues
            and _meet(self.priority_classes, other.priority_classes)
            and _meet(self.job_types, other.job_types)
        )


def idle_policy_of(
    policies: Iterable[IdlePolicy], path: tuple[QueueName, ...], priority_class: str, job_type: JobType
) -> IdlePolicy | None:
    """The policy for a job: of those that fit it the one that names the nearest queue. `path`: from its queue up."""
    fitting = (known for known in policies if known.fits(path, priority_class, job_type))
    return min(fitting, key=lambda known: _distance(known, path), default=None)


def _distance(policy: IdlePolicy, path: tuple[QueueName, ...]) -> int:
    return min((path.index(queue) for queue in policy.queues if queue in path), default=len(path))


def _meet(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return not some or not others or bool(set(some) & set(others))
