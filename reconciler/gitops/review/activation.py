"""What is asked of a merged revision beside its form: guardrails of the policy in force, and what its reviewers accepted.

By the time a change is merged the cluster has moved on. So it is planned once more, on the cluster as it is now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from reconciler.documents.repository import Compiled
from reconciler.gitops.review.meaning import meaning_of
from reconciler.gitops.review.side import ReviewSide
from reconciler.gitops.source.errors import NotReadyToPlanError
from reconciler.gitops.source.requirements import RevisionCandidate, RevisionHold, by_admin
from reconciler.model.envelope import Envelope, Harm, drift_of, is_stale
from reconciler.model.problem import Problem, problem_of
from reconciler.model.review_findings import Breach, Review
from solver.model.snapshot import Snapshot

FRESH_MS: Final = 300_000
"""A plan of a held revision is made anew when it is older than this: a change that was too much may have become harmless."""

Judge = Callable[[Snapshot, ReviewSide, ReviewSide], Review]
"""Reviews a change; it may take seconds."""


@dataclass(slots=True)
class FreshPlans:
    """Plans a candidate on the cluster as it is now; both requirements below read the same plan. One thread asks.

    `look` gives what the loop saw last; None: nothing yet. `made` is the newest plan there is, which any thread may read.
    """

    look: Callable[[], Snapshot | None]
    judge: Judge
    made: Review | None = None
    _of: tuple[str, str] = ("", "")

    def of(self, candidate: RevisionCandidate) -> Review | None:
        """None where it changes nothing that the policy in force says. Raises NotReadyToPlanError."""
        in_force = candidate.in_force
        if in_force is None:
            return None
        base, head = Compiled(*in_force[1:]), candidate.compiled
        if meaning_of(base) == meaning_of(head):
            return None
        snapshot = self.look()
        if snapshot is None:
            raise NotReadyToPlanError(f"{candidate.commit[:12]} can't be planned yet: no round has been decided")
        asked = in_force.revision, candidate.commit
        if self.made is None or self._of != asked or snapshot.time - self.made.time > FRESH_MS:
            self.made = self.judge(
                snapshot, ReviewSide("in force", in_force.revision, base), ReviewSide("merged", candidate.commit, head)
            )
            self._of = asked
        return self.made


@dataclass(frozen=True, slots=True)
class WithinGuardrails:
    """The requirement that the change keeps what the policy in force says of changes."""

    plans: FreshPlans
    doing: str = "Planning"

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        """GuardrailRefused, with the lines. Raises NotReadyToPlanError."""
        fresh = self.plans.of(candidate)
        if fresh is None or not fresh.breaches:
            return None
        said = "; ".join(map(_breach, fresh.breaches))
        return RevisionHold(
            "GuardrailRefused",
            f"{candidate.commit[:12]}: {said}. {_accepted_by(candidate)}",
            tuple(map(_problem, fresh.breaches)),
            True,
        )


@dataclass(frozen=True, slots=True)
class AsAccepted:
    """The requirement that the change does no more than its reviewers accepted, if they did.

    `accepted` finds the envelope of a revision by what it says.
    """

    plans: FreshPlans
    accepted: Callable[[str], Envelope | None]
    doing: str = "Planning"

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        """PlanDrift, PlanStale, or PlanMissing where the policy in force wants one. Raises NotReadyToPlanError."""
        fresh = self.plans.of(candidate)
        if fresh is None or candidate.in_force is None:
            return None
        envelope = self.accepted(meaning_of(candidate.compiled))
        if envelope is None:
            return self._without_plan(candidate, fresh)
        if is_stale(envelope, fresh.base.meaning, fresh.cluster):
            message = f"the plan that was accepted of {candidate.commit[:12]} is of another cluster, or of another base"
            return RevisionHold("PlanStale", f"{message}. {_accepted_by(candidate)}", acceptable=True)
        drift = drift_of(envelope, fresh)
        if not any(each.beyond for each in drift):
            return None
        said = "; ".join(f"{each.what}: {each.now} (accepted: {each.accepted})" for each in drift if each.beyond)
        return RevisionHold(
            "PlanDrift",
            f"{candidate.commit[:12]} would do more than was accepted: {said}. {_accepted_by(candidate)}",
            (),
            True,
            drift,
        )

    def _without_plan(self, candidate: RevisionCandidate, fresh: Review) -> RevisionHold | None:
        asked = candidate.in_force.policy.scheduling.guardrails.require_plan if candidate.in_force else "never"
        if asked == "never" or (asked == "evictions" and not Harm.of(fresh)):
            return None
        message = (
            f"no plan was accepted of {candidate.commit[:12]}, and the policy in force wants one (requirePlan: {asked})"
        )
        return RevisionHold("PlanMissing", f"{message}. {_accepted_by(candidate)}", acceptable=True)


def _accepted_by(candidate: RevisionCandidate) -> str:
    return f"To accept it, {by_admin(candidate.commit)}."


def _breach(breach: Breach) -> str:
    place = f", {breach.origin}" if breach.origin else ""
    return f"{breach.message} ({breach.guardrail}{place})"


def _problem(breach: Breach) -> Problem:
    return problem_of(breach.origin, breach.guardrail, breach.message, breach.fix)
