"""Real processes that get nowhere, busy or asleep, are dumped and stopped; and one whose time is nearly over is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.store.store import open_store
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import JobSpec, QueueName, Stuck, TaskGroup, TimeLimitWarning
from tests.contracts.backend_world import Command
from tests.contracts.local_worlds import local_world
from tests.reconciler.control.test_failures_local import JOB, Site

AFTER = Duration(4_000)
"""Longer than a busy machine keeps a process from its next step, or its supervisor from writing that down."""
STEPS = 10
TRAINS = """
import faulthandler, json, os, signal, time
faulthandler.register(signal.SIGUSR1)
path = os.environ["QUORATE_PROGRESS_FILE"]
for step in range(%d):
    with open(path + ".new", "w") as file:
        json.dump({"step": step}, file)
    os.replace(path + ".new", path)
    time.sleep(0.02)
def waits_for_the_others():
    while True:
        %s
waits_for_the_others()
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = open_store(tmp_path / "quorate.db")
    with local_world(tmp_path) as world:
        yield Site(world, store)
    store.close()


def submit(site: Site, command: Command, **changes: object) -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 2, Shape(gpus=1)),), command=command, retry_policy="training")
    site.store.jobs.submit(JOB, msgspec.structs.replace(spec, **changes), "ada", site.plane.clock.now(), "key")


def log(site: Site, index: int, attempt: int = 1) -> str:
    return site.world.backend.read_log(JOB, attempt, "worker", index, 0, 1_000_000).decode()


@pytest.mark.parametrize("waiting", ["pass", "time.sleep(600)"])
def test_a_program_that_hangs_is_dumped_and_tried_again(site: Site, waiting: str) -> None:
    submit(site, (sys.executable, "-c", TRAINS % (STEPS, waiting)), stuck=Stuck(AFTER, "retry", "SIGUSR1"))
    site.until(lambda: site.store.ledger.attempts() == {JOB: 2})
    (failure,) = site.record.failures
    assert (failure.kind, failure.counts) == ("stuck", True)
    for index in (0, 1):
        assert "----- quorate: dump of this task" in log(site, index)
        assert "in waits_for_the_others" in log(site, index), "the signal came with it"
    (said,) = (event.cause for event in site.store.history.events(JOB) if event.kind == "stuck")
    assert f"is at step {STEPS - 1}" in said


@pytest.mark.thorough
def test_one_that_reports_nothing_and_sleeps_is_stuck_and_its_own_dump_does_not_wake_it(site: Site) -> None:
    submit(site, site.world.runs(), stuck=Stuck(AFTER, "fail"))
    site.until(lambda: site.record.outcome is not None)
    assert site.record.outcome is not None
    assert (site.record.outcome.state, site.record.failures) == ("failed", ())
    assert "(stuck)" in site.record.outcome.message


@pytest.mark.thorough
def test_one_that_goes_on_training_is_not(site: Site) -> None:
    submit(site, site.world.trains(), stuck=Stuck(AFTER, "fail"), time_limit=Duration(3 * AFTER))
    site.until(lambda: site.record.outcome is not None)
    assert site.record.outcome is not None
    assert "time limit" in site.record.outcome.message
    assert "stuck" not in site.events()


def test_it_is_told_before_its_time_is_over(site: Site) -> None:
    # Told after three seconds, by when it surely listens, and not ended for as long as the test may take.
    warning = TimeLimitWarning(Duration(57_000), "SIGUSR1")
    submit(site, site.world.listens(), time_limit=Duration(60_000), time_limit_warning=warning)
    site.until(lambda: all(site.world.told(JOB, 1, index) for index in (0, 1)))
    (claim,) = site.store.ledger.claims()
    assert [site.world.told(JOB, 1, index) for index in (0, 1)] == [[claim.marks.warned_at]] * 2
    noted = (site.world.witness / f"{JOB}.1.worker.0.told").read_text().splitlines()
    assert json.loads(noted[0])["reason"] == "time-limit"
    assert site.events().count("time-limit-near") == 1
