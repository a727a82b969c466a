"""What a control plane does where others have the same store: stand by, persevere, follow what the leader follows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.control.control import NoPolicyError
from reconciler.control.runner import Runner
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.requirements import FastForward, RevisionCandidate, RevisionHold, Valid
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.model.clock import VirtualClock
from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from reconciler.protocols.gpu_use import STEPS
from reconciler.protocols.store_errors import StoreUnreachableError, StoreUnusableError
from reconciler.server.crew import with_restarts
from reconciler.server.folder import StateFolder
from reconciler.server.parts import ServerThread
from reconciler.server.pruning import Pruning
from reconciler.server.settings import Settings
from reconciler.server.shared_policy import SharedPolicy
from reconciler.server.store_access import SOLE_HOLDER, opened_store, tie_to_agents, tie_to_tasks
from reconciler.store.store import SqlStore, open_store
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from tests.contracts.stores import SPEC, claim_of, intent_of
from tests.contracts.test_history import record_of as round_of
from tests.reconciler.control.plane import Site, site_at
from tests.reconciler.gitops.source.origin import INVALID, QUEUE, Origin

MINUTE = Duration(60_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(tmp_path / "shared.db")
    yield opened
    opened.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_at(tmp_path / "site.db") as made:
        yield made


class NeverTwice:
    """A requirement that a person has to accept, once."""

    doing = "Asking"

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        return None if candidate.in_force is None else RevisionHold("Asked", "it has to be accepted", acceptable=True)


def following(folder: Path, origin: Origin, store: SqlStore, holder: str) -> SharedPolicy:
    mirror = GitMirror(folder / holder, str(origin.folder))
    requirements = FastForward(mirror, "main"), Valid(), NeverTwice()
    return SharedPolicy(StandingPolicy(mirror, "main", requirements), store, holder)


def lead(store: SqlStore, holder: str, clock: VirtualClock) -> None:
    clock.advance(2 * MINUTE)
    store.ledger.lead(holder, clock.now(), MINUTE)


def test_who_stands_by_has_in_force_what_the_leader_has_and_judges_nothing(store: SqlStore, tmp_path: Path) -> None:
    origin, clock = Origin(tmp_path / "policy"), VirtualClock()
    good = origin.commit({"policies/queue.yaml": QUEUE % 1})
    first, second = (following(tmp_path, origin, store, name) for name in ("first", "second"))
    assert second.reconcile().last_applied_revision == "", "nobody leads"
    lead(store, "first", clock)
    assert first.reconcile().last_applied_revision == good
    held = origin.commit({"policies/queue.yaml": QUEUE % 2})
    assert first.reconcile().truth.reason == "Asked"
    assert second.reconcile().truth.reason == "LedByAnother"
    assert second.standing.current().revision == good != held


def test_a_new_leader_judges_from_where_the_last_one_stood(store: SqlStore, tmp_path: Path) -> None:
    """Also one that was never there before: what its predecessor held is not waved through as the first revision."""
    origin, clock = Origin(tmp_path / "policy"), VirtualClock()
    good = origin.commit({"policies/queue.yaml": QUEUE % 1})
    lead(store, "first", clock)
    following(tmp_path, origin, store, "first").reconcile()
    origin.commit({"policies/queue.yaml": QUEUE % 2})
    lead(store, "second", clock)
    second = following(tmp_path, origin, store, "second")
    status = second.reconcile()
    assert (status.truth.reason, status.last_applied_revision) == ("Asked", good)


def test_a_revision_that_can_not_be_had_or_read_is_said(store: SqlStore, tmp_path: Path) -> None:
    origin, clock = Origin(tmp_path / "policy"), VirtualClock()
    invalid = origin.commit({"policies/queue.yaml": INVALID})
    lead(store, "first", clock)
    epoch = store.ledger.epoch_of("first")
    assert epoch is not None
    store.following.put_in_force(epoch, "0" * 40)
    second = following(tmp_path, origin, store, "second")
    assert second.reconcile().truth.reason == "SourceUnusable"
    store.following.put_in_force(epoch, invalid)
    assert second.reconcile().truth.reason == "AppliedPolicyInvalid"
    with pytest.raises(NoPolicyError):
        second.standing.current()


def test_a_thread_begins_anew_while_the_store_is_away_and_ends_as_it_ends() -> None:
    rests: list[float] = []
    failures: list[Exception] = [StoreUnreachableError("away"), StoreUnreachableError("away")]

    def work() -> None:
        if failures:
            raise failures.pop()

    log = structlog.get_logger()
    with_restarts(ServerThread("m", work, lambda: None), log, rests.append)()
    assert rests == [1.0, 1.0]
    failures.append(StoreUnusableError("the disk is full"))
    with pytest.raises(StoreUnusableError, match="disk is full"):
        with_restarts(ServerThread("m", work, lambda: None), log, rests.append)()


def test_the_loop_goes_on_when_the_store_is_there_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lead that it may have lost, and without resigning what it can't reach."""
    runner = Runner(site.only_plane)
    away = StoreUnreachableError("db.example.com: it can't be reached. Check that it runs")

    def fail(*_: object) -> None:
        raise away

    assert runner._one_pass().condition == "leading"
    with monkeypatch.context() as patched:
        patched.setattr(type(site.store.ledger), "lead", fail)
        runner.status = runner._one_pass()
        assert (runner.status.condition, runner.status.message) == ("store-unreachable", str(away))
    assert runner._one_pass().condition == "leading"
    other = Runner(site.plane("other"))
    other.status = other._one_pass()
    assert (other.status.condition, other.status.last) == ("standing-by", None)


def test_who_can_not_reach_the_store_leads_no_longer_than_its_lease(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one leads then, and agents that stayed would be lost to it."""
    leader, other = Runner(site.only_plane), Runner(site.plane("other"))
    leader.status, other.status = leader._one_pass(), other._one_pass()

    def fail(*_: object) -> None:
        raise StoreUnreachableError("away")

    led = []
    with monkeypatch.context() as patched:
        patched.setattr(type(site.store.ledger), "lead", fail)
        for _ in range(2):
            leader.status, other.status = leader._one_pass(), other._one_pass()
            led.append((leader.leads(), other.leads()))
            site.clock.advance(site.only_plane.lease)
    assert led == [(True, False), (False, False)]
    other.status = other._one_pass()
    assert (leader.leads(), other.leads()) == (False, True)


def test_what_was_true_while_it_led_is_not_shown_when_another_leads(site: Site) -> None:
    runner = Runner(site.only_plane)
    runner.status = runner._one_pass()
    assert runner.epoch() is not None
    site.clock.advance(site.only_plane.lease)
    site.store.ledger.lead("other", site.clock.now(), MINUTE)
    runner.status = runner._one_pass()
    assert (runner.status.condition, runner.epoch()) == ("standing-by", None)


def test_without_a_url_the_store_is_in_the_state_folder(tmp_path: Path) -> None:
    settings = Settings("policy", "main", StateFolder(tmp_path), "127.0.0.1", 0, MINUTE)
    with ExitStack() as closing:
        found = opened_store(settings, closing)
        assert (found.holder, found.is_shared) == (SOLE_HOLDER, False)
        assert (tmp_path / "quorate.db").exists()


def test_a_store_has_its_tasks_in_one_place(store: SqlStore, tmp_path: Path) -> None:
    for _ in range(2):
        tie_to_tasks(store, tmp_path / "tasks")
    with pytest.raises(
        StoreUnusableError,
        match=rf"processes of .*:{tmp_path}/tasks, and here .*other/tasks\. .*--tasks",
    ):
        tie_to_tasks(store, tmp_path / "other" / "tasks")
    with pytest.raises(StoreUnusableError, match=r"here they would run on machines with agents"):
        tie_to_agents(store)


def test_rounds_are_pruned_as_the_policy_says_by_who_leads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.store.round_records.KEYFRAME_EVERY", 1)
    epoch = site.store.ledger.lead("only", site.clock.now(), MINUTE)
    for _ in range(3):
        site.store.history.record_round(epoch, msgspec.structs.replace(round_of(), time=site.clock.now()))
        site.clock.advance(3_600_000)
    leads = True
    pruning = Pruning(
        site.store.history,
        site.store.placements,
        site.store.capacities,
        site.store.gpu_uses,
        site,
        site.clock,
        lambda: epoch if leads else None,
        apart_s=0.0,
    )
    pruning.look()
    assert len(site.store.history.rounds()) == 3, "the policy says nothing"
    scheduling = msgspec.structs.replace(site.policy.scheduling, keep_rounds=Duration(2 * 3_600_000))
    site.policy = msgspec.structs.replace(site.policy, scheduling=scheduling)
    leads = False
    pruning.look()
    assert len(site.store.history.rounds()) == 3, "another leads"
    leads = True
    with capture_logs():
        pruning.look()
    assert len(site.store.history.rounds()) == 2


def test_placements_are_pruned_as_the_policy_says(site: Site) -> None:
    epoch = site.store.ledger.lead("only", site.clock.now(), MINUTE)
    for name in ("a", "b"):
        site.store.jobs.submit(JobName(name), SPEC, "ada", site.clock.now(), name)
        claim = msgspec.structs.replace(claim_of(name, "n1/0"), since=site.clock.now())
        site.store.ledger.claim(epoch, claim, intent_of(claim))
        site.store.ledger.release(epoch, claim.job, 1, site.clock.now())
        site.clock.advance(3_600_000)
    store = site.store
    records = store.placements, store.capacities, store.gpu_uses
    pruning = Pruning(store.history, *records, site, site.clock, lambda: epoch, apart_s=0.0)
    pruning.look()
    assert [len(site.store.placements.of_job(JobName(name))) for name in ("a", "b")] == [1, 1]
    scheduling = msgspec.structs.replace(site.policy.scheduling, keep_placements=Duration(5_400_000))
    site.policy = msgspec.structs.replace(site.policy, scheduling=scheduling)
    pruning.look()
    assert [len(site.store.placements.of_job(JobName(name))) for name in ("a", "b")] == [0, 1]


def test_use_of_gpus_is_pruned_as_the_policy_says(site: Site) -> None:
    epoch = site.store.ledger.lead("only", site.clock.now(), MINUTE)
    node, record = NodeName("n1"), record_of(UseFigures("gpm", 12, active=UseSpread(50.0)))
    for _ in range(2):
        start = Instant(site.clock.now() // 60_000 * 60_000)
        minute = NodeMinute(start, (GpuMinute(DeviceId("n1/0"), "", record),))
        site.store.gpu_uses.keep(epoch, {node: [minute]})
        site.clock.advance(3 * 86_400_000)
    records = site.store.placements, site.store.capacities, site.store.gpu_uses
    pruning = Pruning(site.store.history, *records, site, site.clock, lambda: epoch, apart_s=0.0)

    def known() -> dict[str, int]:
        window = site.clock.now().after(-10 * 86_400_000), site.clock.now()
        found = {step: site.store.gpu_uses.of_nodes([node], step, *window) for step in STEPS}
        return {step: sum(len(past.points) for past in some) for step, some in found.items()}

    assert known() == {"minute": 2, "hour": 2, "day": 2}
    pruning.look()
    assert known() == {"minute": 0, "hour": 2, "day": 2}, "minutes are kept for two days unless stated"
    use = msgspec.structs.replace(site.policy.scheduling.gpu_use, keep_hours=Duration(4 * 86_400_000))
    scheduling = msgspec.structs.replace(site.policy.scheduling, gpu_use=use)
    site.policy = msgspec.structs.replace(site.policy, scheduling=scheduling)
    pruning.look()
    assert known() == {"minute": 0, "hour": 1, "day": 2}
