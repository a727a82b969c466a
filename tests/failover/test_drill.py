"""Two real control planes on a real PostgreSQL: the leader is killed and held up, and no job knows of it."""

from __future__ import annotations

import os

import pytest

from hack.failover.__main__ import figures
from hack.failover.drill import drill
from hack.failover.load import Ran, violations
from hack.postgresql.server import PrivateServer
from reconciler.jobs.record import JobOutcome, JobRecord
from solver.world.workload import JobName
from tests.contracts.stores import NOW, POSTGRESQL_URL, SPEC

WITHOUT_A_FENCE = (
    "-c",
    "import reconciler.store.sql.database as database; database.check_epoch = lambda *_: None; "
    "from reconciler.cli.main import main; main()",
)
"""`quorate run` of a store that lets every writer through."""


@pytest.fixture
def server() -> PrivateServer:
    return PrivateServer.at(os.environ[POSTGRESQL_URL])


@pytest.mark.postgresql
def test_killed_or_held_up_the_leader_is_followed_and_nothing_is_lost_or_doubled(server: PrivateServer) -> None:
    done = drill(server, kills=1, pauses=1)
    assert done.violations == []
    assert (done.kills, done.pauses, len(done.elected_s)) == (1, 1, 2)
    assert done.writes > done.jobs > 0


@pytest.mark.postgresql
@pytest.mark.long
def test_again_and_again(server: PrivateServer) -> None:
    done = drill(server, kills=20, pauses=10, seed=1)
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
