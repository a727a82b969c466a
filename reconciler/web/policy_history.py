"""Which revisions were in force, one after another, and what rounds on record say of each: read from events, Git and rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api.services import Services
from reconciler.gitops.source.archive import CommitFacts
from reconciler.gitops.source.errors import GitSourceError
from reconciler.model.git_record import REVISION_APPLIED, REVISION_REFUSED, Approval
from reconciler.protocols.history import Event, History
from reconciler.protocols.rounds import RoundSummary
from solver.model.quantities import Instant
from solver.plan.plan import Evict, Shrink

PAGE: Final = 20
COMMITS_MAX: Final = 200
"""Commits of the branch that one page looks at in search of those that were in force."""
ROUNDS_NEAR: Final = 200
"""Rounds around a change among which its first complete one is looked for; those of single jobs lie between."""
APPROVALS_MAX: Final = 1_000
_EFFECTS_KEPT: Final = 500


@dataclass(frozen=True, slots=True)
class PolicyEffect:
    """The last complete round on record before a revision was in force, and the first under it. None: none is on record."""

    before: RoundSummary | None = None
    after: RoundSummary | None = None


@dataclass(frozen=True, slots=True)
class RevisionInForce:
    """A revision that was put in force. `facts` None: Git has no such commit here. `said`: what was told of it then."""

    revision: str
    since: Instant
    said: str
    facts: CommitFacts | None
    approvals: tuple[Approval, ...]
    effect: PolicyEffect


@dataclass(frozen=True, slots=True)
class PolicyHistoryPage:
    """The newest first. `older`: the commit from which another page goes on; "": none. `lost`: why Git does not say more."""

    revisions: tuple[RevisionInForce, ...]
    older: str = ""
    lost: str = ""


class PolicyHistory:
    """Of one server. Any thread may ask."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._effects: dict[str, PolicyEffect] = {}

    def page(self, start: str) -> PolicyHistoryPage:
        """Revisions that were in force, from this commit on along the branch."""
        try:
            line = self._services.following.archive.line(start, COMMITS_MAX)
        except GitSourceError as error:
            known = self.revision(start)
            return PolicyHistoryPage((known,) if known else (), lost=str(error))
        approvals = self._approvals()
        found: list[RevisionInForce] = []
        for facts in line:
            applied = self._applied(facts.commit)
            if applied is not None and len(found) == PAGE:
                return PolicyHistoryPage(tuple(found), facts.commit)
            if applied is not None:
                found.append(self._in_force(applied, facts, approvals))
        return PolicyHistoryPage(tuple(found), line[-1].commit if len(line) == COMMITS_MAX else "")

    def revision(self, revision: str) -> RevisionInForce | None:
        """One of them; None: it was never in force, as far as events say."""
        applied = self._applied(revision)
        return self._in_force(applied, self.facts(revision), self._approvals()) if applied else None

    def facts(self, revision: str) -> CommitFacts | None:
        """What Git says of a commit; None: there is none, or it isn't here."""
        try:
            return next(iter(self._services.following.archive.line(revision, 1)), None) if revision else None
        except GitSourceError:
            return None

    def is_known(self, revision: str) -> bool:
        """Whether it was in force, or was to be: what else Git has here is no part of what this server decided."""
        status = self._services.following.status()
        if revision in (status.last_applied_revision, status.last_attempted_revision):
            return bool(revision)
        return any(
            event.kind in (REVISION_APPLIED, REVISION_REFUSED) for event in self._services.history.events(revision)
        )

    def previous(self, revision: str) -> str:
        """The one that was in force before it, as far as the branch says; "": none."""
        try:
            line = self._services.following.archive.line(revision, COMMITS_MAX)
        except GitSourceError:
            return ""
        return next((facts.commit for facts in line[1:] if self._applied(facts.commit)), "")

    def given_up(self, effect: PolicyEffect) -> tuple[Evict | Shrink, ...] | None:
        """What jobs give up in the first round under it; None where that round is not on record."""
        if effect.after is None:
            return None
        try:
            steps = self._services.history.round(effect.after.number).plan.steps
        except KeyError:
            return None  # It was pruned meanwhile.
        return tuple(step for step in steps if isinstance(step, Evict | Shrink))

    def _applied(self, revision: str) -> Event | None:
        """When it was put in force first."""
        told = self._services.history.events(revision)
        return next((event for event in told if event.kind == REVISION_APPLIED), None)

    def _approvals(self) -> tuple[Approval, ...]:
        return self._services.following.decisions.approvals(APPROVALS_MAX)

    def _in_force(self, applied: Event, facts: CommitFacts | None, approvals: Sequence[Approval]) -> RevisionInForce:
        revision = applied.subject
        accepted = tuple(each for each in approvals if each.commit == revision and each.used_at is not None)
        return RevisionInForce(revision, applied.time, applied.cause, facts, accepted, self._effect(applied))

    def _effect(self, applied: Event) -> PolicyEffect:
        """Worked out once for each revision: once both rounds are there, they stay those."""
        known = self._effects.get(applied.subject)
        if known is not None:
            return known
        found = effect_of(self._services.history, applied.subject, applied.time)
        if found.before and found.after and len(self._effects) < _EFFECTS_KEPT:
            self._effects[applied.subject] = found
        return found


def effect_of(history: History, revision: str, since: Instant) -> PolicyEffect:
    """The complete rounds right before and right after a revision was in force, of those on record around that time."""
    near = tuple(each for each in _rounds_around(history, since) if each.stage != "narrow")
    after = next((each for each in near if each.revision == revision), None)
    if after is None:
        return PolicyEffect()
    earlier = (each for each in reversed(near) if each.number < after.number)
    return PolicyEffect(next(earlier, None), after)


def _rounds_around(history: History, at: Instant) -> Iterator[RoundSummary]:
    """Rounds on record, the oldest first: half of them before a time, half after. Later rounds have larger numbers."""
    newest = next(iter(history.rounds(1)), None)
    low, high = 1, newest.number + 1 if newest else 1
    while low < high:
        middle = (low + high) // 2
        found = next(iter(history.rounds(1, middle + 1)), None)
        if found is not None and found.time >= at:
            high = found.number
        else:
            low = middle + 1
    yield from reversed(history.rounds(ROUNDS_NEAR, low + ROUNDS_NEAR // 2))
