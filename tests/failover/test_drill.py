"""Two real control planes on a real PostgreSQL: the leader is killed and held up, and no job knows of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from hack.failover.__main__ import figures
from hack.failover.drill import drill, site_of, until
from hack.failover.load import Ran, gang, violations
from hack.postgresql.server import PrivateServer
from reconciler.client import ApiError
from reconciler.model.job_record import JobOutcome, JobRecord
from solver.model.workload import JobName
from tests.contracts.stores import NOW, POSTGRESQL_URL, SPEC

WITHOUT_A_FENCE = (
    "-c",
    "import reconciler.store.database as database; database.check_epoch = lambda *_: None; "
    "from reconciler.cli.main import main; main()",
)
"""`quorate run` of a store that lets every writer through."""


@pytest.fixture
def server() -> PrivateServer:
    return PrivateServer.at(os.environ[POSTGRESQL_URL])


@pytest.mark.postgresql
def test_killed_or_held_up_the_leader_is_followed_and_nothing_is_lost_or_doubled(server: PrivateServer) -> None:
    done = drill(server, kills=1, pauses=1, cuts=2)
    assert done.violations == []
    assert (done.kills, done.pauses, done.cuts, len(done.elected_s)) == (1, 1, 2, 2)
    assert done.writes > done.jobs > 0


@pytest.mark.postgresql
@pytest.mark.long
def test_again_and_again(server: PrivateServer) -> None:
    done = drill(server, kills=20, pauses=10, cuts=10, seed=1)
    assert done.violations == []
    assert done.stale_refused >= 5
    assert len(done.acted_s) == 30


@pytest.mark.postgresql
@pytest.mark.long
def test_a_store_that_lets_a_former_leader_write_is_found_out(server: PrivateServer) -> None:
    done = drill(server, kills=0, pauses=4, program=WITHOUT_A_FENCE)
    assert figures(done)["staleWritesAccepted"] > 0


def ran(job: str, task: int, device: str, begin: int, end: int | None) -> Ran:
    return Ran(job, 1, task, (device,), begin, end)


def ended(job: str) -> JobRecord:
    return JobRecord(JobName(job), SPEC, "ada", NOW, outcome=JobOutcome("succeeded", NOW))


WELL = (ran("a", 0, "g1", 1, 5), ran("a", 1, "g2", 1, 5), ran("b", 0, "g1", 5, 9), ran("b", 1, "g2", 6, 9))


def test_the_judge_finds_nothing_where_all_is_well() -> None:
    assert list(violations(WELL, (ended("a"), ended("b")))) == []


@pytest.mark.parametrize(
    ("lives", "found"),
    [
        ((*WELL, ran("a", 0, "g3", 7, 8)), "run twice: task 0 of a"),
        (WELL[:3], "lost: b is succeeded, and not all"),
        ((*WELL[:3], ran("b", 1, "g2", 6, None)), "lost: b"),
        ((*WELL[:3], ran("b", 1, "g2", 4, 9)), "two owners: g2 of a and b"),
    ],
)
def test_the_judge_finds_each_kind(lives: tuple[Ran, ...], found: str) -> None:
    assert [problem for problem in violations(lives, (ended("a"), ended("b"))) if problem.startswith(found)]


def test_the_judge_finds_a_job_that_did_not_end() -> None:
    waiting = JobRecord(JobName("c"), SPEC, "ada", NOW)
    assert list(violations(WELL, (waiting,))) == ["lost: c is without an outcome, and not all of its tasks ended"]


@pytest.mark.postgresql
def test_who_stands_by_answers_takes_submissions_and_says_who_leads(server: PrivateServer, tmp_path: Path) -> None:
    """And takes over in order, at once, when the leader is told to stop."""
    with site_of(server, tmp_path) as site:
        until("somebody acts under a policy", lambda: site.audit.leads() and site.store.following.in_force())
        led = site.audit.leads()
        assert led is not None
        (standby,) = (plane for name, plane in site.planes.items() if name != led.who)
        with standby.client() as client:
            until("it has the leader's policy", lambda: client.status().last_applied_revision)
            (leading,) = (one for one in client.status().conditions if one.type == "Leading")
            assert (leading.status, leading.reason) == (False, "standing-by")
            assert "leads until" in leading.message
            name, spec = gang(0, tmp_path / "trace")
            client.submit(name, spec)
            until("it has ended", lambda: client.job(name).outcome is not None)
            assert [view.name for view in client.jobs().items] == [name]
            with pytest.raises(ApiError) as refused:
                client.snapshot()
            assert (refused.value.status, refused.value.problem.code) == (503, "not-ready")
            site.planes[led.who].send(signal.SIGTERM)
            until("it leads", lambda: any(one.type == "Leading" and one.status for one in client.status().conditions))
        record = site.store.jobs.job(name)
        assert record.outcome is not None
        assert record.outcome.state == "succeeded"
