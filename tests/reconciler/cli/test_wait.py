"""`quorate wait` and `cancel`: blocked until it is so, or until the time is up."""

from __future__ import annotations

import json
from threading import Timer

import pytest

from reconciler.api.server import ApiServer
from reconciler.cli.exits import ExitCode
from reconciler.cli.wait import POLL_S
from reconciler.model.job_record import JobOutcome
from solver.model.workload import JobName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

pytestmark = pytest.mark.usefixtures("at_server")

OUTCOMES = {
    "good": JobOutcome("succeeded", NOW, 0, attempt=1),
    "bad": JobOutcome("failed", NOW, 3, attempt=1),
    "worse": JobOutcome("failed", NOW, 137, attempt=1),
    "lost": JobOutcome("failed", NOW, None, "task worker/0 on n1 was lost", attempt=1),
    "unwanted": JobOutcome("cancelled", NOW, message="cancelled by ada"),
}


@pytest.fixture
def ended(site: Site) -> None:
    """One job for each way to end."""
    for name, outcome in OUTCOMES.items():
        site.store.jobs.finish(site.epoch(), submitted(site, name), outcome)


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (("bad", "unwanted"), ExitCode.OK),
        (("good", "--propagate"), ExitCode.OK),
        (("good", "bad", "worse", "--propagate"), 3),
        (("worse", "bad", "--propagate"), 137),
        (("lost", "--propagate"), ExitCode.ERROR),
        (("unwanted", "--propagate"), ExitCode.ERROR),
        (("good", "--for", "running"), ExitCode.OK),
        (("bad", "--for", "running"), ExitCode.ERROR),
    ],
)
def test_the_exit_code_says_what_was_asked(quorate: Quorate, arguments: tuple[str, ...], exit_code: int) -> None:
    assert quorate("wait", *arguments).exit_code == exit_code


@pytest.mark.usefixtures("ended")
def test_each_job_is_told(quorate: Quorate, now: Now) -> None:
    now.advance(60)
    assert quorate("wait", "good", "bad").out == (
        "good: succeeded 1m ago\nbad: failed with exit code 3, 1m ago\n"
    )  # fmt: skip
    listed = json.loads(quorate("wait", "good", "bad", "-o", "json").out)
    assert [job["state"] for job in listed["items"]] == ["succeeded", "failed"]


@pytest.mark.usefixtures("ended")
def test_a_job_that_ended_will_not_run(quorate: Quorate, now: Now) -> None:
    assert quorate("wait", "bad", "--for", "running").err == (
        "error: bad: it does not run: failed with exit code 3, 0s ago\n"
    )


def test_it_waits_until_it_is_so(quorate: Quorate, site: Site) -> None:
    job = submitted(site, "job")
    site.bind("job", on(NODES[0], 0))
    run = Timer(2 * POLL_S, lambda: site.store.ledger.confirm_running(site.epoch(), job, 1, NOW))
    run.start()
    assert quorate("wait", "job", "--for", "running").exit_code == 0
    run.join()
    finish = Timer(2 * POLL_S, lambda: site.store.jobs.finish(site.epoch(), job, OUTCOMES["bad"]))
    finish.start()
    assert quorate("wait", "job", "--propagate").exit_code == 3
    finish.join()


def test_a_wrong_name_is_told_before_anybody_is_waited_for(quorate: Quorate, site: Site) -> None:
    submitted(site, "job")
    ran = quorate("wait", "job", "jbo", "--timeout", "1m")
    assert ran == (1, "", "error: There is no job jbo.\n  Did you mean job?\n")


def test_time_runs_out(quorate: Quorate, site: Site, now: Now) -> None:
    submitted(site, "job")
    ran = quorate("wait", "job", "--timeout", "100ms")
    assert ran == (7, "", "error: job: still queued for 0s\n  `quorate why job` says why.\n")


def test_submit_can_wait(quorate: Quorate, site: Site) -> None:
    submission = ("submit", "--name", "job", "--queue", "team", "--key", "k", "--", "true")
    assert quorate(*submission).exit_code == 0
    finish = Timer(2 * POLL_S, lambda: site.store.jobs.finish(site.epoch(), JobName("job"), OUTCOMES["bad"]))
    finish.start()
    assert quorate(*submission[:-2], "--wait", *submission[-2:]) == (3, "job: failed with exit code 3\n", "")
    finish.join()


def test_jobs_are_cancelled_and_it_may_be_repeated(quorate: Quorate, site: Site) -> None:
    job = submitted(site, "job")
    site.store.jobs.finish(site.epoch(), submitted(site, "done"), OUTCOMES["good"])
    for _ in range(2):
        told = quorate("cancel", "job", "done")
        assert told == (0, "job: asked to end\ndone: has ended already: succeeded\n", "")
    assert site.store.jobs.job(job).cancel_requested_by == "alice"


def test_nothing_is_cancelled_where_a_name_is_wrong(quorate: Quorate, site: Site) -> None:
    job = submitted(site, "job")
    assert quorate("cancel", "job", "jbo").exit_code == 1
    assert site.store.jobs.job(job).cancel_requested_by == ""


def test_cancelled_jobs_are_data_for_programs(quorate: Quorate, site: Site, at_server: ApiServer) -> None:
    submitted(site, "job")
    listed = json.loads(quorate("cancel", "job", "-o", "json").out)
    assert (listed["apiVersion"], listed["items"][0]["cancelRequestedBy"]) == ("quorate.dev/v1", "alice")


@pytest.mark.parametrize(
    ("chosen", "asked"),
    [
        (("--user", "ada"), ["waits", "runs"]),
        (("--queue", "org"), ["waits", "runs"]),
        (("--queue", "team", "--state", "queued"), ["waits"]),
        (("--me",), []),
    ],
)
def test_jobs_are_chosen_by_their_user_queue_and_state(
    quorate: Quorate, site: Site, chosen: tuple[str, ...], asked: list[str]
) -> None:
    site.store.jobs.finish(site.epoch(), submitted(site, "done"), OUTCOMES["good"])
    site.bind(submitted(site, "runs"), on(NODES[0], 0))
    submitted(site, "waits")
    told = quorate("cancel", *chosen)
    assert (told.exit_code, told.out.splitlines()) == (0, [f"{name}: asked to end" for name in asked] or ["no jobs"])
    assert {job.name for job in site.store.jobs.jobs() if job.cancel_requested_by} == set(asked)


@pytest.mark.parametrize("wrong", [(), ("job", "--me"), ("--state", "queued")])
def test_jobs_are_named_or_chosen(quorate: Quorate, wrong: tuple[str, ...]) -> None:
    ran = quorate("suspend", *wrong)
    assert ran.exit_code == 64
    assert "name each JOB, or say which by --user, --me or --queue" in ran.err
