"""What is asked of a fetched revision before its policy is in force: a short list, in order, until one holds it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from reconciler.control.control import PolicyInForce
from reconciler.documents.repository import Compiled, Reading
from reconciler.gitops.source.mirror import GitMirror
from reconciler.model.git_status import Drift
from reconciler.model.problem import Problem


class RevisionHold(NamedTuple):
    """Why a revision is not put in force. `reason` is a stable word that programs, and approvals, key on.

    `acceptable`: a person may accept exactly this, for this commit; otherwise only another revision helps.
    `drift`: what it would do beside what was accepted, where that is why.
    """

    reason: str
    message: str
    problems: tuple[Problem, ...] = ()
    acceptable: bool = False
    drift: tuple[Drift, ...] = ()


@dataclass
class RevisionCandidate:
    """A fetched revision that is to replace the one `applied` last (None: there was none).

    `in_force` is the policy that judges it, never its own. `notes` is what is to be said of it once it is in force; each
    requirement may add to them.
    """

    commit: str
    applied: str | None
    in_force: PolicyInForce | None
    read: Callable[[], Reading]
    notes: list[str] = field(default_factory=list)

    @cached_property
    def reading(self) -> Reading:
        """What its files say, read when it is asked for first: nothing of an unsigned revision is parsed."""
        return self.read()

    @property
    def compiled(self) -> Compiled:
        """Its policy, for those that stand behind `Valid`. Raises InvalidDocumentsError."""
        return self.reading.checked()


class RevisionRequirement(Protocol):
    """One thing that is asked of every revision. `doing` is the reason that status shows meanwhile."""

    @property
    def doing(self) -> str:
        """A stable word, such as Verifying."""

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        """Why it is held; None: nothing is against it. Raises GitSourceError."""


class Acceptance(Protocol):
    """What people have accepted although a requirement holds it."""

    def accepted(self, candidate: RevisionCandidate, held: RevisionHold) -> str:
        """The user that accepted exactly this, and why, in a few words; "": none did."""

    def applied(self, candidate: RevisionCandidate) -> None:
        """This revision is in force: what was accepted of it is used up. Idempotent."""


class NothingAccepted:
    """No person is asked."""

    def accepted(self, candidate: RevisionCandidate, held: RevisionHold) -> str:  # noqa: ARG002  (the protocol's signature)
        """None."""
        return ""

    def applied(self, candidate: RevisionCandidate) -> None:
        """Nothing to use up."""


@dataclass(frozen=True, slots=True)
class FastForward:
    """It was made from the revision that was applied last: history was not rewritten, and the branch not moved back."""

    mirror: GitMirror
    branch: str
    doing: str = "Verifying"

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        """HistoryRewritten."""
        commit, applied = candidate.commit, candidate.applied
        if applied is None or self.mirror.descends(commit, applied):
            return None
        message = (
            f"history was rewritten: {commit[:12]} was not made from {applied[:12]}, which was applied. Restore "
            f"{self.branch}; or, to accept it, {by_admin(commit)}."
        )
        return RevisionHold("HistoryRewritten", message, acceptable=True)


@dataclass(frozen=True, slots=True)
class Valid:
    """Its documents have no error, alone and together."""

    doing: str = "Validating"

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        """InvalidPolicy, with every problem and its place."""
        reading = candidate.reading
        if reading.compiled is not None:
            return None
        message = f"{candidate.commit[:12]} is invalid: {first_error(reading.problems)}"
        return RevisionHold("InvalidPolicy", message, reading.problems)


def by_admin(commit: str) -> str:
    """What a user does to accept a revision although a requirement holds it."""
    return f"an admin runs `quorate apply {commit[:12]} --reason TEXT`"


def first_error(problems: tuple[Problem, ...]) -> str:
    """The first error with its place, and how many more there are."""
    errors = [str(problem) for problem in problems if problem.severity == "error"]
    return errors[0] + (f" And {len(errors) - 1} more." if len(errors) > 1 else "")
