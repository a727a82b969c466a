"""The record of a round, and its line in a list."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from solver.model.document import Document, digest
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName
from solver.plan.plan import Bind, Evict, Inadmissible, Nominate, Plan, Starts, Waits
from solver.policy.policy import Policy


class NarrowEnds(Document, frozen=True):
    """Jobs that hold nothing any more, after so many of the jobs `taken` of a record. `again`: those of them that wait once more.

    `is_over`: what has become free up to then is of no use to any job that waits, and is left to those that come.
    """

    jobs: tuple[JobName, ...]
    after: int
    again: tuple[JobName, ...] = ()
    is_over: bool = False


class NarrowRecord(Document, frozen=True):
    """Jobs that were served alone, on what the complete round `base` had left: all that is needed to decide it again.

    Since the record before of the same base: `taken`: jobs with what others gave them; `waited`: jobs that came and found no place;
    `evicted`: jobs that were asked to leave for others that came; `changed`: jobs that hold less than before, or are to;
    `ended`: jobs that hold nothing any more; `unsure`: jobs that came and that only a complete round can judge; `withdrawn`: jobs
    that wait no more. `undone`: jobs of which the base said what did not come about, since others came between; `keeps`: nobody
    leaves any more. `owed`: a job waits for its own, so nothing is lent.
    `came`: the jobs that it is about; () where it is about what has become free, for jobs that wait. `steps`: which of them starts,
    or is promised something, and which leaves for it.
    """

    number: int
    time: Instant
    revision: str
    base: int
    taken: tuple[Job, ...]
    waited: tuple[Job, ...]
    came: tuple[Job, ...]
    steps: tuple[Bind | Evict | Nominate, ...]
    phase_ms: dict[str, float]
    owed: bool = False
    verdicts: str = ""
    """Of the plan of `base`: it says the same of all other jobs."""
    evicted: tuple[JobName, ...] = ()
    changed: tuple[JobName, ...] = ()
    undone: tuple[JobName, ...] = ()
    keeps: bool = False
    ended: tuple[NarrowEnds, ...] = ()
    unsure: tuple[Job, ...] = ()
    withdrawn: tuple[JobName, ...] = ()

    @property
    def freed_by(self) -> tuple[JobName, ...]:
        """By whose end that became free which it is about; () where it is about jobs that came."""
        found: tuple[JobName, ...] = ()
        for ends in self.ended if not self.came else ():
            found = () if ends.is_over else (*found, *ends.jobs)
        return found

    @property
    def summary(self) -> RoundSummary:
        """Its line."""
        starts = sum(isinstance(step, Bind) for step in self.steps)
        return RoundSummary(
            number=self.number,
            time=self.time,
            revision=self.revision,
            starts=starts,
            waits=max(0, len(self.came) - starts),
            inadmissible=0,
            stage="narrow",
            duration_ms=sum(self.phase_ms.values()),
            verdicts=self.verdicts,
        )


class RoundRecord(Document, frozen=True, dict=True, gc=True):
    """Everything needed to solve a round again and compare, plus how long each phase took."""

    number: int
    time: Instant
    revision: str
    snapshot: Snapshot
    policy: Policy
    plan: Plan
    phase_ms: dict[str, float]
    solution: str = ""
    """What the optimiser answered, where a clock may have decided it; "" where the round is deterministic anyway."""
    is_whole: bool = True
    """Whether the plan has its reasons, estimates, reservations and proofs. They follow once the rest was acted on."""
    narrow: tuple[NarrowRecord, ...] = ()
    """Jobs that were started alone on what this round left, up to those that were asked for; () where it is the round itself."""

    @cached_property
    def summary(self) -> RoundSummary:
        """The round's line. Worked out once: all verdicts are read for it."""
        tally = Counter(type(verdict) for verdict in self.plan.verdicts)
        return RoundSummary(
            number=self.number,
            time=self.time,
            revision=self.revision,
            starts=tally[Starts],
            waits=tally[Waits],
            inadmissible=tally[Inadmissible],
            stage=self.plan.certificate.stage,
            duration_ms=sum(self.phase_ms.values()),
            verdicts=digest(self.plan.verdicts),
        )


class RoundSummary(Document, frozen=True):
    """One line of `quorate rounds`."""

    number: int
    time: Instant
    revision: str
    starts: int
    waits: int
    inadmissible: int
    stage: str
    duration_ms: float
    verdicts: str = ""
    """Digest of the plan's verdicts: how a round is known to say nothing new."""
