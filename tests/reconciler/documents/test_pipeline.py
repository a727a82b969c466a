"""Pipelines are read with every problem at its place, and become jobs that know of each other."""

from __future__ import annotations

import pytest

from reconciler.documents.job import NamedJob
from reconciler.documents.pipeline import read_submission
from reconciler.model.expansion import UnfitBatchError, expand_array
from reconciler.model.pipelines import NamedPipeline, expand_pipeline
from reconciler.model.problem import InvalidDocumentsError
from solver.model.workload import Dependency, JobArray, JobName, JobSpec, QueueName

PIPELINE = """\
apiVersion: quorate.dev/v1
kind: Pipeline
metadata: {name: run-7}
spec:
  artifacts: file:///shared/artifacts/
  jobs:
    - name: prepare
      outputs: {data: data.tar}
      spec: {queue: team, taskGroups: [{name: w, replicas: 1, shape: {}}], command: [prepare]}
    - name: train
      dependsOn: [{job: prepare}]
      outputs: {model: s3://models/m, log-file: log.txt}
      spec:
        queue: team
        dependsOn: [{job: earlier, condition: afterany}]
        taskGroups: [{name: w, replicas: 1, shape: {gpus: 1}}]
        command: [train]
        env: {LR: "0.1"}
    - name: sweep
      dependsOn: [{job: prepare}, {job: train, condition: afternotok}]
      spec: {queue: team, array: {indices: "1,4"}, taskGroups: [{name: w, replicas: 1, shape: {}}], command: [sweep]}
"""


def read(text: str) -> NamedPipeline:
    found = read_submission(text.encode(), "pipeline.yaml")
    assert isinstance(found, NamedPipeline)
    return found


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidDocumentsError) as invalid:
        read_submission(text.encode(), "pipeline.yaml")
    return [f"{problem.line}:{problem.column} {problem.code}" for problem in invalid.value.problems]


def test_a_job_that_is_called_as_no_element_of_an_array_is_its_own() -> None:
    names = {job.name for job in expand_pipeline(read(PIPELINE.replace("train", "sweep-2"))).jobs}
    assert {"run-7-sweep-1", "run-7-sweep-2", "run-7-sweep-4"} <= names


def test_a_pipeline_becomes_its_jobs() -> None:
    batch = expand_pipeline(read(PIPELINE))
    assert [(group.name, group.kind, group.pipeline) for group in batch.groups] == [
        ("run-7", "pipeline", ""),
        ("run-7-sweep", "array", "run-7"),
    ]
    jobs = {job.name: job for job in batch.jobs}
    assert list(jobs) == ["run-7-prepare", "run-7-train", "run-7-sweep-1", "run-7-sweep-4"]
    assert {job.pipeline for job in batch.jobs} == {"run-7"}
    train, sweep = jobs[JobName("run-7-train")].spec, jobs[JobName("run-7-sweep-4")]
    assert train.depends_on == (
        Dependency(JobName("run-7-prepare")),
        Dependency(JobName("earlier"), "afterany"),
    )
    assert sweep.spec.depends_on == (
        Dependency(JobName("run-7-prepare")),
        Dependency(JobName("run-7-train"), "afternotok"),
    )
    assert sweep.array is not None
    assert (sweep.array.id, sweep.array.index, sweep.array.count, sweep.spec.array) == ("run-7-sweep", 4, 2, None)


def test_outputs_are_told_to_who_writes_and_who_reads_them() -> None:
    env = {job.name: job.spec.env for job in expand_pipeline(read(PIPELINE)).jobs}
    data = "/shared/artifacts/run-7/prepare/data.tar"
    assert env[JobName("run-7-prepare")] == {"QUORATE_PIPELINE": "run-7", "QUORATE_OUTPUT_DATA": data}
    assert env[JobName("run-7-train")] == {
        "LR": "0.1",
        "QUORATE_PIPELINE": "run-7",
        "QUORATE_OUTPUT_MODEL": "s3://models/m",
        "QUORATE_OUTPUT_LOG_FILE": "/shared/artifacts/run-7/train/log.txt",
        "QUORATE_INPUT_PREPARE_DATA": data,
    }
    assert env[JobName("run-7-sweep-1")] == {
        "QUORATE_PIPELINE": "run-7",
        "QUORATE_INPUT_PREPARE_DATA": data,
        "QUORATE_INPUT_TRAIN_MODEL": "s3://models/m",
        "QUORATE_INPUT_TRAIN_LOG_FILE": "/shared/artifacts/run-7/train/log.txt",
        "QUORATE_ARRAY_ID": "run-7-sweep",
        "QUORATE_ARRAY_INDEX": "1",
        "QUORATE_ARRAY_COUNT": "2",
    }


@pytest.mark.parametrize(
    ("written", "instead", "expected"),
    [
        ("name: train", "name: prepare", ["7:13 duplicate-job", "10:13 duplicate-job", "20:41 unknown-job"]),
        ("name: train", "name: sweep-4", ["10:13 duplicate-job", "20:41 unknown-job"]),
        ("[{job: prepare}]", "[{job: prepar}]", ["11:25 unknown-job"]),
        ("outputs: {data: data.tar}", "dependsOn: [{job: train}]", ["8:18 dependency-cycle"]),
        ("[{job: prepare}]", "[{job: train}]", ["11:18 dependency-cycle"]),
        ("  artifacts: file:///shared/artifacts/\n", "", ["7:23 no-artifacts", "11:49 no-artifacts"]),
        ("artifacts: file", "artifacts: ./file", ["5:14 malformed"]),
        ('indices: "1,4"}', 'indices: "1,1"}', ["21:44 bad-indices"]),
        ("    - name: sweep\n", "    - name: sweep\n      outputs: {x: /x}\n", ["20:16 array-output"]),
        ("shape: {gpus: 1}", "shape: {gpus: 1, mig: 1g.10gb}", ["16:67 choose-one"]),
        ("command: [train]\n", "idleLimit: 5m\n        command: [train]\n", ["17:20 idle-not-interactive"]),
        ("queue: team, array", "que: team, array", ["21:7 missing-field", "21:14 unknown-field"]),
        ("kind: Pipeline", "kind: Pipelin", ["2:7 unknown-kind"]),
    ],
)
def test_problems_are_found_with_their_places(written: str, instead: str, expected: list[str]) -> None:
    text = PIPELINE.replace(written, instead, 1)
    assert text != PIPELINE
    assert problems(text) == expected


def test_a_cycle_is_named() -> None:
    text = PIPELINE.replace("outputs: {data: data.tar}", "dependsOn: [{job: train}]")
    with pytest.raises(InvalidDocumentsError, match="prepare -> train -> prepare"):
        read(text)


def test_two_outputs_never_share_a_variable() -> None:
    twice = PIPELINE.replace("- name: prepare", "- name: a").replace("job: prepare", "job: a")
    other = "spec: {queue: team, taskGroups: [{name: w, replicas: 1, shape: {}}], command: [x]}"
    twice = twice.replace("outputs: {data:", "outputs: {b-c:").replace(
        "    - name: train\n      dependsOn: [{job: a}]",
        f"    - name: a-b\n      outputs: {{c: x}}\n      {other}\n"
        "    - name: train\n      dependsOn: [{job: a}, {job: a-b}]",
    )
    assert problems(twice) == ["13:7 same-variable"]


def test_a_job_is_a_submission_too() -> None:
    text = (
        "apiVersion: quorate.dev/v1\nkind: Job\nmetadata: {name: sweep}\n"
        "spec:\n  queue: q\n  array: {indices: 0-9, maxRunning: 3}\n"
        "  taskGroups: [{name: w, replicas: 1, shape: {}}]\n  command: [x]\n"
    )
    found = read_submission(text.encode(), "job.yaml")
    assert isinstance(found, NamedJob)
    assert found.spec.array == JobArray("0-9", 3)
    batch = expand_array(found.name, found.spec)
    assert [job.name for job in batch.jobs][:2] == ["sweep-0", "sweep-1"]
    assert {job.array.max_running for job in batch.jobs if job.array} == {3}


def test_what_is_too_large_is_refused_with_what_to_do() -> None:
    long = JobSpec(QueueName("q"), (), array=JobArray("0-9999"), command=("x" * 20_000,))
    with pytest.raises(UnfitBatchError, match="10000 jobs of this size") as refused:
        expand_array(JobName("sweep"), long)
    assert "into a file" in refused.value.fix
    with pytest.raises(UnfitBatchError, match="more than 63 characters"):
        expand_array(JobName("x" * 61), JobSpec(QueueName("q"), (), array=JobArray("0-99")))
    with pytest.raises(UnfitBatchError, match="more than 63 characters"):
        expand_pipeline(read(PIPELINE.replace("name: run-7", f"name: {'x' * 60}")))


def test_a_file_has_one_document() -> None:
    assert problems(f"{PIPELINE}---\n{PIPELINE}") == ["1:1 one-job"]
