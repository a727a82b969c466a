"""Each flag of sbatch becomes what docs/slurm.md says, or is passed over with a reason; nothing is dropped in silence."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from reconciler.documents.job import read_job
from reconciler.documents.slurm.directives import Directive, ScriptError, directives, has_directives
from reconciler.documents.slurm.flags import FLAGS
from reconciler.documents.slurm.job import SCRIPT_BYTES_MAX, BatchJob, Submitter, job_of
from reconciler.documents.slurm.script import SET
from tests.house.tracked import ROOT

HERE = Submitter("/submitted/here", {"LR": "0.1", "SECRET": "canary"})
NODE_SPREAD = {"level": "node", "maxPerDomain": 2}


def script(*flags: str, body: str = "python train.py\n", first: str = "#!/bin/bash") -> str:
    return "\n".join([first, *(f"#SBATCH {flag}" for flag in flags), body])


def batch(*flags: str, **how: str) -> BatchJob:
    return job_of(script("-p team", *flags, **how), "dir/train.sh", ["--fast"], HERE)


def at(document: dict[str, Any], path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    value: Any = document
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value.get(step)
        if value is None:
            return None
    return value


GROUP, SHAPE = "spec.taskGroups.0", "spec.taskGroups.0.shape"
BECOMES: list[tuple[str, str, Any]] = [
    ("-J run-7", "metadata.name", "run-7"),
    ("--job-name=run-7", "metadata.name", "run-7"),
    ("--partition=other", "spec.queue", "other"),
    ("--qos=gold", "spec.priorityClass", "gold"),
    (
        "--account=physics",
        "spec.queue",
        "team",
    ),  # until a policy is looked at: tests/reconciler/documents/slurm/test_names.py
    ("-n 6", f"{GROUP}.replicas", 6),
    ("--ntasks 6", f"{GROUP}.replicas", 6),
    ("-N 3", f"{GROUP}.replicas", 3),
    ("--nodes=3", "spec.topology.spread", {"level": "node", "maxPerDomain": 1}),
    ("-N 3 --ntasks-per-node=2", f"{GROUP}.replicas", 6),
    ("-N 3 --ntasks-per-node=2", "spec.topology.spread", NODE_SPREAD),
    ("-N 3 -n 5", "spec.topology.spread", NODE_SPREAD),
    ("-n 6 --ntasks-per-node=2", "spec.topology.spread", NODE_SPREAD),
    ("-c 8", f"{SHAPE}.cpu", "8"),
    ("--cpus-per-task=8", "spec.env.SLURM_CPUS_PER_TASK", "8"),
    ("", f"{SHAPE}.cpu", "1"),
    ("--mem=4G", f"{SHAPE}.memory", str(2**32)),
    ("--mem=4G -n 4", f"{SHAPE}.memory", str(2**30)),
    ("--mem=4G -N 2 --ntasks-per-node=2", f"{SHAPE}.memory", str(2**31)),
    ("--mem-per-cpu=1G -c 4", f"{SHAPE}.memory", str(2**32)),
    ("--cpus-per-gpu=8 --gpus-per-task=2", f"{SHAPE}.cpu", "16"),
    ("--cpus-per-gpu=8", f"{SHAPE}.cpu", "1"),
    ("--mem-per-gpu=1G --gpus=4 -n 2", f"{SHAPE}.memory", str(2**31)),
    ("--mem-per-gpu=1G", f"{SHAPE}.memory", None),
    ("--mem-per-cpu=1G --cpus-per-gpu=4 -G 1", f"{SHAPE}.memory", str(2**32)),
    ("--gres=gpu:H100:2", f"{SHAPE}.gpus", 2),
    ("--gres=gpu:H100:2", f"{SHAPE}.gpuTypes", ["H100"]),
    ("--gres=gpu:8 -N 2 --ntasks-per-node=4", f"{SHAPE}.gpus", 2),
    ("--gpus-per-node=8 -N 2", f"{SHAPE}.gpus", 8),
    ("-G 8 -n 4", f"{SHAPE}.gpus", 2),
    ("--gpus=H100:8", f"{SHAPE}.gpuTypes", ["H100"]),
    ("--gpus-per-task=2 -n 4", f"{SHAPE}.gpus", 2),
    ("-t 1-12", "spec.timeLimit", "129600s"),
    ("--time=0", "spec.timeLimit", None),
    ("--signal=B:USR1@300", "spec.timeLimitWarning", {"before": "300s", "signal": "SIGUSR1"}),
    ("--signal=RB:sigterm", "spec.timeLimitWarning", {"before": "60s", "signal": "SIGTERM"}),
    ("--signal=B:12@90", "spec.timeLimitWarning", {"before": "90s", "signal": "SIGUSR2"}),
    ("--deadline=now+6hours", "spec.finishWithin", "21600s"),
    ("--deadline=now+90", "spec.finishWithin", "90s"),
    ("--signal=USR1@300", "spec.timeLimitWarning", {"before": "300s"}),
    ("-a 0-99%10", "spec.array", {"indices": "0-99", "maxRunning": 10}),
    ("--array=1,3,7-9", "spec.array", {"indices": "1,3,7-9"}),
    ("-d afterok:a:b", "spec.dependsOn.1", {"job": "b", "condition": "afterok"}),
    ("--dependency=afternotok:a", "spec.dependsOn.0.condition", "afternotok"),
    ("--export=NONE", "spec.env.LR", None),
    ("--export=ALL", "spec.env.SECRET", None),
    ("--export=LR,SEED=7", "spec.env.LR", "0.1"),
    ("--export=LR,SEED=7", "spec.env.SEED", "7"),
    ("-J 'My Job'", "metadata.name", "my-job"),
    ("-J 'My Job'", "spec.env.SLURM_JOB_NAME", "My Job"),
    ("", "metadata.name", "train"),
    ("", "spec.env.SLURM_SUBMIT_DIR", "/submitted/here"),
    ("", "spec.env.SLURM_JOB_PARTITION", "team"),
    ("-n 2 -n 4", f"{GROUP}.replicas", 4),
    ("", "spec.workingDirectory", None),
    ("-D sub", "spec.workingDirectory", "/submitted/here/sub"),
    ("--chdir='/data/a b'", "spec.workingDirectory", "/data/a b"),
]


@pytest.mark.parametrize(("flags", "path", "expected"), BECOMES)
def test_a_flag_becomes_a_field(flags: str, path: str, expected: Any) -> None:
    document = batch(flags).document
    assert at(document, path) == expected
    read_job(json.dumps(document).encode(), "script")


@pytest.mark.parametrize("name", [name for name, flag in FLAGS.items() if not flag.becomes])
def test_a_flag_that_is_not_followed_is_said_with_its_line_and_why(name: str) -> None:
    value = {"needed": "=x", "optional": "", "none": ""}[FLAGS[name].value]
    (said,) = batch("-c 2", f"--{name}{value}").passed_over
    assert said == (4, f"--{name}", FLAGS[name].why)
    assert said.why


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--switches=1", "--switches"),
        ("--switches 1 -c 2", "--switches"),
        ("-y", "-y"),
        ("--export=ALL", "--export=ALL"),
        ("--export=GONE", "--export=GONE"),
        ("-J My_Job", "--job-name=My_Job"),
        ("--mem=0", "--mem"),
        ("--gres=gpu:1,shard:2", "--gres=shard:2"),
        ("-N 1 -n 4", "--nodes"),
        ("--exclusive=user", "--exclusive"),
        ("--signal=USR1@300", "--signal=USR1@300"),
        ("--deadline=2026-12-01T08:00", "--deadline=2026-12-01T08:00"),
    ],
)
def test_what_is_followed_in_part_or_not_known_is_said(flags: str, said: str) -> None:
    assert [(each.line, each.flag) for each in batch(flags).passed_over] == [(3, said)]


@pytest.mark.parametrize(
    "flags",
    [
        "-p team",
        "-n 4 -N 2 -c 2 --mem=1G -t 10 -a 0-3 -d afterok:a --export=NONE --gres=gpu:2",
        "-D sub -q gold --signal=B:USR1",
    ],
)
def test_nothing_is_said_of_what_is_followed(flags: str) -> None:
    assert batch(flags).passed_over == ()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("-t soon", "--time: 'soon' is no time"),
        ("-n many", "--ntasks: 'many' is no number"),
        ("-N 2-4", "--nodes: '2-4' is no number"),
        ("-d singleton", "--dependency: 'singleton' is not like"),
        ("-a 0-9%x", "--array: 'x' is no number"),
        ("--gpus=3 -n 2", "--gpus: 3 GPUs can't be divided evenly among 2 tasks"),
        ("--gpus=2 --gres=gpu:2", "--gpus and --gres both ask for GPUs"),
        ("--mem=1G --mem-per-gpu=1G", "--mem and --mem-per-gpu both ask for memory"),
        ("--cpus-per-task=1 --cpus-per-gpu=2", "both ask for CPUs"),
        ("--signal=B:KILL@60", "--signal: 'KILL' is none of the signals that a job can be warned by: SIGUSR1"),
        ("--signal=B:99", "--signal: '99' is none of the signals"),
        ("--signal=B:USR1@0", "--signal: '0' is no number of at least 1"),
        ("--signal=soon:USR1", "--signal: 'soon:USR1' is not like"),
        ("-n", "-n has no value"),
        ("-J 'run", "can't be read"),
        ("train", "train is no flag"),
    ],
)
def test_what_can_not_be_is_refused_at_its_line(flags: str, problem: str) -> None:
    with pytest.raises(ScriptError, match=re.escape(problem)) as refused:
        batch(flags)
    assert refused.value.line == 3


BODY = """\
# srun is not there, nor $SLURM_NODEID
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export SLURM_HINT=x
echo ${SLURM_NNODES:-1} $SLURM_HINT ${SLURM_PROCID} $SLURM_JOB_NODELIST
exec srun --label python train.py
"""


def test_what_the_commands_expect_of_slurm_and_will_not_find_is_said_once() -> None:
    said = batch("-c 2", body=BODY).passed_over
    assert [(each.line, each.flag) for each in said] == [(5, "SLURM_JOB_NODELIST"), (5, "scontrol"), (8, "srun")]
    assert said[2].why == "the script runs in every task by itself: write what comes after it"


def test_variables_that_are_said_to_be_set_are() -> None:
    """All that docs/slurm.md promises, and no other, is taken for set."""
    promised = (ROOT / "docs/slurm.md").read_text().partition("## Variables")[2]
    assert set(re.findall(r"SLURMD?_[A-Z_]+", promised)) == SET
    job = batch("-c 2 -N 2 --ntasks-per-node=2", body="env\n")
    assert {line.partition("=")[0] for line in ran(job, **ELEMENT).stdout.splitlines() if "SLURM" in line} == SET


def test_the_documentation_has_every_flag_and_every_flag_is_tested() -> None:
    documented = set(re.findall(r"^\| `--([a-z-]+)`", (ROOT / "docs/slurm.md").read_text(), re.MULTILINE))
    assert documented == set(FLAGS)
    shorts = {flag.short: name for name, flag in FLAGS.items()}
    tried = {word for flags, _, _ in BECOMES for word in flags.split() if word.startswith("-")}
    names = {word[2:].partition("=")[0] if word.startswith("--") else shorts[word[1]] for word in tried}
    assert {name for name, flag in FLAGS.items() if flag.becomes} - names == set()


def test_directives_end_with_the_first_command() -> None:
    text = "#!/bin/bash\n#SBATCH -c 2 # two\n\n# SBATCH -c 3\necho\n#SBATCH -c 4\n"
    assert list(directives(text)) == [Directive(2, "cpus-per-task", "2")]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("#!/bin/sh\n#SBATCH -n 1\n", True),
        ("#!/bin/sh\necho\n#SBATCH -n 1\n", False),
        ("#SBATCH -n 1\n", False),
        ("#!/bin/sh\n", False),
    ],
)
def test_what_a_batch_script_is(text: str, is_one: bool) -> None:
    assert has_directives(text) == is_one


TASK = {
    "QUORATE_JOB": "train-3", "RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "QUORATE_NODE": "n2", "QUORATE_ATTEMPT": "2",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
}  # fmt: skip
ELEMENT = {"QUORATE_ARRAY_ID": "train", "QUORATE_ARRAY_INDEX": "3", "QUORATE_ARRAY_COUNT": "8"}


def ran(job: BatchJob, **more: str) -> subprocess.CompletedProcess[str]:
    """The command as a task would run it."""
    env = {**TASK, **job.document["spec"]["env"], **more}
    return subprocess.run(job.document["spec"]["command"], env=env, capture_output=True, text=True, check=False)


def test_a_script_runs_with_its_arguments_and_what_slurm_tells() -> None:
    body = 'echo "$0 $1|$SLURM_JOB_ID|$SLURM_PROCID/$SLURM_NTASKS|$SLURMD_NODENAME|$SLURM_RESTART_COUNT"; exit 3\n'
    done = ran(batch(body=body))
    assert (done.stdout, done.stderr, done.returncode) == ("dir/train.sh --fast|train-3|1/4|n2|1\n", "", 3)


def test_an_element_of_an_array_is_told_which() -> None:
    body = 'echo "$SLURM_ARRAY_JOB_ID ${SLURM_ARRAY_TASK_ID-none} of $SLURM_ARRAY_TASK_COUNT"\n'
    assert ran(batch(body=body), **ELEMENT).stdout == "train 3 of 8\n"
    assert ran(batch(body="echo ${SLURM_ARRAY_TASK_ID-none}\n")).stdout == "none\n"


def test_python_runs_as_well() -> None:
    done = ran(batch(body="import sys; print(sys.argv[1:])\n", first="#!/usr/bin/env python3"))
    assert done.stdout == "['--fast']\n"


@pytest.mark.parametrize(
    ("first", "body", "problem"),
    [
        ("#!/usr/bin/perl", "1;\n", "a script for perl can't travel"),
        ("#!", "true\n", "names no program"),
        ("#!/bin/sh", "#" * SCRIPT_BYTES_MAX, "more than 100000 bytes"),
        ("#!/bin/sh", "true\r\n", "lines end as on Windows"),
    ],
)
def test_a_script_that_can_not_travel_is_refused(first: str, body: str, problem: str) -> None:
    with pytest.raises(ScriptError, match=problem):
        batch(first=first, body=body)
