"""The record of a round, and its line in a list."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from solver.model.document import Document, digest
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.plan.plan import Inadmissible, Plan, Starts, Waits
from solver.policy.policy import Policy


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
