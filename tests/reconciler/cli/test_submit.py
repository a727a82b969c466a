"""`quorate submit`: from a file, from options, refused with what would fit, and repeatable with a key."""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import sys
import time
from pathlib import Path

import pytest

from reconciler.api.server import ApiServer
from reconciler.model.clock import SystemClock
from solver.model.document import encode
from solver.model.workload import JobName
from tests.reconciler.api.conftest import Site
from tests.reconciler.cli.conftest import Quorate

JOB = """\
apiVersion: quorate.dev/v1
kind: Job
metadata: {name: llama}
spec:
  queue: team
  taskGroups: [{name: worker, replicas: 2, shape: {gpus: 2}}]
  command: [python, train.py]
"""
SHORT = ("submit", "--name", "short", "--queue", "team")

pytestmark = pytest.mark.usefixtures("at_server")


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


def test_a_file_is_submitted(quorate: Quorate, site: Site, job_file: str) -> None:
    assert quorate("submit", "-f", job_file) == (0, "submitted llama to team: 2 tasks, 4 GPUs\n", "")
    assert site.store.jobs.job(JobName("llama")).spec.command == ("python", "train.py")
    assert site.woken == 1


def test_name_and_queue_replace_those_of_the_file(quorate: Quorate, site: Site, job_file: str) -> None:
    assert quorate("submit", "-f", job_file, "--name", "again", "--queue", "other").exit_code == 0
    assert site.store.jobs.job(JobName("again")).spec.queue == "other"


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        ("python train.py --lr 0.1", "train"),
        ("torchrun --nproc-per-node=8 pretrain/Main_7B.py", "main-7b"),
        ("python3.11 -m project.train", "project-train"),
        ("env A=b /usr/bin/nvidia-smi", "nvidia-smi"),
        ("bash -c", "job"),
        ("./a-script-whose-name-has-no-end-at-all.sh", "a-script-whose-name-has"),
    ],
)
def test_a_job_without_a_name_gets_one_that_says_what_it_runs(
    quorate: Quorate, site: Site, command: str, stem: str
) -> None:
    ran = quorate("submit", "--queue", "team", "--", *command.split())
    (record,) = site.store.jobs.jobs()
    assert re.fullmatch(f"{stem}-[2-9b-z]{{4}}", record.name)
    assert ran == (0, f"submitted {record.name} to team: 1 task, 0 GPUs\n", "")


def test_a_name_by_chance_that_is_taken_is_another(
    quorate: Quorate, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_chance = iter("222222223333")
    monkeypatch.setattr(secrets, "choice", lambda _: next(by_chance))
    for _ in range(2):
        assert quorate("submit", "--queue", "team", "--", "train").exit_code == 0
    assert {record.name for record in site.store.jobs.jobs()} == {"train-2222", "train-3333"}


def test_a_key_without_a_name_would_be_of_no_use(quorate: Quorate) -> None:
    ran = quorate("submit", "--queue", "team", "--key", "k", "--", "train")
    assert ran.exit_code == 64
    assert "give it a --name" in ran.err


def test_stdin_is_a_file(quorate: Quorate, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))
    assert quorate("submit", "-f", "-").exit_code == 0
    assert [record.name for record in site.store.jobs.jobs()] == ["llama"]


def test_a_document_without_f_is_not_taken_for_a_command(quorate: Quorate, site: Site, job_file: str) -> None:
    for options in ((), SHORT[1:]):
        ran = quorate("submit", job_file, *options)
        fix = f"Submit it with `quorate submit -f {job_file}`."
        assert ran == (64, "", f"error: {job_file}: this is a document, and no command\n  {fix}\n")
        gone = quorate("submit", "nowhere.yaml", *options)
        told = (
            "error: nowhere.yaml: there is no such file, and no such command\n  A document is submitted with -f FILE.\n"
        )
        assert gone == (64, "", told)
    assert site.store.jobs.jobs() == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/bash\npython train.py\n", "it has no #SBATCH lines"),
        ("#!/bin/bash\nset -e\n#SBATCH --gpus=1\n", "its #SBATCH lines are not before the first command"),
        ("#SBATCH --gpus=1\npython train.py\n", "it does not begin with #!"),
    ],
)
def test_a_script_that_is_none_for_sbatch_is_not_taken_for_a_command(
    quorate: Quorate, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    """It is not looked for in the folder that tasks begin in, but in PATH. After `--` or by its whole path it may be meant."""
    (tmp_path / "train.sh").write_text(text)
    monkeypatch.chdir(tmp_path)
    for options in ((), SHORT[1:]):
        ran = quorate("submit", "train.sh", *options)
        assert (ran.exit_code, ran.out, ran.err.splitlines()[0]) == (64, "", f"error: train.sh: {why}")
    assert site.store.jobs.jobs() == ()
    assert quorate(*SHORT, "--", "train.sh").exit_code == 0
    assert quorate("submit", str(tmp_path / "train.sh"), *SHORT[1:], "--name", "other").exit_code == 0


SCRIPT = "#!/bin/sh\n#SBATCH -p team\n{}pwd\n"

BEGINS_IN = [
    ((), "{here}"),
    (("--chdir", "sub/folder"), "{here}/sub/folder"),
    (("--chdir", "."), "{here}"),
    (("--chdir", "none"), ""),
    (("--chdir", "./none"), "{here}/none"),
    (("--chdir", "/data/run"), "/data/run"),
    (("--image", "example.org/train:1"), ""),
    (("--image", "example.org/train:1", "--chdir", "/app"), "/app"),
]


def test_tasks_begin_in_the_folder_that_they_were_submitted_from(
    quorate: Quorate, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT.format(""))
    monkeypatch.chdir(tmp_path)
    for number, (options, folder) in enumerate(BEGINS_IN):
        command, script = f"command-{number}", f"script-{number}"
        assert quorate("submit", "--name", command, "--queue", "team", *options, "--", "pwd").exit_code == 0
        assert quorate("submit", "run.sh", "--name", script, *options).exit_code == 0
        for name in (command, script):
            record = site.store.jobs.job(JobName(name))
            assert record.spec.working_directory == folder.format(here=tmp_path), (name, options)


def test_the_account_of_a_script_says_its_queue(quorate: Quorate, site: Site, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n#SBATCH --account=Team --partition=gpu\npwd\n")
    ran = quorate("submit", str(tmp_path / "run.sh"), "--chdir", "none")
    assert (ran.exit_code, site.store.jobs.job(JobName("run")).spec.queue) == (0, "team")
    assert "ignored:" in ran.err
    assert "--partition: the queue is team, that of the account" in ran.err
    ran = quorate("submit", str(tmp_path / "run.sh"), "--name", "said", "--queue", "other", "--strict")
    assert (ran.exit_code, "--account: --queue says the queue" in ran.err) == (64, True)


def test_a_script_may_name_its_folder_and_an_option_another(
    quorate: Quorate, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT.format("#SBATCH --chdir=sub\n"))
    monkeypatch.chdir(tmp_path)
    options = {
        "own": (),
        "boxed": ("--image", "example.org/train:1"),
        "away": ("--chdir", "/data"),
        "out": ("--chdir", "none"),
    }
    for name, given in options.items():
        assert quorate("submit", "run.sh", "--name", name, *given).exit_code == 0
    assert {record.name: record.spec.working_directory for record in site.store.jobs.jobs()} == {
        "own": f"{tmp_path}/sub", "boxed": f"{tmp_path}/sub", "away": "/data", "out": ""
    }  # fmt: skip


def test_a_job_in_a_file_begins_where_the_file_says(quorate: Quorate, site: Site, job_file: str) -> None:
    assert quorate("submit", "-f", job_file).exit_code == 0
    assert site.store.jobs.job(JobName("llama")).spec.working_directory == ""
    assert "-f describes the whole job" in quorate("submit", "-f", job_file, "--chdir", "/data").err
    Path(job_file).write_text(f"{JOB}  workingDirectory: data/run\n")
    ran = quorate("submit", "-f", job_file, "--name", "other")
    problem = (
        "spec.workingDirectory: 'data/run' is not a full path that begins with /\n  Write it like /data/ada/vision."
    )
    assert (ran.exit_code, problem in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("name", "gone", "problem"),
    [
        (b"gone", True, "the folder that you are in is gone"),
        (b"caf\xe9", False, "the name of this folder is not UTF-8"),
    ],
)
def test_a_folder_that_no_job_can_name_is_said(
    quorate: Quorate, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes, gone: bool, problem: str
) -> None:
    here = os.path.join(os.fsencode(tmp_path), name)
    os.mkdir(here)
    monkeypatch.chdir(os.fsdecode(here))
    if gone:
        os.rmdir(here)
    ran = quorate(*SHORT, "--", "pwd")
    assert (ran.exit_code, ran.out, problem in ran.err) == (1, "", True)
    assert quorate(*SHORT, "--chdir", "none", "--", "pwd").exit_code == 0
    assert [record.name for record in site.store.jobs.jobs()] == ["short"]


def test_the_short_form_has_every_field(quorate: Quorate, site: Site) -> None:
    options = (
        "--gpus 2 --tasks 3 --type H100 --type A100 --class gold --cpu 8 --memory 64Gi --node-label disk=nvme "
        "--min-gpu-memory 40Gi "
        "--time-limit 90m --finish-by 2036-12-01T08:00+01:00 "
        "--topology required=rack --topology preferred=island --topology preferred=rack --env A=1=2 --env B= "
        "--chdir /data/run"
    )
    assert quorate(*SHORT, *options.split(), "--", "python", "train.py", "--lr", "0.1").exit_code == 0
    assert json.loads(encode(site.store.jobs.job(JobName("short")).spec)) == {
        "queue": "team",
        "priorityClass": "gold",
        "taskGroups": [
            {
                "name": "worker",
                "replicas": 3,
                "shape": {
                    "gpus": 2,
                    "gpuTypes": ["H100", "A100"],
                    "cpu": "8",
                    "memory": "64Gi",
                    "nodeLabels": ["disk=nvme"],
                    "minGpuMemory": "40Gi",
                },
            }
        ],
        "timeLimit": "90m",
        "finishBy": "2036-12-01T07:00:00Z",
        "topology": {"required": "rack", "preferred": ["island", "rack"]},
        "command": ["python", "train.py", "--lr", "0.1"],
        "workingDirectory": "/data/run",
        "env": {"A": "1=2", "B": ""},
    }


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ("--gpu-fraction 0.5", {"gpuFraction": 0.5}),
        ("--gpu-fraction 0.25 --devices 2 --type H100", {"gpuFraction": 0.25, "devices": 2, "gpuTypes": ["H100"]}),
        ("--gpu-memory 20Gi --devices 2", {"gpuMemory": "20Gi", "devices": 2}),
        ("--mig 1g.10gb --min-gpu-memory 40Gi", {"mig": "1g.10gb", "minGpuMemory": "40Gi"}),
        ("--mig 1g.10gb --devices 2", {"mig": "1g.10gb", "devices": 2}),
    ],
)
def test_parts_of_gpus_are_asked_for_as_in_a_file(
    quorate: Quorate, site: Site, options: str, shape: dict[str, object]
) -> None:
    assert quorate(*SHORT, *options.split(), "--", "true").exit_code == 0
    spec = json.loads(encode(site.store.jobs.job(JobName("short")).spec))
    assert spec["taskGroups"][0]["shape"] == shape


def test_a_time_without_a_zone_is_by_this_machines_clock(
    quorate: Quorate, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert quorate(*SHORT, "--finish-by", "2036-12-01T08:00", "--", "true").exit_code == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert str(site.store.jobs.job(JobName("short")).spec.finish_by) == "2036-11-30T23:00:00Z"


def test_a_time_may_be_how_long_from_now(quorate: Quorate, site: Site) -> None:
    before = SystemClock().now()
    assert quorate(*SHORT, "--finish-by", "6h", "--", "true").exit_code == 0
    by = site.store.jobs.job(JobName("short")).spec.finish_by
    assert by is not None
    assert before.after(6 * 3_600_000) <= by <= SystemClock().now().after(6 * 3_600_000)
    failed = quorate(*SHORT, "--finish-by", "0s", "--", "true")
    assert (failed.exit_code, "it must be later than now" in failed.err) == (64, True)


def test_a_job_without_gpus_is_one_task(quorate: Quorate) -> None:
    assert quorate(*SHORT, "--gpus", "0", "--", "true").out == "submitted short to team: 1 task, 0 GPUs\n"


@pytest.mark.parametrize(
    ("arguments", "problem", "fix"),
    [
        (("submit",), "missing --queue, -- COMMAND (or -f FILE)", "See `quorate submit --help`."),
        ((*SHORT, "--gpus", "1"), "missing -- COMMAND (or -f FILE)", "See `quorate submit --help`."),
        ((*SHORT, "--gpus", "-1", "--", "true"), "-1 is not in the range", "See `quorate submit --help`."),
        (
            (*SHORT, "--gpus", "1", "--mig", "1g.10gb", "--", "true"),
            "--gpus and --mig each say what GPUs a task has: keep one of them",
            "",
        ),
        ((*SHORT, "--devices", "2", "--", "true"), "the shape asks for neither", "Add gpuFraction or mig"),
        ((*SHORT, "--gpu-fraction", "1", "--", "true"), "at most 0.999 is allowed", ""),
        ((*SHORT, "--gpu-fraction", "half", "--", "true"), "'half' is no number.", ""),
        ((*SHORT, "--mig", "1g", "--", "true"), "'1g' is not a MIG profile", "Write it like 1g.10gb"),
        ((*SHORT, "--finish-by", "soon", "--", "true"), "'soon' is no time such as 2026-12-01T08:00", ""),
        ((*SHORT, "--memory", "64Gb", "--", "true"), "'64Gb' is not a memory size", "Write it like 64Gi"),
        ((*SHORT, "--topology", "required=rak", "--", "true"), "there is no level 'rak'. Did you mean rack?", ""),
        ((*SHORT, "--topology", "rack", "--", "true"), "expected required=LEVEL or preferred=LEVEL, got 'rack'", ""),
        ((*SHORT, "--env", "A", "--", "true"), "expected NAME=VALUE, got 'A'", ""),
        (("submit", "-f", "job.yaml", "--gpus", "1"), "-f describes the whole job", ""),
        (("submit", "-f", "job.yaml", "--", "true"), "-f describes the whole job", ""),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    quorate: Quorate, site: Site, arguments: tuple[str, ...], problem: str, fix: str
) -> None:
    ran = quorate(*arguments)
    assert (ran.exit_code, ran.out) == (64, "")
    assert problem in ran.err
    assert fix in ran.err
    assert site.store.jobs.jobs() == ()


def test_every_problem_of_a_file_is_said_with_its_place(quorate: Quorate, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("queue", "que").replace("gpus: 2", "gpus: two"))
    ran = quorate("submit", "-f", str(path))
    assert (ran.exit_code, ran.out) == (1, "")
    assert ran.err.startswith("error: 3 problems\n")
    assert f"{path}:4:1: error[missing-field]: spec lacks the field queue" in ran.err
    assert f"{path}:5:3: error[unknown-field]: there is no field 'que' in spec" in ran.err
    assert f"{path}:6:58: error[wrong-type]:" in ran.err


def test_a_file_that_is_not_there_is_said(quorate: Quorate) -> None:
    assert quorate("submit", "-f", "nowhere.yaml") == (1, "", "error: nowhere.yaml: No such file or directory\n")


def test_a_job_that_could_never_run_is_refused_with_what_would(quorate: Quorate, site: Site) -> None:
    ran = quorate(*SHORT, "--gpus", "8", "--", "true")
    assert ran == (
        1,
        "",
        "error: short could never run: needs 8 H100; queue team may never hold more than 6.\n"
        "  Up to 6 H100 would fit in queue team.\n",
    )
    assert site.store.jobs.jobs() == ()


def test_the_reasons_of_a_refusal_are_data_for_programs(quorate: Quorate) -> None:
    ran = quorate(*SHORT, "--gpus", "8", "-o", "json", "--", "true")
    problem = json.loads(ran.out)
    assert (ran.exit_code, problem["apiVersion"], problem["code"]) == (1, "quorate.dev/v1", "inadmissible")
    assert problem["reasons"] == [{"code": "above-max", "queue": "team", "gpuType": "H100", "max": 6, "wanted": 8}]


def test_a_name_is_used_once_unless_the_key_is_the_same(quorate: Quorate, job_file: str, site: Site) -> None:
    assert quorate("submit", "-f", job_file, "--key", "k").exit_code == 0
    assert quorate("submit", "-f", job_file, "--key", "k").exit_code == 0
    again = quorate("submit", "-f", job_file)
    assert again.exit_code == 1
    assert "a job llama exists already" in again.err
    assert "repeat the idempotency key" in again.err
    assert len(site.store.jobs.jobs()) == 1


def test_the_job_is_data_for_programs(quorate: Quorate, job_file: str, at_server: ApiServer) -> None:
    job = json.loads(quorate("submit", "-f", job_file, "-o", "json").out)
    assert (job["apiVersion"], job["name"], job["state"]) == ("quorate.dev/v1", "llama", "queued")
