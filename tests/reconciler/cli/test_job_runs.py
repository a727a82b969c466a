"""On the command line a name means the newest job that is called so, and `train#1` the first for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from reconciler.api.server import ApiServer
from reconciler.client import ApiError, Client
from reconciler.control.control import LEASE
from reconciler.model.job_record import JobOutcome
from solver.model.workload import Dependency, JobName
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.cli.conftest import Quorate

pytestmark = pytest.mark.usefixtures("at_server")

SUBMIT = ("submit", "--name", "train", "--queue", "team", "--gpus", "1", "--chdir", "none", "--", "true")


def end(site: Site, job: str, code: int = 0) -> None:
    """It has ended."""
    epoch = site.store.ledger.lead("loop", NOW, LEASE)
    site.store.jobs.finish(epoch, JobName(job), JobOutcome("failed" if code else "succeeded", NOW, code))


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(server.url, TOKEN) as connected:
        yield connected


@pytest.fixture
def three(quorate: Quorate, site: Site) -> list[str]:
    """Two jobs that have ended, and one that waits, all called train."""
    names = []
    for number in range(3):
        ran = quorate(*SUBMIT)
        assert ran.exit_code == 0, ran.err
        names.append(ran.out.split()[1])
        if number < 2:
            end(site, names[-1], number + 3)
    return names


def test_each_run_has_an_id_and_the_name_is_the_newest(quorate: Quorate, three: list[str]) -> None:
    assert three == ["train", "train#2", "train#3"]
    for written, job in (("train", "train#3"), ("train#1", "train"), ("train#2", "train#2"), ("train#3", "train#3")):
        assert [each["name"] for each in json.loads(quorate("get", written, "-o", "json").out)["items"]] == [job]
        assert json.loads(quorate("describe", written, "-o", "json").out)["job"]["name"] == job
        assert quorate("describe", written).out.splitlines()[0].split() == ["Name", job]
    assert "no job train#7" in quorate("get", "train#7").err
    assert "exit code 4" in quorate("why", "train#2").out
    assert quorate("wait", "train#1", "--propagate").exit_code == 3
    assert quorate("wait", "train#2", "train#1", "--propagate").exit_code == 4


def test_what_is_asked_of_a_name_is_asked_of_the_newest_alone(quorate: Quorate, site: Site, three: list[str]) -> None:
    assert quorate("hold", "train", "--reason", "later", "--until", "1h").exit_code == 0
    assert [each.subject.name for each in site.store.interventions.in_force()] == ["train#3"]
    assert "train#3" in quorate("cancel", "train").out
    asked = {job.name: job.cancel_requested_by != "" for job in site.store.jobs.jobs()}
    assert asked == {"train": False, "train#2": False, "train#3": True}
    assert "train: has ended already" in quorate("cancel", "train#1").out


def test_while_the_newest_lives_the_name_is_taken(quorate: Quorate, site: Site, three: list[str]) -> None:
    ran = quorate(*SUBMIT)
    assert (ran.exit_code, "a job train exists already, and has not ended" in ran.err) == (1, True)
    assert quorate(*SUBMIT[:-2], "--test-only", *SUBMIT[-2:]).exit_code == 1
    end(site, three[-1])
    assert "train#4: " in quorate(*SUBMIT[:-2], "--test-only", *SUBMIT[-2:]).out


def test_a_dependency_means_the_newest_of_when_it_was_submitted(quorate: Quorate, site: Site, three: list[str]) -> None:
    for name, written in (("a", "train"), ("b", "train#1"), ("c", "train#2")):
        after = ("submit", "--name", name, "--queue", "team", "--depends-on", f"afterany:{written}", "--", "true")
        assert quorate(*after).exit_code == 0
    end(site, "train#3")
    assert quorate(*SUBMIT).out.split()[1] == "train#4"
    waits = {name: site.store.jobs.job(JobName(name)).spec.depends_on for name in ("a", "b", "c")}
    assert waits == {
        name: (Dependency(JobName(job), "afterany"),)
        for name, job in (("a", "train#3"), ("b", "train"), ("c", "train#2"))
    }
    unknown = ("submit", "--name", "d", "--queue", "team", "--depends-on", "afterok:train#9", "--", "true")
    assert "there is no such job" in quorate(*unknown).err


def test_programs_ask_by_the_id_and_nothing_of_it_changes(site: Site, client: Client, three: list[str]) -> None:
    """What a link or a script has from before means the same job for ever."""
    first = client.job("train")
    assert (first.name, first.outcome and first.outcome.exit_code) == ("train", 3)
    assert [event.subject for event in client.events("train#2").items] == ["train#2"]
    assert (client.newest("train"), client.newest("train#1"), client.newest("nobody")) == ("train#3", "train", "nobody")
    with pytest.raises(ApiError):
        client.job("train#1")
    again = client.submit(JobName("other"), spec(), "key")
    end(site, again.name)
    assert client.submit(JobName("other"), spec(), "").name == "other#2"
    assert client.submit(JobName("other"), spec(), "key").name == "other"


def test_a_name_is_the_newest_that_the_caller_may_see_and_never_anothers(quorate: Quorate) -> None:
    """A server that does not know the parameter answers with whichever job is newest: that is not taken for this one."""
    assert quorate(*SUBMIT).exit_code == 0
    assert quorate("get", "nobody").exit_code == 1
    assert "There is no job nobody" in quorate("get", "nobody").err
