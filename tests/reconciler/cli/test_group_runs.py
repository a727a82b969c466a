"""On the command line the name of an array or pipeline means the newest that is called so, and `sweep#1` the first for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.api import submitter
from reconciler.api.server import ApiServer
from reconciler.api.submission import next_batch
from reconciler.client import ApiError, Client, NotAuthorisedError
from reconciler.model.expansion import expand_array
from reconciler.model.job_groups import Batch
from reconciler.model.job_record import ArrayElement, JobOutcome
from solver.model.workload import Dependency, JobArray, JobName
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.api.people import client_of, serving
from tests.reconciler.cli.conftest import Quorate

pytestmark = pytest.mark.usefixtures("at_server", "now")

SWEEP = ("submit", "--name", "sweep", "--queue", "team", "--gpus", "1", "--array", "0-1", "--", "true")
ALONE = ("submit", "--name", "sweep", "--queue", "team", "--gpus", "1", "--", "true")
JOB = "spec: {queue: team, taskGroups: [{name: worker, replicas: 1, shape: {gpus: 1}}], command: ['true']}"
PIPELINE = f"""\
apiVersion: quorate.dev/v1
kind: Pipeline
metadata: {{name: nightly}}
spec:
  artifacts: file:///shared
  jobs:
    - {{name: prepare, outputs: {{data: d.tar}}, {JOB}}}
    - {{name: fit, dependsOn: [{{job: prepare}}], {JOB.replace("queue: team", "queue: team, array: {indices: 0-1}")}}}
"""
SCRIPT = "#!/bin/bash\n#SBATCH --job-name=sweep --array=0-1 --partition=team\necho hello\n"


def end(site: Site, group: str, code: int = 0) -> None:
    """All jobs of it have ended."""
    outcome = JobOutcome("failed" if code else "succeeded", NOW, code)
    names = [job.name for job in site.store.jobs.members(JobName(group))]
    site.store.jobs.finish_all(site.epoch(), dict.fromkeys(names, outcome))


def ids(quorate: Quorate, *arguments: str) -> list[str]:
    return [each["name"] for each in json.loads(quorate(*arguments, "-o", "json").out)["items"]]


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(server.url, TOKEN) as connected:
        yield connected


@pytest.fixture
def three(quorate: Quorate, site: Site) -> list[str]:
    """Two arrays that have ended, and one that waits, all called sweep."""
    names = []
    for number in range(3):
        ran = quorate(*SWEEP)
        assert ran.exit_code == 0, ran.err
        names.append(ran.out.split()[2].rstrip(":"))
        if number < 2:
            end(site, names[-1], number + 3)
    return names


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    return str(path)


def test_the_name_of_an_array_is_the_newest_and_that_of_an_element_too(quorate: Quorate, three: list[str]) -> None:
    assert three == ["sweep", "sweep#2", "sweep#3"]
    for written, group in (("sweep", "sweep#3"), ("sweep#1", "sweep"), ("sweep#2", "sweep#2"), ("sweep#3", "sweep#3")):
        assert quorate("get", written).out.startswith(f"{group}: array of 2 jobs")
        assert json.loads(quorate("describe", written, "-o", "json").out)["name"] == group
        assert group in quorate("why", written).out
    for written, job in (("sweep-1", "sweep#3-1"), ("sweep#1-1", "sweep-1"), ("sweep#2-1", "sweep#2-1")):
        assert ids(quorate, "get", written) == [job]
    assert "no job sweep#7" in quorate("get", "sweep#7").err
    assert quorate("wait", "sweep#1", "--propagate").exit_code == 3
    assert quorate("wait", "sweep#2", "sweep#1", "--propagate").exit_code == 4


def test_what_is_asked_of_a_name_is_asked_of_the_newest_alone(quorate: Quorate, site: Site, three: list[str]) -> None:
    assert quorate("suspend", "sweep-0").exit_code == 0
    assert "sweep#3" in quorate("cancel", "sweep").out
    asked = {job.name for job in site.store.jobs.jobs() if job.cancel_requested_by}
    assert (asked, {job.name for job in site.store.jobs.jobs() if job.suspended_by}) == (
        {"sweep#3-0", "sweep#3-1"}, {"sweep#3-0"}
    )  # fmt: skip
    assert "sweep: has ended already: 2 failed" in quorate("cancel", "sweep#1").out
    assert [event.subject for event in site.store.history.events(JobName("sweep#3"))] == ["sweep#3", "sweep#3"]


def test_while_something_of_the_newest_lives_its_names_are_taken(
    quorate: Quorate, site: Site, three: list[str]
) -> None:
    for words in (SWEEP, ALONE):
        ran = quorate(*words)
        assert (ran.exit_code, "an array sweep exists already, and has not ended whole" in ran.err) == (1, True)
        assert quorate(*words[:-2], "--test-only", *words[-2:]).exit_code == 1
    end(site, three[-1])
    assert "sweep#4-0: " in quorate(*SWEEP[:-2], "--test-only", *SWEEP[-2:]).out
    assert quorate(*ALONE).out.startswith("submitted sweep#4 to team")
    assert ids(quorate, "get", "sweep") == ["sweep#4"]
    site.store.jobs.finish(site.epoch(), JobName("sweep#4"), JobOutcome("succeeded", NOW, 0))
    assert quorate(*SWEEP).exit_code == 0
    assert quorate("get", "sweep").out.startswith("sweep#5: array of 2 jobs")
    assert quorate("get", "sweep#3").out.startswith("sweep#3: array of 2 jobs")


def test_each_pipeline_has_its_own_stages_and_folders(quorate: Quorate, site: Site, pipeline: str) -> None:
    for group in ("nightly", "nightly#2"):
        assert quorate("submit", "-f", pipeline).out == f"submitted pipeline {group}: 3 jobs\n"
        if group == "nightly":
            end(site, group)
    assert quorate("get", "nightly").out.splitlines() == [
        "nightly#2: pipeline of 3 jobs: 3 queued",
        "nightly#2-prepare  queued",
        "└─ nightly#2-fit  2 queued  (afterok nightly#2-prepare)",
    ]
    told = site.store.jobs.job(JobName("nightly#2-fit-1")).spec
    assert site.store.jobs.job(JobName("nightly#2-fit-0")).array == ArrayElement(JobName("nightly#2-fit"), 0, 2)
    assert told.depends_on == (Dependency(JobName("nightly#2-prepare"), "afterok"),)
    assert told.env == {
        "QUORATE_ARRAY_COUNT": "2", "QUORATE_ARRAY_ID": "nightly#2-fit", "QUORATE_ARRAY_INDEX": "1",
        "QUORATE_PIPELINE": "nightly#2", "QUORATE_INPUT_PREPARE_DATA": "/shared/nightly.2/prepare/d.tar",
    }  # fmt: skip
    assert quorate("get", "nightly-fit").out.startswith("nightly#2-fit: array of 2 jobs")


def test_a_stage_that_names_its_own_pipeline_in_full_means_the_one_it_is_of(
    quorate: Quorate, site: Site, tmp_path: Path
) -> None:
    """Under `spec.dependsOn`, where what was submitted before is named: not the stage of the run before."""
    path = tmp_path / "pipeline.yaml"
    last = JOB.replace("queue: team", "queue: team, dependsOn: [{job: nightly-fit}, {job: nightly}]")
    path.write_text(f"{PIPELINE}    - {{name: tell, {last}}}\n")
    before = path.with_name("before.yaml")
    before.write_text(PIPELINE)
    assert quorate("submit", "-f", str(before)).exit_code == 0
    end(site, "nightly")
    assert quorate("submit", "-f", str(path)).out == "submitted pipeline nightly#2: 4 jobs\n"
    waits = site.store.jobs.job(JobName("nightly#2-tell")).spec.depends_on
    assert [each.job for each in waits] == ["nightly#2-fit", "nightly"]


def test_a_dependency_means_the_newest_of_when_it_was_submitted(quorate: Quorate, site: Site, three: list[str]) -> None:
    written = {"a": "sweep", "b": "sweep#1", "c": "sweep#2-1", "d": "sweep-1"}
    for name, job in written.items():
        after = ("submit", "--name", name, "--queue", "team", "--depends-on", f"afterany:{job}", "--", "true")
        assert quorate(*after).exit_code == 0
    end(site, "sweep#3")
    assert quorate(*SWEEP).exit_code == 0
    waits = {name: site.store.jobs.job(JobName(name)).spec.depends_on[0].job for name in written}
    assert waits == {"a": "sweep#3", "b": "sweep", "c": "sweep#2-1", "d": "sweep#3-1"}
    again = (*SWEEP[:-2], "--depends-on", "afterok:sweep", *SWEEP[-2:])
    end(site, "sweep#4")
    assert quorate(*again).exit_code == 0
    itself = site.store.jobs.job(JobName("sweep#5-0")).spec.depends_on
    assert itself == (Dependency(JobName("sweep#4"), "afterok"),)
    unknown = ("submit", "--name", "e", "--queue", "team", "--depends-on", "afterok:sweep#9-1", "--", "true")
    assert "there is no such job" in quorate(*unknown).err


def test_an_array_from_a_batch_script_is_named_again(
    quorate: Quorate, site: Site, tmp_path: Path, three: list[str]
) -> None:
    path = tmp_path / "sweep.sh"
    path.write_text(SCRIPT)
    end(site, "sweep#3")
    assert quorate("submit", str(path)).out == "submitted array sweep#4: 2 jobs\n"
    env = site.store.jobs.job(JobName("sweep#4-1")).spec.env
    assert (env["QUORATE_ARRAY_ID"], env["QUORATE_ARRAY_INDEX"]) == ("sweep#4", "1")


def test_a_key_finds_the_array_that_it_was(quorate: Quorate, site: Site) -> None:
    first = (*SWEEP[:-2], "--key", "one", *SWEEP[-2:])
    assert quorate(*first).out == quorate(*first).out == "submitted array sweep: 2 jobs\n"
    end(site, "sweep")
    assert quorate(*SWEEP).out == "submitted array sweep#2: 2 jobs\n"
    assert quorate(*first).out == "submitted array sweep: 2 jobs\n"
    end(site, "sweep#2")
    assert quorate(*first[:-2], "--wait", *first[-2:]) == (0, "sweep: 2 succeeded\n", "")
    assert len(site.store.jobs.jobs()) == 4


def test_the_api_knows_ids_and_says_which_one_a_name_means(
    client: Client, quorate: Quorate, site: Site, three: list[str]
) -> None:
    assert client.group("sweep").counts == {"failed": 2}
    assert [client.newest(name) for name in ("sweep", "sweep#1", "sweep-0", "nobody")] == [
        "sweep#3", "sweep", "sweep#3-0", "nobody"
    ]  # fmt: skip
    with pytest.raises(ApiError):
        client.group("sweep#1")
    with pytest.raises(ApiError, match="no array or pipeline sweep#4"):
        client.cancel_group("sweep#4")


def test_a_number_that_is_passed_while_a_submission_is_judged_is_not_told(
    quorate: Quorate, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another array of the name came and ended between the look and the write."""
    assert quorate(*SWEEP).exit_code == 0
    end(site, "sweep")

    def late(*arguments: Any) -> Batch:
        found = next_batch(*arguments)
        monkeypatch.setattr(submitter, "next_batch", next_batch)
        quicker = expand_array(JobName("sweep#2"), msgspec.structs.replace(spec(), array=JobArray("0-1")))
        site.store.jobs.submit_all(quicker, "bob", NOW, "")
        end(site, "sweep#2")
        return found

    monkeypatch.setattr(submitter, "next_batch", late)
    assert quorate(*SWEEP).out == "submitted array sweep#3: 2 jobs\n"
    assert [job.name for job in site.store.jobs.live_jobs()] == ["sweep#3-0", "sweep#3-1"]


def test_a_caller_who_sees_only_some_gets_the_newest_of_those(quorate: Quorate, site: Site) -> None:
    """`stranger` has a role in the queue other alone."""
    assert quorate(*[word.replace("team", "other") for word in SWEEP]).exit_code == 0
    end(site, "sweep")
    assert quorate(*SWEEP).exit_code == 0
    end(site, "sweep#2")
    assert quorate(*ALONE).exit_code == 0
    with serving(site) as server, client_of(server, "viewer") as viewer, client_of(server, "stranger") as stranger:
        assert [viewer.newest(name) for name in ("sweep", "sweep-0")] == ["sweep#3", "sweep#2-0"]
        assert [stranger.newest(name) for name in ("sweep", "sweep-0")] == ["sweep", "sweep-0"]
        assert stranger.group("sweep").counts == {"succeeded": 2}
        with pytest.raises(NotAuthorisedError):
            stranger.group("sweep#2")
