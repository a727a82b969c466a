"""`quorate logs`: byte for byte, from the last lines, and followed until the job has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from reconciler.api.server import ApiServer
from reconciler.model.job_record import JobOutcome
from solver.model.workload import JobName
from tests.contracts.local_worlds import eventually
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Quorate, on, submitted

PATIENCE_S = 60
JOB = JobName("job")
FIRST = ("job", 1, "worker", 0)
SECOND = ("job", 1, "worker", 1)


@pytest.fixture(autouse=True)
def job(site: Site, at_server: ApiServer) -> None:
    submitted(site, "job", gpus=1, replicas=2)


def bind(site: Site, attempt: int = 1) -> None:
    site.bind("job", on(NODES[0], 0), on(NODES[0], 1, index=1), attempt=attempt)


def end(site: Site) -> None:
    site.store.jobs.finish(site.epoch(), JOB, JobOutcome("succeeded", NOW, 0, attempt=1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "one\ntwo\nthree\n"),
        (("--tail", "1"), "three\n"),
        (("--tail", "2"), "two\nthree\n"),
        (("--tail", "9"), "one\ntwo\nthree\n"),
        (("--tail", "0"), ""),
        (("--index", "1"), "other"),
        (("--index", "1", "--tail", "1"), "other"),
        (("worker/1",), "other"),
        (("worker",), "one\ntwo\nthree\n"),
        (("--group", "worker", "--attempt", "1", "--index", "1"), "other"),
    ],
)
def test_a_task_is_read(quorate: Quorate, site: Site, options: tuple[str, ...], expected: str) -> None:
    bind(site)
    site.logs[FIRST], site.logs[SECOND] = b"one\ntwo\nthree\n", b"other"
    assert quorate("logs", "job", *options) == (0, expected, "")


@pytest.mark.parametrize("options", [("--index", "2"), ("worker/2",), ("--group", "driver"), ("--attempt", "2")])
def test_a_task_that_is_not_there_is_said(quorate: Quorate, site: Site, options: tuple[str, ...]) -> None:
    bind(site)
    site.logs[FIRST] = b"one\n"
    ran = quorate("logs", "job", *options)
    assert (ran.exit_code, ran.out) == (1, "")
    assert "Job job has no such log" in ran.err
    if "--attempt" not in options:
        assert "Its tasks are worker/0 to worker/1.\n" in ran.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("worker/1", "--index", "1"), "TASK names the task: leave out --group and --index"),
        (("worker/one",), "worker/one names no task: write it as worker/2, or give --group and --index"),
    ],
)
def test_a_task_is_named_in_one_way(quorate: Quorate, options: tuple[str, ...], told: str) -> None:
    ran = quorate("logs", "job", *options)
    assert (ran.exit_code, told in ran.err) == (64, True)


def test_a_job_that_has_not_started_has_no_log(quorate: Quorate) -> None:
    assert "it has not started yet" in quorate("logs", "job").err


def test_bytes_go_through_unchanged(site: Site) -> None:
    bind(site)
    site.logs[FIRST] = b"\xff\x00\x1b[31m\r\n" * 300_000
    done = subprocess.run([sys.executable, "-m", "reconciler.cli.main", "logs", "job"], capture_output=True, check=True)
    assert done.stdout == site.logs[FIRST]


def _gather(handle: int, into: bytearray) -> None:
    while piece := os.read(handle, 65_536):
        into += piece


@contextmanager
def following(*options: str) -> Iterator[Callable[[bytes], None]]:
    """`quorate logs -f` in a process of its own; yields a wait until it has printed exactly so much."""
    command = [sys.executable, "-m", "reconciler.cli.main", "logs", "job", "-f", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        printed = bytearray()
        stdout = process.stdout
        assert stdout is not None
        reader = Thread(target=_gather, args=(stdout.fileno(), printed))
        reader.start()
        try:
            yield lambda expected: eventually(lambda: bytes(printed) == expected)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            reader.join()


def test_following_waits_for_the_start_and_ends_with_the_attempt(site: Site) -> None:
    with following() as printed:
        bind(site)
        site.logs[FIRST] = b"one\n"
        printed(b"one\n")
        site.logs[FIRST] += b"two\n"
        printed(b"one\ntwo\n")
        site.logs[FIRST] += b"last words"
        end(site)
        printed(b"one\ntwo\nlast words")


def test_following_from_the_last_lines(site: Site) -> None:
    bind(site)
    site.logs[FIRST] = b"one\ntwo\n"
    with following("--tail", "1") as printed:
        printed(b"two\n")
        site.logs[FIRST] += b"three\n"
        end(site)
        printed(b"two\nthree\n")


@pytest.mark.parametrize("over", [True, False])
def test_following_a_log_that_will_never_be_is_an_error(quorate: Quorate, site: Site, over: bool) -> None:
    bind(site)
    if over:
        end(site)
    ran = quorate("logs", "job", "-f", *(() if over else ("--index", "7")))
    assert (ran.exit_code, ran.out) == (1, "")
    assert "has no task" in ran.err


def test_following_goes_on_with_the_next_attempt(site: Site) -> None:
    bind(site)
    site.logs[FIRST] = b"one\n"
    with following() as printed:
        printed(b"one\n")
        site.store.ledger.release(site.epoch(), JOB, 1, NOW)
        bind(site, 2)
        site.logs["job", 2, "worker", 0] = b"again\n"
        printed(b"one\nagain\n")
        site.store.jobs.finish(site.epoch(), JOB, JobOutcome("succeeded", NOW, 0, attempt=2))


def test_following_one_attempt_ends_with_it(site: Site) -> None:
    bind(site)
    site.logs[FIRST] = b"one\n"
    with following("--attempt", "1") as printed:
        printed(b"one\n")
        site.store.ledger.release(site.epoch(), JOB, 1, NOW)
        bind(site, 2)
