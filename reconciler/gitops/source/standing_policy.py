"""The policy that is in force: the newest good revision of a branch, whatever comes after it.

It remembers nothing that the mirror does not: after a restart it finds the revision that was applied, and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.control.control import NoPolicyError, PolicyInForce
from reconciler.documents.repository import Reading, read_repository
from reconciler.gitops.source.errors import BranchMissingError, FetchFailedError, GitSourceError, NotReadyToPlanError
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.requirements import (
    Acceptance,
    FastForward,
    NothingAccepted,
    RevisionCandidate,
    RevisionHold,
    RevisionRequirement,
    Valid,
    first_error,
)
from reconciler.model.git_status import ConditionType, PolicyCondition, PolicyStatus


class StandingPolicy:
    """Follows one branch. `current` and `status` may be called from any thread; `reconcile` from one at a time."""

    def __init__(
        self,
        mirror: GitMirror,
        branch: str,
        requirements: Sequence[RevisionRequirement] | None = None,
        acceptance: Acceptance | None = None,
        cluster: str | None = None,
    ) -> None:
        """Find the revision applied before a restart, without the network. `requirements` are asked in order; None: history
        and validity. `cluster`: which one's policy, where there are several.
        """
        self._mirror = mirror
        self._branch = branch
        self._requirements = (FastForward(mirror, branch), Valid()) if requirements is None else tuple(requirements)
        self._acceptance = acceptance or NothingAccepted()
        self._cluster = cluster
        self._current: PolicyInForce | None = None
        self._attempted = ""
        self._concluded = ""
        self._status = self._started()

    def current(self) -> PolicyInForce:
        """The policy in force; raises NoPolicyError."""
        current = self._current
        if current is None:
            raise NoPolicyError(self._status.condition("Ready").message)
        return current

    def status(self) -> PolicyStatus:
        """How it went last time, or, while a new revision is judged, how far that is."""
        return self._status

    def reconcile(self) -> PolicyStatus:
        """Fetch the branch once; if nothing is against its newest revision, it is in force. Never raises for what Git holds."""
        try:
            self._status = self._reconciled()
        except FetchFailedError as error:
            self._status = self._failed("Reconciling", RevisionHold("FetchFailed", f"{error}. {error.fix}"))
        except NotReadyToPlanError as error:
            self._status = self._failed("Reconciling", RevisionHold("WaitingForRound", f"{error}"))
        except BranchMissingError as error:
            self._status = self._failed("Stalled", RevisionHold("BranchMissing", f"{error}. {error.fix}"))
        except GitSourceError as error:
            self._status = self._failed("Stalled", RevisionHold("SourceUnusable", f"{error}. {error.fix}"))
        self._concluded = self._attempted
        return self._status

    def adopt(self, revision: str) -> PolicyStatus:
        """Put in force what the control plane that leads has in force, which has asked for all that is to be asked."""
        try:
            self._mirror.fetch(self._branch)
            reading = self._read(revision)
            if reading.compiled is None:
                held = RevisionHold(
                    "AppliedPolicyInvalid",
                    f"{revision[:12]}, which the leader applied, is invalid here",
                    reading.problems,
                )
                self._status = self._failed("Stalled", held)
                return self._status
            self._mirror.mark_applied(revision)
        except GitSourceError as error:
            self._status = self._failed("Stalled", RevisionHold("SourceUnusable", f"{error}. {error.fix}"))
            return self._status
        self._current, self._attempted = PolicyInForce(revision, *reading.compiled.parts), revision
        self._status = self._stating(
            "Reconciling", RevisionHold("LedByAnother", f"{revision[:12]} is in force, as the leader has it")
        )
        return self._status

    def _reconciled(self) -> PolicyStatus:
        if self._status.truth.reason == "NotFetchedYet":
            self._status = self._stating("Reconciling", RevisionHold("Fetching", f"{self._branch} is being fetched"))
        commit = self._mirror.fetch(self._branch)
        self._attempted = commit
        applied = self._mirror.applied()
        in_force = self._current is not None and self._current.revision == commit == applied
        if in_force and self._status.condition("Ready").status:
            return self._status
        candidate = RevisionCandidate(commit, applied, self._current, lambda: self._read(commit))
        held = self._held(candidate)
        if held is not None:
            return self._failed("Stalled", held)
        if commit != applied:
            self._mirror.mark_applied(commit)
        self._acceptance.applied(candidate)
        self._current = PolicyInForce(commit, *candidate.compiled.parts)
        message = "; ".join((f"{commit[:12]} is in force", *candidate.notes))
        return self._stating("Ready", RevisionHold("Applied", message, candidate.reading.problems))

    def _held(self, candidate: RevisionCandidate) -> RevisionHold | None:
        """The first requirement that holds the revision, unless a person accepted just that."""
        for requirement in self._requirements:
            if candidate.commit != self._concluded:
                message = f"{requirement.doing.lower()} {candidate.commit[:12]}"
                self._status = self._stating("Reconciling", RevisionHold(requirement.doing, message))
            held = requirement.hold(candidate)
            if held is None:
                continue
            accepted = self._acceptance.accepted(candidate, held) if held.acceptable else ""
            if not accepted:
                return held
            candidate.notes.append(f"{held.reason} was accepted by {accepted}")
        return None

    def _started(self) -> PolicyStatus:
        try:
            applied = self._mirror.applied()
            if applied is None:
                return self._stating("Reconciling", RevisionHold("NotFetchedYet", "no revision has been fetched yet"))
            self._attempted = self._mirror.fetched() or applied
            reading = self._read(applied)
        except GitSourceError as error:
            return self._stating("Stalled", RevisionHold("SourceUnusable", f"{error}. {error.fix}"))
        if reading.compiled is None:
            # Only after an upgrade that is stricter than the version which applied it.
            message = f"{applied[:12]} was applied before and is invalid now: {first_error(reading.problems)}"
            return self._stating("Stalled", RevisionHold("AppliedPolicyInvalid", message, reading.problems))
        self._current = PolicyInForce(applied, *reading.compiled.parts)
        message = f"{applied[:12]} is in force since before the restart"
        return self._stating("Reconciling", RevisionHold("NotFetchedYet", message))

    def _read(self, commit: str) -> Reading:
        return read_repository(self._mirror.read(commit).files, self._cluster)

    def _failed(self, kind: ConditionType, held: RevisionHold) -> PolicyStatus:
        kept = f" {self._current.revision[:12]} stays in force." if self._current else " No policy is in force."
        return self._stating(kind, held._replace(message=held.message + kept))

    def _stating(self, true: ConditionType, told: RevisionHold) -> PolicyStatus:
        """A status in which exactly one condition is true; the others carry its reason too."""
        types: tuple[ConditionType, ...] = ("Ready", "Reconciling", "Stalled")
        conditions = tuple(PolicyCondition(kind, kind == true, told.reason, told.message) for kind in types)
        applied = self._current.revision if self._current else ""
        return PolicyStatus(conditions, applied, self._attempted, told.problems, told.acceptable, told.drift)
