"""When a waiting job could start, or why that can't be said: typed like a reason; words are made from it at the end."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName


class Estimate(Document, frozen=True, tag_field="estimate"):
    """What the round expects of one waiting job. `str` says it to a person."""


class EarliestStart(Estimate, frozen=True, tag="earliest-start"):
    """It could start at `at`, if what runs ends at its limit, what comes before it is served first, and nothing else arrives.

    `by_history`: and if jobs without a limit end when most of their queue and class did. `after_protection_of`: the job that is
    evicted for it once nothing protects that any more, the last of several; by `at` it has had its time to leave. `quota_of`: a
    queue whose quota becomes another at `at`.
    """

    at: Instant
    by_history: bool = False
    after_protection_of: JobName | None = None
    quota_of: QueueName | None = None

    @property
    def to_the_second(self) -> Instant:
        """As people are told it: not before `at`."""
        return Instant(-(-self.at // 1000) * 1000)

    def __str__(self) -> str:
        if self.after_protection_of is not None:
            return f"earliest start {self.to_the_second}, once {self.after_protection_of} may be evicted and has left"
        if self.quota_of is not None:
            return f"earliest start {self.to_the_second}, when the quota of queue {self.quota_of} changes"
        otherwise = ", or without one when most of its queue and class did" if self.by_history else ""
        return f"earliest start {self.to_the_second}, if what runs ends at its limit{otherwise}"


class EndUnknown(Estimate, frozen=True, tag="end-unknown"):
    """Jobs hold what it could use, and it is not known until when: they have no limit, or should have ended already."""

    without_limit: int
    overdue: int = 0

    def __str__(self) -> str:
        kinds = ((self.without_limit, "no time limit"), (self.overdue, "not ended in time"))
        return "earliest start unknown: " + ", ".join(f"{_jobs(number)} {what}" for number, what in kinds if number)


class BeyondHorizon(Estimate, frozen=True, tag="beyond-horizon"):
    """What runs ends too late for it to start within the horizon of the policy."""

    horizon: Duration

    def __str__(self) -> str:
        return f"earliest start more than {self.horizon} ahead"


class NoEndHelps(Estimate, frozen=True, tag="no-end-helps"):
    """It would not start even if all that runs had ended: what it needs is cordoned or broken.

    `partitioned`: or the GPUs may not be partitioned for it yet, of which no end of a job is a sign.
    """

    partitioned: bool = False

    def __str__(self) -> str:
        not_yet = ", or may not be partitioned for it yet" if self.partitioned else ""
        return f"earliest start unknown: nodes or GPUs that it needs are cordoned or broken{not_yet}"


AnyEstimate = EarliestStart | EndUnknown | BeyondHorizon | NoEndHelps


def _jobs(number: int) -> str:
    return (
        "1 job that holds what it could use has" if number == 1 else f"{number} jobs that hold what it could use have"
    )
