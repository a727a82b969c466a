"""Job files and snapshot files: what outside people and programs hand in."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import reconciler.documents.job as job_module
from reconciler.documents.job import NamedJob, read_job
from reconciler.documents.reader import Located
from reconciler.documents.shape import shape_problems
from reconciler.documents.snapshot import read_snapshot
from reconciler.model.problem import InvalidDocumentsError, Problem
from solver.model.document import decode, encode
from solver.model.quantities import Cpu, Memory
from solver.model.workload import JobSpec, Unit
from tests.reconciler.documents.repository import codes

JOB = """\
apiVersion: quorate.dev/v1
kind: Job
metadata: {name: llama}
spec:
  queue: research-vision
  taskGroups:
    - name: worker
      replicas: 4
      shape: {gpus: 8, gpuTypes: [H100, A100], cpu: 96, memory: 1Ti}
    - name: leader
      replicas: 1
      shape: {cpu: 1.001}
      command: [python, lead.py]
  topology: {required: block, preferred: rack}
  command: [python, train.py]
  env: {NCCL_DEBUG: INFO}
"""

SNAPSHOT = """\
{"kind": "Snapshot", "time": "2026-11-20T08:00:00Z",
 "nodes": [{"name": "b", "pool": "p", "cpu": 4, "memory": "8Gi"},
           {"name": "a", "pool": "p", "cpu": 4, "memory": "8Gi"}],
 "jobs": []}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidDocumentsError) as invalid:
        read_job(text.encode(), "job.yaml")
    return [f"{problem.line}:{problem.column} {problem.code}" for problem in invalid.value.problems]


PAIRS = JOB.replace("replicas: 1", "replicas: 8").replace(
    "preferred: rack", "together: [{groups: [worker, leader], units: 4, minUnits: 3}]"
)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("minUnits: 3", "minUnits: 5", ["14:89 min-above-units"]),
        ("replicas: 8", "replicas: 6", ["11:17 units-do-not-fit"]),
        ("replicas: 4", "replicas: 4\n      minReplicas: 2", ["9:20 units-say-otherwise"]),
        (
            "replicas: 8",
            "replicas: 8\n      topology: {group: {tasks: 4, within: rack}}",
            ["12:25 bundles-tear-units"],
        ),
        ("units: 4,", "units: 4, within: island, preferred: rack,", ["14:106 wish-is-met"]),
        (
            "minUnits: 3}]",
            "minUnits: 3}], spread: {level: node, maxPerDomain: 2}",
            ["7:13 units-and-spread", "10:13 units-and-spread"],
        ),
        ("  env: {", "  type: service\n  env: {", ["10:7 one-role", "14:76 one-by-one"]),
    ],
)
def test_units_that_can_not_be(before: str, after: str, expected: list[str]) -> None:
    assert problems(PAIRS.replace(before, after, 1)) == expected


def test_units_settle_what_each_has_of_its_groups() -> None:
    _, spec = read_job(PAIRS.encode(), "job.yaml")
    assert [(group.least, group.replicas, group.replica_step) for group in spec.task_groups] == [(3, 4, 1), (6, 8, 2)]
    assert spec.units == (Unit((0, 1), (1, 2), numbered=True),)
    assert decode(encode(spec), JobSpec) == spec
    said = PAIRS.replace("replicas: 8", "replicas: 8\n      minReplicas: 6\n      replicaStep: 2")
    assert read_job(said.encode(), "job.yaml")[1] == spec


def test_a_job_is_read() -> None:
    name, spec = read_job(JOB.encode(), "job.yaml")
    assert (name, spec.queue, spec.gpus.number, spec.tasks) == ("llama", "research-vision", 32, 5)
    assert spec.task_groups[0].shape.memory == Memory(2**40)
    assert spec.task_groups[1].shape.cpu == Cpu(1001)
    assert spec.env == {"NCCL_DEBUG": "INFO"}


def test_a_task_may_ask_for_what_else_nodes_have() -> None:
    asking = JOB.replace("memory: 1Ti", "memory: 1Ti, resources: {rdma/hca: 4, ephemeral-storage: 100Gi}")
    _, spec = read_job(asking.encode(), "job.yaml")
    assert spec.task_groups[0].shape.resources == {"ephemeral-storage": 100 * 2**30, "rdma/hca": 4}
    assert spec.task_groups[1].shape.resources == {}


@pytest.mark.parametrize(
    "wrong", ["cpu: 4", "memory: 1Gi", "nvidia.com/gpu: 1", "a b: 1", "nic: -1", "nic: 0.5", "nic: [1]"]
)
def test_what_a_shape_says_elsewhere_is_no_other_resource(wrong: str) -> None:
    assert problems(JOB.replace("memory: 1Ti", f"memory: 1Ti, resources: {{{wrong}}}"))


def test_what_is_no_image_is_told_in_words() -> None:
    with pytest.raises(InvalidDocumentsError, match="'Bad Image' is not an image"):
        read_job((JOB + "  container: {image: Bad Image}\n").encode(), "job.yaml")


def test_json_is_a_way_of_writing_a_job() -> None:
    name, spec = read_job(JOB.encode(), "job.yaml")
    document = {
        "apiVersion": "quorate.dev/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": json.loads(encode(spec)),
    }
    assert read_job(json.dumps(document).encode(), "job.json") == (name, spec)


@pytest.mark.parametrize(
    ("written", "instead", "expected"),
    [
        ("  command: [python, train.py]\n", "", ["7:7 no-command"]),
        ("  env: {", "  timeLimit: 0s\n  env: {", ["16:14 malformed"]),
        ("  env: {", "  idleLimit: 30m\n  env: {", ["16:14 idle-not-interactive"]),
        ("  env: {", "  type: service\n  idleLimit: 30m\n  env: {", ["10:7 one-role", "17:14 idle-not-interactive"]),
        ("  env: {", "  type: interactive\n  idleLimit: 0s\n  env: {", ["17:14 malformed"]),
        ("  env: {", "  timeLimitWarning: {}\n  env: {", ["16:3 missing-field"]),
        ("  env: {", "  timeLimitWarning: {before: 0s}\n  env: {", ["16:30 malformed"]),
        ("  env: {", "  timeLimitWarning: {before: 5m, signal: SIGKILL}\n  env: {", ["16:42 unknown-value"]),
        ("  env: {", "  stuck: {after: 30m, action: kill}\n  env: {", ["16:31 unknown-value"]),
        ("  env: {", "  stuck: {after: 30m, action: retry}\n  env: {", ["16:31 retry-without-policy"]),
        (
            "  env: {",
            "  type: service\n  stuck: {after: 30m}\n  env: {",
            ["10:7 one-role", "17:10 service-never-stuck"],
        ),
        ("preferred: rack", "preferred: cabinet", ["14:42 unknown-value"]),
        ("preferred: rack", "preferred: [rack, cabinet]", ["14:49 unknown-value"]),
        ("preferred: rack", "preferred: [rack, island], communication: loud", ["14:73 unknown-value"]),
        ("name: leader", "name: worker", ["10:13 duplicate-task-group"]),
        ("replicas: 4", "replicas: 0", ["8:17 out-of-range"]),
        ("replicas: 4", "replicas: 4\n      minReplicas: 5", ["9:20 min-above-replicas"]),
        ("replicas: 4", "replicas: 4\n      nodes: fast", ["9:14 nodes-in-snapshots"]),
        (
            "replicas: 4",
            "replicas: 4\n      topology: {required: rack, group: {tasks: 2, within: block}}",
            ["9:41 bundles-of-one"],
        ),
        (
            "replicas: 4",
            "replicas: 4\n      minReplicas: 1\n      replicaStep: 2",
            ["10:20 steps-do-not-fit"],
        ),
        ("replicas: 4", "replicas: 4\n      replicaStep: 2", ["9:20 never-grows"]),
        ("preferred: rack", "group: {tasks: 8}", ["14:38 bundle-of-no-level"]),
        ("preferred: rack", "group: [{tasks: 8, within: rack}, {tasks: 8, within: island}]", ["14:73 bundles-alike"]),
        (
            "preferred: rack",
            "group: [{tasks: 8, within: island}, {tasks: 12, within: rack}]",
            ["14:75 bundles-do-not-nest"],
        ),
        (
            "preferred: rack",
            "group: [{tasks: 4, within: rack}, {tasks: 8, within: island}]",
            ["14:84 bundles-do-not-nest"],
        ),
        ("preferred: rack", "group: {tasks: 8, within: rack, preferred: [block, island]}", ["14:74 wish-is-met"]),
        ("preferred: rack", "together: [{groups: [worker, leader]}]", ["14:42 together-in-no-level"]),
        ("preferred: rack", "together: [{groups: [worker, leader], within: pool}]", ["14:77 together-anyway"]),
        ("preferred: rack", "together: [{groups: [worker, leadr], within: rack}]", ["14:60 unknown-task-group"]),
        ("preferred: rack", "together: [{groups: [worker], within: rack}]", ["14:51 together-alone"]),
        ("preferred: rack", "together: [{groups: [worker, leader], units: 0}]", ["14:76 out-of-range"]),
        ("preferred: rack", "together: [{groups: [worker, leader], units: 2}]", ["11:17 units-do-not-fit"]),
        (
            "preferred: rack",
            "together: [{groups: [worker, leader], within: rack}, {groups: [leader, worker], within: rack}]",
            ["14:94 together-twice", "14:102 together-twice"],
        ),
        ("replicas: 4", "replicas: 4\n      minReplicas: 0", ["9:20 out-of-range"]),
        ("gpus: 8", "gpus: -1", ["9:21 out-of-range"]),
        ("gpus: 8", "minGpuMemory: 64Gi", ["9:29 missing-field"]),
        ("gpus: 8", "gpus: 8, minGpuMemory: 64", ["9:38 bare-size"]),
        ("gpus: 8", "gpus: 8, nodeLabels: [disk]", ["9:37 malformed"]),
        ("gpus: 8", "mig: 1g.10gb, devices: 0", ["9:38 out-of-range"]),
        ("gpus: 8", "gpuFraction: 0.5, devices: 65", ["9:42 out-of-range"]),
        ("gpus: 8", "gpus: 8, devices: 2", ["9:33 missing-field"]),
        ("[H100, A100]", "[H100, H100]", ["9:34 out-of-range"]),
        ("required: block", "required: blocks", ["14:24 unknown-value"]),
        ("INFO", "1", ["16:21 wrong-type"]),
        ("NCCL_DEBUG", "'NCCL DEBUG'", ["16:9 malformed"]),
        ("  env: {", "  secrets: [{name: token}]\n  env: {", ["16:13 choose-one"]),
        ("  env: {", "  secrets: [{name: token, env: X, file: x}]\n  env: {", ["16:13 choose-one"]),
        ("  env: {", "  secrets: [{name: token, env: NCCL_DEBUG}]\n  env: {", ["16:13 duplicate-secret"]),
        ("  env: {", "  secrets: [{name: a, file: x}, {name: b, file: x}]\n  env: {", ["16:33 duplicate-secret"]),
        ("  env: {", "  secrets: [{name: token, env: QUORATE_X}]\n  env: {", ["16:32 malformed"]),
        ("  env: {", "  secrets: [{name: token, env: RANK}]\n  env: {", ["16:32 malformed"]),
        ("  env: {", "  secrets: [{name: token, file: ../x}]\n  env: {", ["16:33 malformed"]),
        ("  env: {", "  secrets: [{name: token, file: x, key: ..}]\n  env: {", ["16:41 malformed"]),
        ("  env: {", "  secrets: [{name: ../x, file: x}]\n  env: {", ["16:20 malformed"]),
        ("  env: {", "  secrets: [{value: abc}]\n  env: {", ["16:13 missing-field", "16:14 unknown-field"]),
        ("  env: {", "  imagePullSecret: x\n  env: {", ["16:3 unknown-field"]),
        ("[python, train.py]", "python train.py", ["15:12 wrong-type"]),
        ("queue:", "queu:", ["4:1 missing-field", "5:3 unknown-field"]),
        ("kind: Job", "kind: Queue", ["2:7 one-job"]),
        ("kind: Job", "kind: job", ["2:7 unknown-kind"]),
        ("metadata: {name: llama}", "metadata: {name: " + "x" * 64 + "}", ["3:18 out-of-range"]),
    ],
)
def test_mistakes_in_a_job_are_reported_where_they_stand(written: str, instead: str, expected: list[str]) -> None:
    assert written in JOB
    assert problems(JOB.replace(written, instead)) == expected


def test_a_secret_may_be_given_as_a_variable_and_as_a_file() -> None:
    uses = "  secrets: [{name: tls, key: a.pem, env: RANKS}, {name: tls, key: a.pem, file: NCCL_DEBUG}]\n"
    _, spec = read_job(JOB.replace("  env: {", f"{uses}  env: {{").encode(), "job.yaml")
    assert [(str(use), use.env, use.file) for use in spec.secrets] == [
        ("tls/a.pem", "RANKS", ""),
        ("tls/a.pem", "", "NCCL_DEBUG"),
    ]


@pytest.mark.parametrize(
    ("asked", "fix"),
    [
        ("{required: island, group: {tasks: 2, within: rack}}", "Delete the bundle."),
        ("{required: rack, group: {tasks: 2, within: block}}", "Delete the bundle, or write island."),
        ("{required: block, preferred: pool}", "Delete preferred, or write island or rack."),
        (
            "{group: [{tasks: 2, within: rack}, {tasks: 4, within: island}]}",
            "Delete the bundles of 2, or let those of 4 be in one rack.",
        ),
    ],
)
def test_what_is_so_anyway_is_told_with_what_would_be_a_wish(asked: str, fix: str) -> None:
    with pytest.raises(InvalidDocumentsError) as invalid:
        read_job(JOB.replace("replicas: 4", f"replicas: 4\n      topology: {asked}").encode(), "job.yaml")
    assert [problem.fix for problem in invalid.value.problems] == [fix]


@pytest.mark.parametrize(
    ("written", "instead", "fix"),
    [
        ("  queue:", "  gpus: 8\n  queue:", "It says what one task needs: write it into taskGroups[].shape."),
        ("  queue:", "  image: a/b\n  queue:", "Write container: {image: NAME}."),
        ("gpus: 8", "gpus: 8, gpuType: H100", "Write gpuTypes: [TYPE]."),
        ("  queue:", "  queu: a\n  queue:", "Did you mean queue?"),
    ],
)
def test_a_field_that_belongs_elsewhere_is_told_with_where(written: str, instead: str, fix: str) -> None:
    with pytest.raises(InvalidDocumentsError) as error:
        read_job(JOB.replace(written, instead, 1).encode(), "job.yaml")
    assert [problem.fix for problem in error.value.problems] == [fix]


def test_a_level_that_there_is_not_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidDocumentsError) as error:
        read_job(JOB.replace("preferred: rack", "preferred: racks").encode(), "job.yaml")
    (problem,) = error.value.problems
    assert (problem.message, problem.fix) == ("spec.topology.preferred can't be 'racks'", "Did you mean rack?")


def test_a_file_has_one_job() -> None:
    assert problems("") == ["1:1 one-job"]
    assert problems(JOB + "---\n" + JOB) == ["1:1 one-job"]


def test_a_snapshot_is_read_in_sorted_order() -> None:
    assert [node.name for node in read_snapshot(SNAPSHOT.encode(), "s.json").nodes] == ["a", "b"]


@pytest.mark.parametrize(
    ("written", "instead", "place"),
    [
        ('"cpu": 4, "memory": "8Gi"}]', '"cpu": "x", "memory": "8Gi"}]', "3:46"),
        ('"name": "a"', '"name": "b"', "1:1"),
        ('"jobs": []', '"jobs": [}', "4:11"),
        ('"jobs": []', '"jobs": [], "more": 1', "1:1"),
        ("2026-11-20", "2026-13-20", "1:30"),
    ],
)
def test_an_invalid_example_snapshot_is_reported(written: str, instead: str, place: str) -> None:
    assert written in SNAPSHOT
    ((found, _),) = codes({"cluster-state/s.json": SNAPSHOT.replace(written, instead)})
    assert found == f"cluster-state/s.json:{place}"


def test_json_of_another_kind_is_left_alone() -> None:
    assert codes({"cluster-state/s.json": '{"kind": "Grafana"}', "cluster-state/list.json": "[1]"}) == []


def test_a_service_starts_with_one_replica_unless_it_says_more() -> None:
    service = JOB.replace("spec:\n", "spec:\n  type: service\n").replace(
        JOB[JOB.index("    - name: leader") : JOB.index("  topology")], ""
    )
    _, spec = read_job(service.encode(), "job.yaml")
    assert (spec.task_groups[0].least, spec.task_groups[0].replicas) == (1, 4)
    _, spec = read_job(service.replace("replicas: 4", "replicas: 4\n      minReplicas: 2").encode(), "job.yaml")
    assert spec.task_groups[0].least == 2


def test_a_service_has_one_role() -> None:
    assert problems(JOB.replace("spec:\n", "spec:\n  type: service\n")) == ["11:7 one-role"]


def _as_json(name: str = "llama", **fields: object) -> dict[str, object]:
    groups = [{"name": "worker", "replicas": 4, "shape": {"gpus": 8, "cpu": 1.5, "memory": "1Ti"}}]
    spec = {"queue": "research", "taskGroups": groups, "command": ["python", 't\tr"ain.py'], **fields}
    return {"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_of_documents_that_differ_in_their_names_one_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking one against the schema takes longer than writing it to the store."""
    checked: list[Located] = []

    def noted(document: Located, kind: str, file: str) -> list[Problem]:
        checked.append(document)
        return shape_problems(document, kind, file)

    monkeypatch.setattr(job_module, "shape_problems", noted)
    command = {"command": ["echo", "differs in their names alone"]}
    found = [read_job(json.dumps(_as_json(f"llama-{number}", **command)).encode(), "job") for number in range(50)]
    assert [job.name for job in found] == [f"llama-{number}" for number in range(50)]
    assert len(checked) == 1
    read_job(json.dumps(_as_json("llama-50", **command, priorityClass="training")).encode(), "job")
    assert len(checked) == 2


SENT: dict[str, bytes] = {
    "plain": json.dumps(_as_json()).encode(),
    "indented": json.dumps(_as_json(), indent=2).encode(),
    "not ASCII": json.dumps(_as_json(env={"A": "\N{NEXT LINE}ä"}), ensure_ascii=False).encode(),
    "escaped": json.dumps(_as_json(env={"A": "ä\n"})).encode(),
    "escaped in halves": json.dumps(_as_json(env={"A": "\N{ROCKET}"})).encode(),
    "a float for a number": json.dumps(_as_json(priorityClass="a"))
    .replace('"replicas": 4', '"replicas": 4.0')
    .encode(),
    "a key twice": json.dumps(_as_json()).replace('"replicas": 4', '"replicas": 4, "replicas": 4').encode(),
    "too large a number": json.dumps(_as_json()).replace("1.5", "1e999").encode(),
    "too long a number": json.dumps(_as_json()).replace("1.5", "1" * 30).encode(),
    "not a number": json.dumps(_as_json()).replace("1.5", "NaN").encode(),
    "no such field": json.dumps(_as_json(ququ=1)).encode(),
    "a wrong name": json.dumps(_as_json("Not A Name")).encode(),
    "too long a name": json.dumps(_as_json("a" * 300)).encode(),
    "no name": json.dumps(_as_json()).replace('"name": "llama"', "").encode(),
    "a number as its name": json.dumps(_as_json()).replace('"llama"', "7").encode(),
    "a label beside its name": json.dumps(_as_json()).replace('"llama"', '"llama", "label": "x"').encode(),
    "two of one group": json.dumps(_as_json(taskGroups=[{"name": "a", "replicas": 1, "shape": {}}] * 2)).encode(),
    "another kind": json.dumps({**_as_json(), "kind": "Queue"}).encode(),
    "a list": b"[1]",
    "deep": b"[" * 5_000 + b"]" * 5_000,
    "control characters": json.dumps(_as_json(env={"A": "\x7f"})).encode(),
    "nothing": b"",
}


@pytest.mark.parametrize("sent", SENT)
def test_json_means_what_it_means_as_yaml(sent: str) -> None:
    """Also where the same was read before, and remembered."""

    def read_by(read: Callable[[bytes, str], NamedJob]) -> object:
        try:
            return read(SENT[sent], "job.json")
        except InvalidDocumentsError as error:
            return error.problems

    as_yaml = read_by(job_module._read_with_places)
    assert [read_by(read_job), read_by(read_job)] == [as_yaml, as_yaml]
