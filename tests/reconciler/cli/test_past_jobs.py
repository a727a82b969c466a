"""`quorate history jobs`: what became of jobs, and what they had, as `sacct` users look for it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from reconciler.cli.exits import ExitCode
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.capacity import NodeCapacity
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration
from solver.model.workload import JobName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site, spec
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

HOUR = 3_600_000

LISTED = """\
JOB     USER   QUEUE  CLASS      STATE       GPUS  GPU-HOURS  LOST  WAITED  ENDED                       SUBMITTED
waits   grace  team   (default)  queued         1       0.00  0.00    2.00                              2023-11-15 00:13:20 +02:00
failed  ada    team   (default)  failed (3)     2       2.00  2.00    0.00  2023-11-15 01:13:20 +02:00  2023-11-15 00:13:20 +02:00
"""


@pytest.fixture(autouse=True)
def past(site: Site, now: Now, at_server: object) -> None:
    """Two hours: a job of two GPUs fails after the first, another waits for all of them; a third had ended two days before."""
    node, epoch = NODES[0], site.epoch()
    there = tuple(DeviceId(f"{node.name}/{index}") for index in range(8))
    capacity = NodeCapacity("h100-a", GpuType("H100-SXM5-80GB"), there, tuple(["idle"] * 8))
    site.store.capacities.keep(epoch, {NodeName(node.name): capacity}, NOW)
    site.store.capacities.watch(epoch, NOW, Duration(1))
    submitted(site, "old", at=NOW.after(-72 * HOUR))
    site.store.jobs.finish(epoch, JobName("old"), JobOutcome("succeeded", NOW.after(-48 * HOUR), 0, "done", 1))
    submitted(site, "failed", gpus=2)
    site.bind("failed", on(node, 0, 1))
    site.store.ledger.confirm_running(epoch, JobName("failed"), 1, NOW)
    site.store.ledger.ask(epoch, Intent("stop", JobName("failed"), 1, NOW, NOW.after(1), purpose="evict"))
    site.store.ledger.release(epoch, JobName("failed"), 1, NOW.after(HOUR))
    site.store.jobs.finish(epoch, JobName("failed"), JobOutcome("failed", NOW.after(HOUR), 3, "exit code 3", 1))
    site.store.jobs.submit(JobName("waits"), spec(), "grace", NOW, "")
    site.store.capacities.watch(epoch, NOW.after(2 * HOUR), Duration(2 * HOUR))
    now.advance(2 * 3600)


def test_it_lists_what_was_there_in_the_window(quorate: Quorate) -> None:
    assert quorate("history", "jobs", "--from", "3h") == (0, LISTED, "")


def names(quorate: Quorate, *arguments: str) -> list[str]:
    return [job["name"] for job in json.loads(quorate("history", "jobs", "-o", "json", *arguments).out)["items"]]


def test_jobs_are_chosen_by_time_user_queue_and_state(quorate: Quorate) -> None:
    assert names(quorate, "--from", "7d") == ["waits", "failed", "old"]
    assert names(quorate, "--from", "3d", "--to", "2023-11-14T22:13:21Z") == ["waits", "failed", "old"]
    assert names(quorate, "--user", "grace") == ["waits"]
    assert names(quorate, "--state", "failed", "--state", "succeeded") == ["failed", "old"]
    assert names(quorate, "--queue", "team", "--from", "30m") == ["waits"]
    assert names(quorate, "--me") == []


def test_what_jobs_held_before_it_was_kept_is_not_known(quorate: Quorate) -> None:
    ran = quorate("history", "jobs", "--from", "7d", "--to", "1d")
    assert (ran.exit_code, ran.out.splitlines()[1].split()[5:9]) == (0, ["1", "?", "?", "?"])
    assert "what jobs held is not known: from: nothing is on record from before 2023-11-14T22:13:20Z" in ran.err


def test_nothing_is_said_as_such(quorate: Quorate) -> None:
    assert quorate("history", "jobs", "--user", "nobody").out == "no jobs\n"


def test_as_csv_amounts_are_seconds(quorate: Quorate) -> None:
    waits, failed = csv.DictReader(io.StringIO(quorate("history", "jobs", "--from", "3h", "-o", "csv").out))
    assert (failed["allocated"], failed["lost"], failed["exit_code"]) == ("7200", "7200", "3")
    assert (waits["waited"], waits["ended_at"]) == ("7200", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(("--from", "yesterday"), "from: "), (("--time-zone", "Mars"), "there is no time zone Mars")],
)
def test_times_that_can_not_be_read_are_refused(quorate: Quorate, arguments: tuple[str, ...], told: str) -> None:
    ran = quorate("history", "jobs", *arguments)
    assert (ran.exit_code != ExitCode.OK, ran.out, told in ran.err) == (True, "", True)
