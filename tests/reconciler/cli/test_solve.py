"""`quorate solve`: what it prints for people and for programs, and what it says of files it can't use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.analysis.reports.plain_text import plain_of
from reconciler.analysis.reports.proof import proof_of
from reconciler.cli.exits import ExitCode
from reconciler.cli.main import run
from reconciler.documents.schemas import data_folder, validator_of
from solver.plan.plan import Certificate, LayerResult

POLICIES = data_folder("policies")
MORNING = data_folder("cluster-state") / "examples" / "morning.json"


def test_the_example_morning_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["solve", "--snapshot", str(MORNING), "--policies", str(POLICIES)]) == ExitCode.OK
    assert capsys.readouterr().out == (
        "start    serve-7b: 3 tasks on h100-a-05, cpu-a-1\n"
        "start    tuning: 2 tasks on h100-a-06, h100-a-07\n"
        "wait     ranking-sweep: jobs that come before it take the room: serve-7b, tuning; "
        "needs 24 H100-SXM5-80GB, 8 free; needs 24 H100-SXM5-80GB, more than the guarantee of queue product-ranking; "
        "other queues' work inside theirs leaves 8\n"
        "help     ranking-sweep: room beside the jobs that come before it; 16 H100-SXM5-80GB more free; "
        "16 H100-SXM5-80GB less in use inside other queues' guarantees\n"
        "never    too-wide: group worker needs 6 x 8 H100-SXM5-80GB; "
        "one rack of the empty cluster has room for 4 such tasks\n"
        "help     too-wide: Up to 4 tasks of group worker would fit, or ask for a wider domain than one rack.\n"
        "decided by greedy; all layers proven\n"
    )


def test_the_json_keeps_its_schema_and_names_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    run(["solve", "--snapshot", str(MORNING), "--policies", str(POLICIES), "-o", "json"])
    plan = json.loads(capsys.readouterr().out)
    assert list(validator_of("Plan").iter_errors(plan)) == []
    jobs = {job["name"] for job in json.loads(MORNING.read_text())["jobs"]}
    assert {verdict["job"] for verdict in plan["verdicts"]} == jobs


def test_a_folder_of_documents_without_inventory_will_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for queue in ("research-language", "research-vision", "product-ranking", "product-inference"):
        (tmp_path / f"{queue}.yaml").write_text(
            f"apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {{name: {queue}}}\nspec: {{}}\n"
        )
    (tmp_path / "classes.yaml").write_text((POLICIES / "priorities.yaml").read_text())
    assert run(["solve", "--snapshot", str(MORNING), "--policies", str(tmp_path)]) == ExitCode.OK
    assert "start    tuning" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        ("{", "snapshot.json:1:1: not JSON"),
        ('{"time": "2026-11-20T09:00:00Z", "nodes": []}', "missing required field `jobs`"),
        ('{"time": "noon", "nodes": [], "jobs": []}', "expected a time with its zone"),
        ('{"time": "2026-11-20T09:00:00Z",\n "nodes": [{"nmae": 1}], "jobs": []}', "snapshot.json:2:"),
    ],
)
def test_a_broken_snapshot_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: str, said: str
) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(snapshot)
    assert run(["solve", "--snapshot", str(path), "--policies", str(POLICIES)]) == ExitCode.ERROR
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


LIMITED = """{"time": "2026-11-20T09:00:00Z",
 "nodes": [{"name": "n2", "pool": "p", "cpu": 9, "memory": "9Gi"}, {"name": "n1", "pool": "p", "cpu": 9, "memory": "9Gi"}],
 "nodeSets": [{"name": "one", "nodes": ["n1"]}],
 "jobs": [{"name": "web", "submittedAt": "2026-11-20T08:00:00Z", "spec": {"queue": "q", "taskGroups": [
  {"name": "worker", "replicas": 1, "shape": {"cpu": 1},
   "nodes": "one"}]}}]}"""


def test_a_snapshot_may_limit_tasks_to_some_of_its_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.yaml").write_text("apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: q}\nspec: {}\n")
    (tmp_path / "snapshot.json").write_text(LIMITED)
    command = ["solve", "--snapshot", str(tmp_path / "snapshot.json"), "--policies", str(tmp_path)]
    assert list(validator_of("Snapshot").iter_errors(json.loads(LIMITED))) == []
    assert run(command) == ExitCode.OK
    assert "start    web: 1 task on n1" in capsys.readouterr().out
    (tmp_path / "snapshot.json").write_text(LIMITED.replace('"nodes": "one"', '"nodes": "two"'))
    assert run(command) == ExitCode.ERROR
    said = capsys.readouterr().err
    assert "snapshot.json:6:" in said
    assert "group worker of job web may be on the nodes 'two', which are no set here" in said
    assert "Add it to nodeSets." in said
    (tmp_path / "snapshot.json").write_text(LIMITED.replace('"nodes": ["n1"]', '"nodes": ["n3"]'))
    assert run(command) == ExitCode.ERROR
    assert "snapshot.json:3:" in capsys.readouterr().err


def test_an_invalid_policy_has_its_own_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queue.yaml").write_text(
        "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: a}\nspec: {wieght: 2}\n"
    )
    assert run(["solve", "--snapshot", str(MORNING), "--policies", str(tmp_path)]) == ExitCode.POLICY_INVALID
    assert "weight" in capsys.readouterr().err


def test_several_problems_are_told_alike_each_with_its_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, field in (("a", "wieght"), ("b", "qouta")):
        (tmp_path / f"{name}.yaml").write_text(
            f"apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{{field}: 2}}\n"
        )
    assert run(["solve", "--snapshot", str(MORNING), "--policies", str(tmp_path)]) == ExitCode.POLICY_INVALID
    assert capsys.readouterr().err.splitlines() == [
        "error: 2 problems",
        "  policies/a.yaml:4:8: error[unknown-field]: there is no field 'wieght' in spec. Did you mean weight?",
        "  policies/b.yaml:4:8: error[unknown-field]: there is no field 'qouta' in spec. Did you mean quota?",
    ]


def test_of_what_is_not_proven_it_says_what_is_reached_and_what_no_plan_exceeds() -> None:
    layers = (
        LayerResult("entitled.standard.0", 94.0, 96.0, "unproven"),
        LayerResult("entitled.standard.1", 8.0, 8.0, "proven"),
        LayerResult("entitled-harm.move", -16.33, 0.0, "unproven"),
        LayerResult("fair.standard.0", 1.75, 98.67, "unproven"),
    )
    proof = plain_of(proof_of(Certificate("greedy", layers, 2.0, "highs", 0, columns=9)))
    assert proof == (
        "decided by greedy; 1 of 4 layers proven; "
        "entitled.standard.0 serves 94 GPUs, and no plan serves more than 96 GPUs; "
        "entitled-harm.move loses 16.3 GPU-hours, and whether fewer would do is not known; "
        "fair.standard.0 serves 1.8 GPUs, and no plan serves more than 98.7 GPUs"
    )


def test_later_layers_that_are_not_proven_are_counted() -> None:
    layers = (
        *(LayerResult(f"entitled.standard.{rank}", 1.0, 2.0, "unproven") for rank in range(3)),
        LayerResult("fit", -2.5, 0.0, "unproven"),
    )
    told = plain_of(proof_of(Certificate("mip", layers, 3.0, "highs", 0, columns=9)))
    assert told.endswith(
        "entitled.standard.2 serves 1 GPU, and no plan serves more than 2 GPUs; 1 later layer not proven"
    )
    (misfit,) = layers[3:]
    assert plain_of(proof_of(Certificate("mip", (misfit,), 0.0, "highs", 0, columns=9))) == (
        "decided by mip; 0 of 1 layer proven; fit is 2.5 above none, and whether less would do is not known"
    )


def test_without_the_program_it_says_that_nothing_bounds_the_plan() -> None:
    layers = (
        LayerResult("entitled.standard.0", 9.0, 10.0, "unproven"),
        LayerResult("entitled-harm.move", -16.33, 0.0, "unproven"),
    )
    unknown = "layers proven; how much better a plan could be is not known"
    assert plain_of(proof_of(Certificate("greedy", layers, 1.0, "none", 0))) == (
        f"decided by greedy; 0 of 2 {unknown}: victims are chosen by search"
    )
    assert plain_of(proof_of(Certificate("greedy", layers[:1], 1.0, "none", 0))) == (
        "decided by greedy; 0 of 1 layer proven; how much better a plan could be is not known: "
        "the integer program gave no answer"
    )
