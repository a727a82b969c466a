"""The Muri benchmark on a small trace made here: what is read, and a table of figures that changes only on purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hack.bench_muri import main
from hack.muri import nodes, read_jobs

ROWS = [(8 if n % 3 else 32, 600_000 * n, 60_000 * (5 + 37 * n % 400)) for n in range(40)]
"""40 gangs of 8 and 32 GPUs, ten minutes apart: 1.9 times what 64 GPUs can do meanwhile."""

GOLDEN = {
    "srtf": {"avg_jct_s": 29448.4, "makespan_s": 123661.0, "p99_jct_s": 111061.0, "longest_wait_s": 89587.0},
    "default": {"avg_jct_s": 37085.4, "makespan_s": 120549.0, "p99_jct_s": 104349.0, "longest_wait_s": 68842.0},
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    lines = [f"{number},{gpus},{at},{runs},resnet18" for number, (gpus, at, runs) in enumerate(ROWS)]
    path = tmp_path / "small.csv"
    path.write_text("\n".join(["job_id,num_gpu,submit_time,duration,model_name", *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    "policy", [pytest.param("srtf", marks=pytest.mark.thorough), pytest.param("default", marks=pytest.mark.long)]
)
def test_figures_of_a_small_trace(policy: str, trace: Path) -> None:
    ran = CliRunner().invoke(main, ["--trace", str(trace), "--policy", policy, "-o", "json"], catch_exceptions=False)
    assert ran.exit_code == 0
    assert json.loads(ran.stdout) == {"trace": "small", "policy": policy} | GOLDEN[policy]


def test_a_job_is_a_gang_of_whole_nodes_and_knows_its_duration_only_where_that_is_asked_for(trace: Path) -> None:
    known, unknown = read_jobs(trace, known=True)[0], read_jobs(trace, known=False)[0]
    group = known.job.spec.task_groups[0]
    assert (group.replicas, group.shape.gpus, known.duration) == (4, 8, 5 * 60_000)
    assert (known.job.spec.time_limit, unknown.job.spec.time_limit) == (known.duration, None)
    assert sum(len(node.gpus) for node in nodes()) == 64


def test_a_file_that_is_no_trace_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "no.csv").write_text("a,b\n1,2\n")
    ran = CliRunner().invoke(main, ["--trace", str(tmp_path / "no.csv")])
    assert ran.exit_code == 1
    assert "is no such trace" in ran.output
