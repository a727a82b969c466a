"""The policy that is in force: the newest good revision of a branch, whatever comes after it.

It remembers nothing that the mirror does not: after a restart it finds the revision that was applied, and goes on.
"""

from __future__ import annotations

from typing import Literal

from reconciler.control import NoPolicyError, PolicyInForce
from reconciler.documents.problem import Problem
from reconciler.documents.repository import read_repository
from reconciler.gitsource.errors import FetchFailedError, GitSourceError
from reconciler.gitsource.mirror import APPLIED, Mirror
from solver.world.document import Document

ConditionType = Literal["Ready", "Reconciling", "Stalled"]


class Condition(Document, frozen=True, omit_defaults=False):
    """One statement on how following the branch goes. Reasons are stable words that programs may key on."""

    type: ConditionType
    status: bool
    reason: str
    message: str


class PolicyStatus(Document, frozen=True, omit_defaults=False):
    """How following the branch goes.

    Ready: the newest revision is in force. Reconciling: it is not, and will be tried again. Stalled: it is not, and a
    person must act. `problems` are those of the revision last attempted.
    """

    conditions: tuple[Condition, ...]
    last_applied_revision: str
    last_attempted_revision: str
    problems: tuple[Problem, ...] = ()

    def condition(self, kind: ConditionType) -> Condition:
        """The condition of that type; there is always one of each."""
        return next(condition for condition in self.conditions if condition.type == kind)


class StandingPolicy:
    """Follows one branch. `current` may be called from any thread; `reconcile` from one at a time."""

    def __init__(self, mirror: Mirror, branch: str, cluster: str | None = None) -> None:
        """Find the revision applied before a restart, without the network. `cluster`: whose, where there are several."""
        self._mirror = mirror
        self._branch = branch
        self._cluster = cluster
        self._current: PolicyInForce | None = None
        self._attempted = ""
        self._status = self._started()

    def current(self) -> PolicyInForce:
        """The policy in force; raises NoPolicyError."""
        current = self._current
        if current is None:
            raise NoPolicyError(self._status.condition("Ready").message)
        return current

    def status(self) -> PolicyStatus:
        """How it went last time."""
        return self._status

    def reconcile(self) -> PolicyStatus:
        """Fetch the branch once; if its newest revision is good, it is in force. Never raises for what Git holds."""
        try:
            self._status = self._reconciled()
        except FetchFailedError as error:
            self._status = self._failed("Reconciling", "FetchFailed", f"{error}. {error.fix}")
        except GitSourceError as error:
            self._status = self._failed("Stalled", "SourceUnusable", f"{error}. {error.fix}")
        return self._status

    def _reconciled(self) -> PolicyStatus:
        commit = self._mirror.fetch(self._branch)
        self._attempted = commit
        applied = self._mirror.applied()
        if applied and not self._mirror.descends(commit, applied):
            message = (
                f"history was rewritten: {commit[:12]} was not made from {applied[:12]}, which was applied. "
                f"Restore {self._branch}; or, to accept it, run `git -C {self._mirror.folder} update-ref -d {APPLIED}`."
            )
            return self._failed("Stalled", "HistoryRewritten", message)
        in_force = self._current is not None and self._current.revision == commit == applied
        if in_force and self._status.condition("Ready").status:
            return self._status
        reading = read_repository(self._mirror.read(commit).files, self._cluster)
        if reading.compiled is None:
            message = f"{commit[:12]} is invalid: {_first_error(reading.problems)}"
            return self._failed("Stalled", "InvalidPolicy", message, reading.problems)
        if commit != applied:
            self._mirror.mark_applied(commit)
        self._current = PolicyInForce(commit, *reading.compiled.parts)
        return self._stating(("Ready", "Applied", f"{commit[:12]} is in force"), reading.problems)

    def _started(self) -> PolicyStatus:
        try:
            applied = self._mirror.applied()
            if applied is None:
                return self._stating(("Reconciling", "NotFetchedYet", "no revision has been fetched yet"))
            self._attempted = self._mirror.fetched() or applied
            reading = read_repository(self._mirror.read(applied).files, self._cluster)
        except GitSourceError as error:
            return self._stating(("Stalled", "SourceUnusable", f"{error}. {error.fix}"))
        if reading.compiled is None:
            # Only after an upgrade that is stricter than the version which applied it.
            message = f"{applied[:12]} was applied before and is invalid now: {_first_error(reading.problems)}"
            return self._stating(("Stalled", "AppliedPolicyInvalid", message), reading.problems)
        self._current = PolicyInForce(applied, *reading.compiled.parts)
        message = f"{applied[:12]} is in force since before the restart"
        return self._stating(("Reconciling", "NotFetchedYet", message))

    def _failed(
        self, kind: ConditionType, reason: str, message: str, problems: tuple[Problem, ...] = ()
    ) -> PolicyStatus:
        kept = f" {self._current.revision[:12]} stays in force." if self._current else " No policy is in force."
        return self._stating((kind, reason, message + kept), problems)

    def _stating(self, truth: tuple[ConditionType, str, str], problems: tuple[Problem, ...] = ()) -> PolicyStatus:
        """A status in which exactly one condition is true; the others carry its reason too."""
        true, reason, message = truth
        types: tuple[ConditionType, ...] = ("Ready", "Reconciling", "Stalled")
        conditions = tuple(Condition(kind, kind == true, reason, message) for kind in types)
        applied = self._current.revision if self._current else ""
        return PolicyStatus(conditions, applied, self._attempted, problems)


def _first_error(problems: tuple[Problem, ...]) -> str:
    errors = [str(problem) for problem in problems if problem.severity == "error"]
    return errors[0] + (f" And {len(errors) - 1} more." if len(errors) > 1 else "")
