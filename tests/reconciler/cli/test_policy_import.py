"""`quorate import`: what it writes, reports and refuses, and what a first round would do beside what runs."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from reconciler.cli.exits import ExitCode
from tests.reconciler.cli.conftest import Quorate

KUEUE = """\
kind: ClusterQueue
metadata: {name: vision}
spec:
  namespaceSelector: {}
  cohort: all
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
"""
SLURM = {
    "slurm.conf": """\
        ClusterName=hall
        PreemptType=preempt/partition_prio
        PreemptMode=REQUEUE
        NodeName=g[1-2] CPUs=64 RealMemory=512000 Gres=gpu:h100:8
        PartitionName=high Nodes=g[1-2] PriorityTier=2 PreemptMode=OFF
        PartitionName=low Nodes=g[1-2] PriorityTier=1
        """,
    "assoc.txt": """\
        Cluster|Account|User|ParentName|Share
        hall|root|||1
        hall|astro||root|3
        hall|astro|ada||1
        hall|bio||root|1
        hall|bio|bob||1
        """,
}


@pytest.fixture
def kueue(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(KUEUE)
    return path


@pytest.fixture
def slurm(tmp_path: Path) -> list[str]:
    for name, text in SLURM.items():
        (tmp_path / name).write_text(dedent(text))
    return [str(tmp_path / name) for name in SLURM]


def job(number: int, state: str, **more: object) -> dict[str, object]:
    usual = {
        "job_id": number,
        "name": "train",
        "job_state": state,
        "account": "bio",
        "partition": "low",
        "qos": "normal",
        "user_name": "bob",
        "node_count": 1,
        "time_limit": 60,
        "submit_time": 1_780_000_000,
        "start_time": 1_780_000_600,
        "tres_req_str": "cpu=8,mem=64000M,node=1,billing=8,gres/gpu=8,gres/gpu:h100=8",
    }
    return usual | more


def test_what_is_written_is_a_valid_repository_and_the_report_says_what_differs(
    quorate: Quorate, kueue: Path, tmp_path: Path
) -> None:
    ran = quorate("import", "kueue", str(kueue), "--to", str(tmp_path / "policy"), "--gpu-type", "H100")
    assert (ran.exit_code, ran.err) == (0, "")
    assert "Written, and different: 1\n  spec.preemption.reclaimWithinCohort (Never)" in ran.out
    assert ran.out.endswith(
        f"wrote 3 files to {tmp_path}/policy; they are valid. Next: quorate validate {tmp_path}/policy\n"
    )
    assert quorate("validate", str(tmp_path / "policy")).exit_code == ExitCode.OK
    ran = quorate("import", "kueue", str(kueue), "--to", str(tmp_path / "again"), "--gpu-type", "h100=H100", "--all")
    assert (
        f"  {kueue}:8: ClusterQueue vision: spec.resourceGroups[0].flavors[0].name h100 becomes spec.quota\n" in ran.out
    )


def test_json_has_every_field_with_its_place(quorate: Quorate, kueue: Path, tmp_path: Path) -> None:
    ran = quorate("import", "kueue", str(kueue), "--to", str(tmp_path / "policy"), "--gpu-type", "H100", "-o", "json")
    report = json.loads(ran.out)
    assert (report["apiVersion"], report["kind"], report["system"]) == ("quorate.dev/v1", "ImportReport", "kueue")
    (found,) = (each for each in report["entries"] if each["field"].endswith("nominalQuota"))
    assert (found["line"], found["outcome"], found["target"]) == (8, "carried", "quota of H100: guaranteed")
    assert report["written"] == ["policies/queues/all.yaml", "policies/queues/vision.yaml", "policies/scheduling.yaml"]


def test_no_file_is_replaced_and_nothing_is_written_where_one_is_there(
    quorate: Quorate, kueue: Path, tmp_path: Path
) -> None:
    there = tmp_path / "policy" / "policies" / "queues" / "vision.yaml"
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    ran = quorate("import", "kueue", str(kueue), "--to", str(tmp_path / "policy"), "--gpu-type", "H100")
    assert ran.exit_code == ExitCode.ERROR
    assert f"{there}: the file is there already" in ran.err
    assert [path.name for path in there.parent.iterdir()] == ["vision.yaml"]


def test_what_does_not_fit_to_what_is_there_is_not_written(quorate: Quorate, kueue: Path, tmp_path: Path) -> None:
    there = tmp_path / "policy" / "policies" / "mine.yaml"
    there.parent.mkdir(parents=True)
    there.write_text("apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: mine}\nspec: {}\n")
    ran = quorate("import", "kueue", str(kueue), "--to", str(tmp_path / "policy"), "--gpu-type", "H100")
    assert ran.exit_code == ExitCode.POLICY_INVALID
    assert "second-scheduling-policy" in ran.err or "there is a SchedulingPolicy already" in ran.err
    assert not (tmp_path / "policy" / "policies" / "queues").exists()


def test_what_can_not_be_told_is_one_error_with_its_place_and_a_fix(
    quorate: Quorate, kueue: Path, tmp_path: Path
) -> None:
    ran = quorate("import", "kueue", str(kueue), "--to", str(tmp_path / "policy"))
    assert ran.exit_code == ExitCode.ERROR
    assert (
        f"error: {kueue}:8:1: of which GPU type flavor h100 is can't be told from its labels\n  Give the nodes"
        in ran.err
    )
    wrong = tmp_path / "nodes.json"
    wrong.write_text('{"sinfo": []}')
    ran = quorate("import", "kueue", str(kueue), "--to", str(tmp_path / "policy"), "--nodes", str(wrong))
    assert "`sinfo --json` prints groups of nodes" in ran.err
    assert quorate("import", "kueu", str(kueue), "--to", "x").exit_code == ExitCode.USAGE


def test_a_first_round_beside_what_runs_in_slurm(quorate: Quorate, slurm: list[str], tmp_path: Path) -> None:
    detail = {
        "nodes": "g1",
        "gres_detail": ["gpu:h100:8(IDX:0-7)"],
        "tres_alloc_str": "cpu=8,mem=64000M,gres/gpu:h100=8",
    }
    jobs = [
        job(1, "RUNNING", **detail),
        job(2, "RUNNING", **(detail | {"nodes": "g2"})),
        job(3, "PENDING", account="astro", user_name="ada", start_time=0),
        job(4, "PENDING", array_task_string="1-3%2", array_job_id=4),
        job(5, "FAILED"),
        job(6, "RUNNING", **(detail | {"nodes": "gone7"})),
    ]
    (tmp_path / "squeue.json").write_text(
        json.dumps({"jobs": jobs, "last_update": {"set": True, "number": 1_780_003_600}})
    )
    queue = str(tmp_path / "squeue.json")
    ran = quorate("import", "slurm", *slurm, "--to", str(tmp_path / "policy"), "--check", queue, "-o", "json")
    assert ran.err == "note: left out: train-6: no NodePool has its node gone7\n"
    # Three shares of four are astro's, and bio holds all: one of its jobs gives way.
    assert json.loads(ran.out)["firstRound"]["queues"] == [
        {"queue": "astro", "gpus": 0.0, "gpusAfter": 0.0, "starts": 0, "evicted": 0, "waiting": 1},
        {"queue": "bio", "gpus": 16.0, "gpusAfter": 8.0, "starts": 0, "evicted": 1, "waiting": 3},
    ]
    ran = quorate("import", "slurm", *slurm, "--to", str(tmp_path / "other"), "--check", queue)
    assert "  bio: 16 GPUs held, 8 after it (1 evicted; 3 waiting)\n" in ran.out
    assert "  wait     train-4-1: " in ran.out


def test_a_first_round_of_a_snapshot_finds_queues_by_their_names_there(
    quorate: Quorate, kueue: Path, tmp_path: Path
) -> None:
    node = {"name": "n1", "pool": "p", "cpu": 64, "memory": "1Ti", "gpuType": "H100"}
    node |= {"gpus": [{"id": f"n1/{number}", "index": number} for number in range(8)]}
    group = {"name": "worker", "replicas": 1, "shape": {"gpus": 4}}
    jobs = [
        {"name": name, "submittedAt": "2026-11-20T08:00:00Z", "spec": {"queue": queue, "taskGroups": [group]}}
        for name, queue in (("one", "Vision"), ("lost", "elsewhere"))
    ]
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(json.dumps({"time": "2026-11-20T09:00:00Z", "nodes": [node], "jobs": jobs}))
    kueue.write_text(KUEUE.replace("name: vision", "name: Vision"))
    ran = quorate(
        "import", "kueue", str(kueue), "--to", str(tmp_path / "p"), "--gpu-type", "H100", "--check", str(snapshot)
    )
    assert ran.exit_code == 0, ran.err
    assert "  vision: 0 GPUs held, 4 after it (1 start)\n" in ran.out
    assert "no document has these queues, so that their jobs can't start: elsewhere\n" in ran.out
