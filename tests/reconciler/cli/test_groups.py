"""Arrays and pipelines on the command line: submitted, shown, waited for, cancelled and tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.cli.exits import ExitCode
from reconciler.model.job_record import JobOutcome
from solver.model.workload import Dependency, JobName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

pytestmark = pytest.mark.usefixtures("at_server", "now")

SWEEP = ("submit", "--name", "sweep", "--queue", "team", "--gpus", "1", "--array", "1-3%2", "--", "true")
JOB = "spec: {queue: team, taskGroups: [{name: worker, replicas: 1, shape: {gpus: 1}}], command: ['true']}"
PIPELINE = f"""\
apiVersion: quorate.dev/v1
kind: Pipeline
metadata: {{name: run}}
spec:
  jobs:
    - {{name: prepare, {JOB}}}
    - {{name: train, dependsOn: [{{job: prepare}}], {JOB}}}
    - {{name: clean, dependsOn: [{{job: prepare, condition: afternotok}}], {JOB}}}
    - name: report
      dependsOn: [{{job: train, condition: afterany}}, {{job: clean, condition: afterany}}]
      {JOB.replace("queue: team", "queue: team, array: {indices: 0-1}")}
"""
TREE = """\
run: pipeline of 5 jobs: 1 cancelled, 1 failed, 3 queued
run-prepare  failed with exit code 3
├─ run-train  cancelled  (afterok run-prepare)
└─ run-clean  queued  (afternotok run-prepare)
   └─ run-report  2 queued  (afterany run-train, afterany run-clean)
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --partition=team --ntasks=2 --gpus-per-task=1
#SBATCH --mail-type=ALL
#SBATCH -t 30
echo "$SLURM_PROCID"
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    return str(path)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "Train_it.sh"
    path.write_text(SCRIPT)
    return str(path)


def finish(site: Site, name: str, outcome: JobOutcome) -> None:
    site.store.jobs.finish(site.epoch(), JobName(name), outcome)


def test_an_array_is_submitted_and_is_one_line(quorate: Quorate, site: Site) -> None:
    submitted(site, "other")
    assert quorate(*SWEEP) == (0, "submitted array sweep: 3 jobs\n", "")
    site.bind("sweep-1", on(NODES[0], 0))
    assert site.store.jobs.job(JobName("sweep-2")).spec.env == {
        "QUORATE_ARRAY_ID": "sweep", "QUORATE_ARRAY_INDEX": "2", "QUORATE_ARRAY_COUNT": "3"
    }  # fmt: skip
    assert quorate("get").out.splitlines() == [
        "NAME   QUEUE  CLASS      STATE                 GPUS  AGE  WHERE",
        "sweep  team   (default)  2 queued, 1 starting     1   0s",
        "other  team   (default)  queued                   1   0s",
    ]
    assert (
        quorate("get", "--limit", "1").out.splitlines()[1].startswith("sweep  team   (default)  2 queued, 1 starting")
    )
    assert [line.split()[0] for line in quorate("get", "--expand").out.splitlines()[1:]] == [
        "sweep-3", "sweep-2", "sweep-1", "other"
    ]  # fmt: skip
    head = "sweep: array of 3 jobs, at most 2 at a time: 2 queued, 1 starting\n"
    assert quorate("get", "sweep").out == head
    assert (
        quorate("get", "sweep", "--state", "queued").out == f"{head}NAME     STATE\nsweep-2  queued\nsweep-3  queued\n"
    )
    assert json.loads(quorate("get", "sweep", "-o", "json").out)["counts"] == {"starting": 1, "queued": 2}


def test_why_of_an_array_is_that_of_the_first_job_in_each_state(quorate: Quorate, site: Site) -> None:
    quorate(*SWEEP)
    finish(site, "sweep-1", JobOutcome("succeeded", NOW, 0))
    finish(site, "sweep-2", JobOutcome("failed", NOW, 3, "task worker/0 failed with exit code 3"))
    assert quorate("why", "sweep").out.splitlines() == [
        "sweep: array of 3 jobs: 1 failed, 1 queued, 1 succeeded",
        "",
        "sweep-2: failed with exit code 3, 0s ago",
        "  task worker/0 failed with exit code 3",
        "",
        "sweep-3: queued for 0s",
        "  it starts: 1 GPU, 1 of them inside the guarantee",
    ]
    data = json.loads(quorate("why", "sweep", "-o", "json").out)
    assert [(each["name"], each["state"]) for each in data["items"]] == [("sweep-2", "failed"), ("sweep-3", "queued")]


def test_why_of_a_pipeline_counts_what_waits_alike(quorate: Quorate, pipeline: str) -> None:
    quorate("submit", "-f", pipeline)
    head, _, first, job, *_ = quorate("why", "run").out.splitlines()
    assert head.startswith("run: pipeline of ")
    assert first.startswith("The first of ")
    assert first.endswith(" that are queued:")
    assert job.startswith("run-prepare: queued")


def test_logs_of_an_array_are_those_of_its_jobs_one_after_the_other(quorate: Quorate, site: Site) -> None:
    quorate(*SWEEP)
    assert quorate("logs", "sweep") == (
        1, "", "error: no job of sweep has written a log yet\n  `quorate why sweep`\n"
    )  # fmt: skip
    for index in (1, 2):
        site.bind(f"sweep-{index}", on(NODES[0], index))
        site.logs[JobName(f"sweep-{index}"), 1, "worker", 0] = f"rank {index}\n".encode()
    assert quorate("logs", "sweep").out == "==> sweep-1 <==\nrank 1\n\n==> sweep-2 <==\nrank 2\n"
    assert (
        quorate("logs", "sweep", "-f").err
        == "error: sweep has 3 jobs: -f follows one\n  Name one of them, such as sweep-1.\n"
    )


def test_an_array_in_a_file_is_submitted_whole_and_once(quorate: Quorate, site: Site, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: quorate.dev/v1\nkind: Job\nmetadata: {name: s}\n"
        + JOB.replace("queue: team", "queue: team, array: {indices: 0-9}")
    )
    for _ in range(2):
        assert quorate("submit", "-f", str(path), "--key", "k").out == "submitted array s: 10 jobs\n"
    assert len(site.store.jobs.jobs()) == 10
    assert "s exists already" in quorate("submit", "-f", str(path)).err


def test_a_pipeline_is_shown_as_a_tree(quorate: Quorate, site: Site, pipeline: str) -> None:
    for _ in range(2):
        assert quorate("submit", "-f", pipeline, "--key", "k").out == "submitted pipeline run: 5 jobs\n"
    finish(site, "run-prepare", JobOutcome("failed", NOW, 3))
    finish(site, "run-train", JobOutcome("cancelled", NOW, unmet=Dependency(JobName("run-prepare"))))
    assert quorate("get", "run") == (0, TREE, "")
    assert quorate("get", "run", "--expand").out.splitlines()[-1] == "run-report-1  queued"
    assert quorate("get", "run-report").out == "run-report: array of 2 jobs: 2 queued\n"


def test_name_and_queue_replace_those_of_every_job(quorate: Quorate, site: Site, pipeline: str) -> None:
    assert quorate("submit", "-f", pipeline, "--name", "again", "--queue", "other").exit_code == 0
    assert {record.spec.queue for record in site.store.jobs.jobs()} == {"other"}
    assert site.store.jobs.group(JobName("again")).kind == "pipeline"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (("succeeded", "succeeded", "succeeded"), 0),
        (("succeeded", 3, 7), 7),
        (("succeeded", "unmet", "succeeded"), 0),
        (("succeeded", "cancelled", "succeeded"), 1),
        ((137, "cancelled", 3), 137),
    ],
)
def test_an_array_is_waited_for_with_its_worst_code(
    quorate: Quorate, site: Site, outcomes: tuple[str | int, ...], code: int
) -> None:
    quorate(*SWEEP)
    assert quorate("wait", "sweep", "--timeout", "1ms").exit_code == ExitCode.WAIT_TIMED_OUT
    ends = {
        "succeeded": JobOutcome("succeeded", NOW, 0),
        "cancelled": JobOutcome("cancelled", NOW),
        "unmet": JobOutcome("cancelled", NOW, unmet=Dependency(JobName("a"))),
    }
    for index, end in enumerate(outcomes, 1):
        finish(site, f"sweep-{index}", JobOutcome("failed", NOW, end) if isinstance(end, int) else ends[end])
    assert quorate("wait", "sweep").exit_code == 0
    assert quorate("wait", "sweep", "--propagate").exit_code == code
    assert "don't run all at once" in quorate("wait", "sweep", "--for", "running").err


def test_an_array_is_described_with_what_went_wrong(quorate: Quorate, site: Site) -> None:
    quorate(*SWEEP)
    finish(site, "sweep-2", JobOutcome("failed", NOW, 3))
    assert quorate("describe", "sweep").out == (
        "Name        sweep\nArray       3 jobs: 1 failed, 2 queued\nAt a time   at most 2\nUser        alice\n"
        "Submitted   2023-11-15 00:13:20 +02:00\nWent wrong  sweep-2\n"
    )


def test_a_group_is_cancelled_by_its_name(quorate: Quorate, site: Site, pipeline: str) -> None:
    quorate("submit", "-f", pipeline)
    submitted(site, "alone")
    assert quorate("cancel", "run", "alone").out == "run: all its jobs: asked to end\nalone: asked to end\n"
    assert {record.cancel_requested_by for record in site.store.jobs.jobs()} == {"alice"}
    assert "There is no job rum" in quorate("cancel", "rum").err


def test_a_group_is_suspended_job_by_job(quorate: Quorate, site: Site) -> None:
    quorate(*SWEEP)
    finish(site, "sweep-2", JobOutcome("succeeded", NOW, 0))
    assert quorate("suspend", "sweep").out == "sweep: all its jobs: asked to wait until it is resumed\n"
    assert {record.name: record.suspended_by for record in site.store.jobs.jobs()} == {
        "sweep-1": "alice", "sweep-2": "", "sweep-3": "alice"
    }  # fmt: skip


def test_why_says_what_a_job_waits_for(quorate: Quorate, site: Site) -> None:
    quorate(*SWEEP)
    quorate("submit", "--name", "after", "--queue", "team", "--depends-on", "afterok:sweep", "--", "true")
    assert "begins only after: afterok sweep" in quorate("why", "after").out
    site.bind("sweep-1", on(NODES[0], 0))
    assert "array sweep runs 2 of at most 2 at a time; lower indices go first" in quorate("why", "sweep-3").out


def test_dependencies_name_what_is_there(quorate: Quorate, site: Site) -> None:
    quorate(*SWEEP)
    after = ("submit", "--name", "after", "--queue", "team", "--depends-on")
    ran = quorate(*after, "afterok:swep-1", "--", "true")
    assert (ran.exit_code, ran.out) == (1, "")
    assert "after depends on swep-1, and there is no such job" in ran.err
    assert "Did you mean sweep-1?" in ran.err
    assert quorate(*after, "afterok:sweep", "--", "true").exit_code == 0
    assert site.store.jobs.job(JobName("after")).spec.depends_on == (Dependency(JobName("sweep")),)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--array", "3-1"), "the range ends before it begins"),
        (("--array", "0-9%x"), "expected INDICES or INDICES%N"),
        (("--array", "0-9%0"), "at least 1 is allowed"),
        (("--depends-on", "sweep"), "expected CONDITION:JOB"),
        (("--depends-on", "after:sweep"), "can't be 'after'"),
        (("--strict",), "--strict is for a SCRIPT"),
    ],
)
def test_wrong_options_are_usage_errors(quorate: Quorate, options: tuple[str, ...], problem: str) -> None:
    ran = quorate("submit", "--name", "x", "--queue", "team", *options, "--", "true")
    assert (ran.exit_code, ran.out) == (64, "")
    assert problem in ran.err


def test_a_group_that_could_never_run_is_refused_whole(quorate: Quorate, site: Site, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.replace("name: clean", "name: huge").replace("job: clean", "job: huge", 1))
    text = path.read_text().replace("shape: {gpus: 1}", "shape: {gpus: 8}", 3).replace("gpus: 8", "gpus: 1", 2)
    path.write_text(text)
    assert "run-huge could never run: needs 8 H100" in quorate("submit", "-f", str(path)).err
    assert site.store.jobs.jobs() == ()


def test_a_script_becomes_a_job_and_says_what_it_ignores(quorate: Quorate, site: Site, script: str) -> None:
    ran = quorate("submit", script, "--class", "gold", "--env", "A=1", "--", "--lr", "0.1")
    ignored = f"ignored: {script}:3: --mail-type: notifications are no part of a job\n"
    assert ran == (0, "submitted train-it to team: 2 tasks, 2 GPUs\n", ignored)
    spec = site.store.jobs.job(JobName("train-it")).spec
    assert spec.command[-4:] == (SCRIPT, script, "--lr", "0.1")
    assert (spec.priority_class, str(spec.time_limit), spec.env["A"]) == ("gold", "30m", "1")


@pytest.mark.parametrize(
    ("options", "exit_code", "problem"),
    [
        (("--strict",), 64, "not followed"),
        (("--gpus", "4"), 64, "the script says what its tasks need"),
        (("-f", "job.yaml"), 64, "-f describes the whole job"),
    ],
)
def test_what_a_script_does_not_go_with(
    quorate: Quorate, site: Site, script: str, options: tuple[str, ...], exit_code: int, problem: str
) -> None:
    ran = quorate("submit", script, *options)
    assert (ran.exit_code, ran.out) == (exit_code, "")
    assert problem in ran.err
    assert site.store.jobs.jobs() == ()


def test_a_script_that_can_not_be_followed_is_refused_at_its_line(quorate: Quorate, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/sh\n#SBATCH -t soon\n")
    assert f"{path}:2: --time: 'soon' is no time" in quorate("submit", str(path), "--queue", "team").err
    path.write_text("#!/bin/sh\n#SBATCH -t 5\n")
    assert "the script names no account or partition" in quorate("submit", str(path)).err


def test_after_the_separator_a_script_is_a_command(quorate: Quorate, site: Site, script: str) -> None:
    assert quorate("submit", "--name", "x", "--queue", "team", "--", script).exit_code == 0
    assert site.store.jobs.job(JobName("x")).spec.command == (script,)
    assert "this is no script" in quorate("submit", "nowhere.sh", "--", "x").err


TRIED = [
    (("--gpus", "1"), 0, "x: would start now\n  it starts: 1 GPU, 1 of them inside the guarantee\n  on n1\n"),
    (
        ("--gpus", "8"),
        1,
        "x: could never run\n  needs 8 H100; queue team may never hold more than 6\n  Up to 6 H100 would fit in queue team.\n",
    ),
    (("--gpus", "1", "--depends-on", "afterok:full"), 0, "x: would wait for afterok full\n"),
]


@pytest.mark.parametrize(("options", "exit_code", "said"), TRIED)
def test_what_would_happen_is_said_and_nothing_does(
    quorate: Quorate, site: Site, options: tuple[str, ...], exit_code: int, said: str
) -> None:
    submitted(site, "full")
    ran = quorate("submit", "--test-only", "--name", "x", "--queue", "team", *options, "--", "true")
    assert ran == (exit_code, said, "")
    assert [record.name for record in site.store.jobs.jobs()] == ["full"]
    assert site.woken == 0


def test_a_job_that_would_wait_is_told_for_what(quorate: Quorate, site: Site) -> None:
    submitted(site, "full", gpus=3, replicas=2)
    site.bind("full", on(NODES[0], 0, 1, 2), on(NODES[1], 0, 1, 2, index=1))
    ran = quorate("submit", "--test-only", "--name", "x", "--queue", "team", "--gpus", "1", "--", "true")
    assert (ran.exit_code, ran.out.splitlines()[:2]) == (
        0, ["x: would wait", "  queue team holds 6 of max 6 H100; this job needs 1"]
    )  # fmt: skip


def test_an_array_is_tried_as_far_as_it_would_begin(quorate: Quorate, now: Now) -> None:
    now.advance(60)
    ran = quorate(*SWEEP[:-2], "--test-only", "-o", "json", "--", "true")
    tried = {each["name"]: each for each in json.loads(ran.out)["items"]}
    assert {name: each["verdict"] and each["verdict"]["verdict"] for name, each in tried.items()} == {
        "sweep-1": "starts", "sweep-2": "starts", "sweep-3": None
    }  # fmt: skip
    assert tried["sweep-3"]["waitsFor"] == ["others of array sweep"]
    large = ("--array", "0-199", "--test-only", "--", "true")
    assert "and 100 jobs more" in quorate("submit", "--name", "x", "--queue", "team", *large).out


def test_what_comes_to_the_same_is_told_once(quorate: Quorate) -> None:
    wide = ("--gpus", "8", "--array", "0-9", "--test-only", "--", "true")
    ran = quorate("submit", "--name", "x", "--queue", "team", *wide)
    told = "  Up to 6 H100 would fit in queue team.\n  the same of x-1, x-2, x-3 and 6 more\n"
    assert (ran.exit_code, ran.out.count("could never run"), ran.out.endswith(told)) == (1, 1, True)


def test_a_trial_of_a_taken_name_is_refused(quorate: Quorate, site: Site) -> None:
    submitted(site, "x")
    ran = quorate("submit", "--test-only", "--name", "x", "--queue", "team", "--", "true")
    assert (ran.exit_code, ran.out) == (1, "")
    assert "x exists already" in ran.err
