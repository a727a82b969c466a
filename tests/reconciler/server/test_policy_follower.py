"""Following a branch, with a real store and real Git: what people decide holds across restarts, and counts once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import msgspec
import pytest
import structlog

from reconciler.documents.files import Files
from reconciler.documents.repository import read_repository
from reconciler.gitops.review.meaning import meaning_of
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.requirements import (
    FastForward,
    RevisionCandidate,
    RevisionHold,
    RevisionRequirement,
    Valid,
)
from reconciler.gitops.source.signatures import NOT_ASKED, Signed
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.model.clock import Clock, SystemClock, VirtualClock
from reconciler.model.git_record import Approval, Suspension
from reconciler.server.policy_follower import AcceptedByPeople, PolicyFollower
from reconciler.store.store import SqlStore
from tests.contracts.local_worlds import eventually
from tests.contracts.test_accepted_plans import PLAN
from tests.fresh_store import fresh_store
from tests.reconciler.gitops.source.origin import INVALID, QUEUE, Origin


class GrowingHarm:
    """A requirement whose plan says more with every look."""

    doing = "Planning"
    jobs = 0

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        if candidate.in_force is None:
            return None
        self.jobs += 1
        return RevisionHold("PlanDrift", f"{self.jobs} jobs would be evicted", acceptable=True)


@dataclass
class Server:
    """The parts of a server that follow, as process.py puts them together."""

    folder: Path
    origin: Origin
    clock: Clock = field(default_factory=VirtualClock)
    wakes: int = 0
    more: tuple[RevisionRequirement, ...] = ()

    def __post_init__(self) -> None:
        self.start()

    def start(self, every_s: float = 60.0) -> None:
        """Begin, or begin again after a crash."""
        self.store: SqlStore = fresh_store(self.folder / "quorate.db")
        mirror = GitMirror(self.folder / "mirror", str(self.origin.folder))
        signed = Signed(mirror, "main", self.clock)
        requirements: list[RevisionRequirement] = [FastForward(mirror, "main"), signed, Valid(), *self.more]
        decisions = self.store.following
        self.acceptance = AcceptedByPeople(decisions, self.store.plans, self.clock)
        self.standing = StandingPolicy(mirror, "main", requirements, self.acceptance)
        log = structlog.get_logger()
        self.follower = PolicyFollower(
            self.standing, self.store.history, decisions, self.clock, "plane", self.wake, log, every_s
        )

    def restart(self) -> None:
        self.store.close()
        self.start()

    def wake(self) -> None:
        self.wakes += 1

    def look(self) -> str:
        """Look once: the reason of the condition that holds."""
        self.follower.look()
        return self.standing.status().truth.reason

    def approve(self) -> Approval:
        """As the API does."""
        status = self.standing.status()
        return self.store.following.approve(
            Approval(
                commit=status.last_attempted_revision,
                reason=status.truth.reason,
                in_place_of=status.last_applied_revision,
                author="ada",
                why="rebased on purpose",
                at=self.clock.now(),
            )
        )

    def events(self, subject: str) -> list[tuple[str, str]]:
        return [(event.kind, event.cause) for event in self.store.history.events(subject)]


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "origin")
    made.commit({"policies/team.yaml": QUEUE % 1})
    return made


@pytest.fixture
def server(tmp_path: Path, origin: Origin) -> Iterator[Server]:
    made = Server(tmp_path, origin)
    yield made
    made.store.close()


def amend(origin: Origin, weight: int) -> str:
    origin.write({"policies/team.yaml": QUEUE % weight})
    origin.git("commit", "--quiet", "--all", "--amend", "--message=again")
    return origin.git("rev-parse", "HEAD")


def test_the_event_of_the_first_revision_says_that_nobody_was_asked_to_sign(server: Server, origin: Origin) -> None:
    first = origin.git("rev-parse", "HEAD")
    assert server.look() == "Applied"
    assert server.events(first) == [("policy-applied", f"{first[:12]} is in force; {NOT_ASKED}")]
    second = origin.commit({"policies/team.yaml": QUEUE % 2})
    assert (server.look(), server.wakes) == ("Applied", 2)
    assert server.events(second) == [("policy-applied", f"{second[:12]} is in force")]


def test_rewritten_history_waits_for_a_person_and_is_accepted_once(server: Server, origin: Origin) -> None:
    before = origin.git("rev-parse", "HEAD")
    server.look()
    rewritten = amend(origin, 2)
    assert (server.look(), server.standing.status().acceptable) == ("HistoryRewritten", True)
    server.restart()
    assert server.look() == "HistoryRewritten"
    server.approve()
    server.restart()
    assert server.look() == "Applied"
    assert server.standing.current().revision == rewritten
    assert "HistoryRewritten was accepted by ada: rebased on purpose" in server.standing.status().truth.message
    assert [approval.used_at is None for approval in server.store.following.approvals()] == [False]
    # Back, and there again: what was accepted then is accepted no more.
    origin.git("reset", "--quiet", "--hard", before)
    assert server.look() == "HistoryRewritten"
    server.approve()
    assert server.look() == "Applied"
    origin.git("reset", "--quiet", "--hard", rewritten)
    assert server.look() == "HistoryRewritten"


def test_an_approval_is_of_one_commit_in_place_of_one(server: Server, origin: Origin) -> None:
    good = origin.git("rev-parse", "HEAD")
    server.look()
    rewritten = amend(origin, 2)
    server.look()
    server.approve()
    amend(origin, 3)
    assert server.look() == "HistoryRewritten"  # another commit than the one that was accepted
    origin.git("reset", "--quiet", "--hard", good)
    origin.commit({"policies/team.yaml": QUEUE % 4})
    assert server.look() == "Applied"
    origin.git("reset", "--quiet", "--hard", rewritten)
    assert server.look() == "HistoryRewritten"  # that one, in place of another than was in force then


def test_figures_that_change_while_it_is_held_are_no_news(server: Server, origin: Origin) -> None:
    server.more = (GrowingHarm(),)
    server.restart()
    server.look()
    held = origin.commit({"policies/team.yaml": QUEUE % 2})
    for jobs in (1, 2, 3):
        assert server.look() == "PlanDrift"
        assert f"{jobs} jobs" in server.standing.status().truth.message
    assert [kind for kind, _ in server.events(held)] == ["policy-refused"]
    server.approve()
    assert server.look() == "Applied"
    assert [kind for kind, _ in server.events(held)] == ["policy-refused", "policy-applied"]


def test_a_plan_that_was_accepted_counts_once(server: Server, origin: Origin) -> None:
    """Whoever reverts the change, and that revert later, finds another cluster."""
    first, changed = origin.git("rev-parse", "HEAD"), {"policies/team.yaml": QUEUE % 2}
    of_first, of_changed = (
        meaning_of(read_repository(Files({"policies/team.yaml": (QUEUE % weight).encode()})).checked())
        for weight in (1, 2)
    )
    for meaning in (of_first, of_changed):
        envelope = msgspec.structs.replace(PLAN.envelope, meaning=meaning)
        server.store.plans.accept(msgspec.structs.replace(PLAN, envelope=envelope))
    server.look()
    assert server.standing.current().revision == first
    assert (server.store.plans.accepted(of_first), server.store.plans.accepted(of_changed) is None) == (None, False)
    origin.commit(changed)
    assert server.look() == "Applied"
    assert server.store.plans.accepted(of_changed) is None


def test_what_is_accepted_must_be_valid_all_the_same(server: Server, origin: Origin) -> None:
    server.look()
    origin.write({"policies/team.yaml": INVALID})
    origin.git("commit", "--quiet", "--all", "--amend", "--message=again")
    server.look()
    server.approve()
    assert (server.look(), server.standing.status().acceptable) == ("InvalidPolicy", False)
    assert "policies/team.yaml:4:8" in server.standing.status().truth.message
    assert server.standing.current().policy.queues[0].weight == 1


def test_while_it_is_suspended_nothing_is_fetched_and_that_survives_a_restart(server: Server, origin: Origin) -> None:
    server.look()
    now = server.clock.now()
    server.store.following.suspend(Suspension(author="ada", why="moving", at=now, until=now.after(60_000)))
    origin.commit({"policies/team.yaml": QUEUE % 2})
    server.look()
    assert server.standing.current().policy.queues[0].weight == 1
    server.restart()
    assert server.look() == "NotFetchedYet"
    assert server.standing.current().policy.queues[0].weight == 1
    assert isinstance(server.clock, VirtualClock)
    server.clock.advance(60_000)
    assert server.look() == "Applied"
    assert server.standing.current().policy.queues[0].weight == 2


def test_a_deleted_branch_is_no_fault_of_the_revision_in_force(server: Server, origin: Origin) -> None:
    first = origin.git("rev-parse", "HEAD")
    server.look()
    origin.git("branch", "--move", "main", "other")
    assert server.look() == "BranchMissing"
    assert [kind for kind, _ in server.events(first)] == ["policy-applied"]


def test_who_asks_has_git_looked_at_long_before_the_next_poll(tmp_path: Path, origin: Origin) -> None:
    server = Server(tmp_path, origin, SystemClock())
    server.store.close()
    server.start(every_s=3_600)
    thread = Thread(target=server.follower.run)
    thread.start()
    try:
        eventually(lambda: server.follower.looked_at is not None)
        origin.commit({"policies/team.yaml": QUEUE % 2})
        for _ in range(100):
            asked = server.follower.ask()
        eventually(lambda: server.follower.looked_at is not None and server.follower.looked_at >= asked)
        assert server.standing.current().policy.queues[0].weight == 2
    finally:
        server.follower.stop()
        thread.join()
        server.store.close()
