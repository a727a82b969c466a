"""`quorate submit --pty`, with a real terminal at each end, and everything real between them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import pytest

from reconciler.cli.exits import ExitCode
from solver.model.quantities import Duration
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane, sh, until
from tests.e2e.person import Person

pytestmark = pytest.mark.thorough

SUBMIT = ("submit", "--pty", "--name", "shell", "--queue", "team", "--memory", "64Mi", "--", "bash", "--norc")

LIMIT = Duration(4_000)


@pytest.fixture
def person(plane: ControlPlane) -> Iterator[Person]:
    plane.start().until_ready()
    with Person(plane) as made:
        yield made


def test_a_session_from_beginning_to_end(person: Person, plane: ControlPlane) -> None:
    person.runs(*SUBMIT)
    person.sees("attached to shell")
    person.types("echo answer $((6*7)) $TERM\r")
    person.sees("answer 42 vt220")
    person.types("stty size\r")
    person.sees("31 93")
    person.resize(40, 120)
    person.signal(signal.SIGWINCH)
    person.types("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.1; done; echo res''ized\r")
    person.sees("resized")
    assert person.settings() != person.before, "the keys must go to the task, raw"
    person.types("exit 7\r")
    assert person.exit_code() == 7
    assert person.settings() == person.before
    with plane.client() as client:
        assert b"answer 42 vt220" in client.log("shell")
        until("it is over", lambda: client.job("shell").outcome)
        outcome = client.job("shell").outcome
        assert outcome is not None
        assert (outcome.state, outcome.exit_code) == ("failed", 7)
    assert [event.actor for event in plane.events("shell") if event.kind == "attached"] != []


@pytest.mark.long
def test_detach_and_come_back(person: Person) -> None:
    person.runs(*SUBMIT)
    person.sees("attached to shell")
    person.types("place=here; echo be$place\r")
    person.sees("behere")
    person.types("\x1d")
    person.sees("detached from shell")
    assert (person.exit_code(), person.settings()) == (ExitCode.OK, person.before)
    person.runs("attach", "shell")
    person.sees("attached to shell")
    person.sees("behere")  # What was shown before.
    person.types("echo still $place\r")
    person.sees("still here")
    person.types("exit\r")
    assert person.exit_code() == 0


def test_interrupts_are_the_tasks(person: Person) -> None:
    person.runs(*SUBMIT)
    person.sees("attached to shell")
    # What is typed is shown as well; only what the shell makes of it has no quotes.
    # And it is what sleeps that says so: an interrupt between the shell's word and its fork would reach nobody.
    person.types("sh -c 'echo sle\"\"eps; exec sleep 600'\r")
    person.sees("sleeps")
    person.types("\x03")
    person.sees("^C")  # an interrupt drops what was typed before it was noticed
    person.types("echo interr''upted $?\r")
    person.sees("interrupted 130")


def test_a_killed_server_gives_the_terminal_back_and_the_task_goes_on(person: Person, plane: ControlPlane) -> None:
    person.runs(*SUBMIT)
    person.sees("attached to shell")
    person.types("place=here; echo be$place\r")
    person.sees("behere")
    plane.signal(signal.SIGKILL)
    person.sees("the connection was lost")
    assert (person.exit_code(), person.settings()) == (ExitCode.SERVER_UNREACHABLE, person.before)
    plane.start().until_ready()
    with Person(plane) as again:
        again.runs("attach", "shell")
        again.sees("attached to shell")
        again.types("echo still $place\r")
        again.sees("still here")
        assert plane.signal(signal.SIGTERM) == 0, "nobody who is attached keeps a server from stopping"
        again.sees("the connection was lost")
        assert (again.exit_code(), again.settings()) == (ExitCode.SERVER_UNREACHABLE, again.before)


@pytest.mark.long
def test_a_signal_gives_the_terminal_back(person: Person) -> None:
    person.runs(*SUBMIT)
    until("the keys go to the task", lambda: person.looks() and person.settings() != person.before)
    person.signal(signal.SIGTERM)
    assert (person.exit_code(), person.settings()) == (128 + signal.SIGTERM, person.before)


@pytest.mark.long
def test_whoever_interrupts_the_waiting_cancels_the_job(person: Person, plane: ControlPlane) -> None:
    with plane.client() as client:
        client.submit(JobName("other"), sh("sleep 600"))
        person.runs(*SUBMIT[:-3], "--depends-on", "afterany:other", *SUBMIT[-3:])
        person.sees("waiting until shell runs")
        person.types("\x03")
        person.sees("it was cancelled")
        assert person.exit_code() == ExitCode.INTERRUPTED
        until("it is cancelled", lambda: client.job("shell").state == "cancelled")


@pytest.mark.long
def test_an_untouched_terminal_is_ended_and_one_that_is_typed_to_is_not(person: Person, plane: ControlPlane) -> None:
    script = "stty -echo; echo ready; exec cat >/dev/null"
    spec = msgspec.structs.replace(sh(script, gpus=0), type="interactive", terminal=True, idle_limit=LIMIT)
    with plane.client() as client:
        client.submit(JobName("shell"), spec)
        until("it runs", lambda: client.job("shell").state == "running")
        person.runs("attach", "shell")
        person.sees("ready")
        for _ in range(28):
            person.types("k\r")  # Which is not shown, and costs hardly any CPU.
            time.sleep(LIMIT.seconds / 16)
        assert client.job("shell").state == "running"
        assert person.exit_code() == 128 + signal.SIGTERM
        until("it is over", lambda: client.job("shell").outcome)
        outcome = client.job("shell").outcome
        assert outcome is not None
        assert (outcome.state, "idle" in outcome.message) == ("cancelled", True)


def test_without_a_terminal_nothing_is_submitted() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "reconciler.cli.main", *SUBMIT], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert ran.returncode == ExitCode.USAGE
    assert "must be a terminal" in ran.stderr
