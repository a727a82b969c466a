"""The openb benchmark on a small trace made here: who arrives, what counts, and that both ways are Quorate's own."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hack.bench_openb import InRounds, OneByOne, allocated_pct, main
from hack.openb import NODES_FILE, PODS_FILE, PUBLISHED_FILE, arrivals, policy, read_nodes, read_pods, read_published
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName
from solver.plan.plan import Bind
from solver.round.solve import solve

NODES = """sn,cpu_milli,memory_mib,gpu,model
node-1,32000,131072,4,V100
node-0,64000,262144,8,G2
node-2,104000,262144,2,T4
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
pod-2,6000,1024,1,460,
pod-0,8000,1024,1,1000,
pod-1,4000,1024,1,810,V100|T4|G2
pod-3,16000,1024,4,1000,
pod-4,4000,1024,0,0,
pod-5,2000,1024,1,230,T4
"""
PUBLISHED = """metric,workload,policy,arrived_pct,mean,sd_pop,n
gpu_alloc_pct,openb_pod_list_default,06-FGD,100,95.227,0.101,10
gpu_alloc_pct,openb_pod_list_default,05-BestFit,100,92.86,0.1,10
"""


GOLDEN = [
    ("00", "node-0", "node-0/0"),
    ("01", "node-0", "node-0/1"),
    ("02", "node-2", "node-2/0"),
    ("03", "node-0", "node-0/2"),
    ("04", "node-2", "node-2/1"),
    ("05", "node-2", "node-2/1"),
    ("06", "node-2", "node-2/1"),
    ("07", "node-1", "node-1/0"),
]
"""The end of the pod's name, its node, its device: 0.23, 0.46 and 0.23 share a T4: pods 04 and 06 may use no other type."""


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for file, text in ((NODES_FILE, NODES), (PODS_FILE.format("default"), PODS), (PUBLISHED_FILE, PUBLISHED)):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


def arrived(traces: Path, seed: int = 0) -> tuple[Job, ...]:
    return arrivals(read_pods(traces, "default", read_nodes(traces)), 14, seed)


def test_nodes_and_pods_are_read_in_the_order_of_their_names(traces: Path) -> None:
    nodes = read_nodes(traces)
    assert [(node.name, len(node.gpus), node.gpu_type) for node in nodes] == [
        ("node-0", 8, "G2"),
        ("node-1", 4, "V100"),
        ("node-2", 2, "T4"),
    ]
    shapes = [spec.task_groups[0].shape for spec in read_pods(traces, "default", nodes)]
    assert [(shape.gpus, shape.gpu_fraction) for shape in shapes] == [
        (1, None),
        (0, 810),
        (0, 460),
        (4, None),
        (0, None),
        (0, 230),
    ]
    assert shapes[1].gpu_types == (GpuType("G2"), GpuType("V100"), GpuType("T4")), "the most plentiful first"


def test_pods_arrive_until_they_ask_for_1_3_times_the_cluster(traces: Path) -> None:
    pods = arrived(traces)
    asked = sum(pod.spec.gpus for pod in pods)
    assert asked - pods[-1].spec.gpus < 1.3 * 14_000 <= asked
    assert pods == arrived(traces)
    assert pods != arrived(traces, seed=1)
    assert len({pod.spec.task_groups for pod in pods}) < len(pods), "drawn with replacement"


def test_what_counts_is_given_away_when_so_much_has_arrived(traces: Path) -> None:
    pods = arrived(traces)
    everything = allocated_pct(pods, {pod.name for pod in pods}, 14)
    assert all(demand <= pct < demand + 100 * 4 / 14 for demand, pct in everything.items())
    assert set(allocated_pct(pods, set(), 14).values()) == {0.0}
    assert list(everything) == [80, 90, 95, 100, 110, 120, 130]


@pytest.mark.thorough
def test_one_by_one_is_what_rounds_of_one_decide(traces: Path) -> None:
    nodes = read_nodes(traces)
    for optimiser in (None, optimise):
        for seed in range(3):
            pods = arrived(traces, seed)
            kept = list(OneByOne(nodes, policy(), optimiser, repriced_every=1).place(pods))
            assert kept == list(InRounds(nodes, policy(), optimiser, 1).place(pods))
            assert 0 < len(kept) < len(pods), "some pod found no place"


def test_no_round_gives_away_more_than_there_is(traces: Path) -> None:
    nodes = read_nodes(traces)
    pods = arrived(traces)
    live: list[Job] = []
    for first in range(0, len(pods), 7):
        batch = {pod.name: pod for pod in pods[first : first + 7]}
        snapshot = snapshot_of(Instant(first + 7), nodes, [*live, *batch.values()])
        plan = solve(snapshot, policy(), optimise)
        assert violations(snapshot, policy(), plan) == ()
        for step in plan.steps:
            assert isinstance(step, Bind)
            live.append(
                msgspec.structs.replace(
                    batch[step.job], phase="running", attempt=1, started_at=Instant(first), placement=step.tasks
                )
            )
    placed: set[JobName] = {job.name for job in live}
    assert placed == {name for name, _ in InRounds(nodes, policy(), optimise, 7).place(pods)}
    assert sum(job.spec.gpus for job in live) <= 14_000


def test_a_golden_run(traces: Path) -> None:
    """Where the first pods of seed 0 went when this was written; a change here is a change of the rule, to be measured anew."""
    placed = list(OneByOne(read_nodes(traces), policy(), optimise).place(arrived(traces)))
    assert [(job[-2:], tasks[0].node, *tasks[0].devices) for job, tasks in placed][:8] == GOLDEN


def test_the_result_as_json_and_as_a_table(traces: Path) -> None:
    command = ["--traces", str(traces), "--seeds", "2", "--batch", "1"]
    ran = CliRunner().invoke(main, [*command, "-o", "json"])
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.output)
    assert list(result) == ["list", "batch", "tie_rule", "seeds", "alloc_pct", "sd", "seconds"]
    assert (result["list"], result["batch"], result["seeds"]) == ("default", 1, 2)
    nodes = read_nodes(traces)
    by_hand = []
    for seed in range(2):
        pods = arrived(traces, seed)
        placed = {name for name, _ in OneByOne(nodes, policy(), optimise).place(pods)}
        by_hand.append(allocated_pct(pods, placed, 14)[100])
    assert result["alloc_pct"]["100"] == pytest.approx(sum(by_hand) / 2, abs=0.001)
    assert result["sd"]["100"] == pytest.approx(abs(by_hand[0] - by_hand[1]) / 2, abs=0.001)
    table = CliRunner().invoke(main, command)
    assert table.exit_code == 0
    assert "95.23" in table.output
    assert read_published(traces, "default") == {100: 95.227}


def test_a_batch_that_is_no_number_is_a_usage_error(traces: Path) -> None:
    ran = CliRunner().invoke(main, ["--traces", str(traces), "--batch", "many"])
    assert ran.exit_code == 2
    assert "neither a number of pods nor 'round'" in ran.output


def test_a_folder_without_the_trace_is_said_in_a_sentence(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["--traces", str(tmp_path)])
    assert ran.exit_code == 1
    assert "does not hold the trace" in ran.output
