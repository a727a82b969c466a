"""The benchmark of rounds on small clusters: the same decisions whenever it runs, and plans that the checker lets pass."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from hack.bench_round import main
from hack.busy_cluster import EXAMPLE, REPOSITORY
from hack.rounds.cases import CASES, of_snapshot
from hack.rounds.world import World
from solver.model.document import encode
from solver.model.quantities import MILLI_PER_GPU
from solver.policy.division import MigGeometry
from solver.policy.policy import PriorityClass, Queue

FIELDS = {
    "case", "gpus", "nodes", "pending", "cold_s", "warm_p50_s", "warm_p99_s", "to_deed_s", "warm_to_deed_p50_s",
    "warm_to_deed_p99_s", "layers", "gaps", "stage", "rss_mb", "columns", "rows", "nonzeros",
    "placed_tasks_per_s", "checker_violations",
}  # fmt: skip
TIMES = (
    "cold_s",
    "solve_s",
    "check_s",
    "to_deed_s",
    "warm_p50_s",
    "warm_p99_s",
    "warm_to_deed_p50_s",
    "warm_to_deed_p99_s",
    "rss_mb",
    "placed_tasks_per_s",
)


def ran(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(main, [*arguments, "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0
    sys.stderr.write(done.stderr)  # what the checker refuses, for whoever reads why a test failed
    (found,) = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def write_repository(folder: Path, world: World) -> None:
    """The policy of a seeded cluster as somebody would have written it, with its pools."""
    policy = world.policy
    specs: dict[tuple[str, str], dict[str, object]] = {
        ("SchedulingPolicy", "default"): {"defaultPriorityClass": "middle"},
        **{("Queue", known.name): queue_spec(known) for known in policy.queues},
        **{("PriorityClass", known.name): class_spec(known) for known in policy.priority_classes},
        **{("SharingPolicy", known.name): {"pools": [*known.pools], "mode": known.mode} for known in policy.sharing},
        **{("MigGeometry", known.name): geometry_spec(known) for known in policy.mig},
    }
    pools: dict[tuple[str, str], int] = {}
    for node in world.snapshot.nodes:
        pools[node.pool, node.gpu_type] = pools.get((node.pool, node.gpu_type), 0) + 1
    for (pool, gpu_type), count in pools.items():
        nodes = {"prefix": f"{pool}-", "count": count}
        specs["NodePool", pool] = {"gpuType": gpu_type, "gpusPerNode": 8, "cpu": 128, "memory": "1Ti", "nodes": nodes}
    for (kind, name), spec in specs.items():
        file = folder / ("cluster-state" if kind == "NodePool" else "policies") / f"{kind}-{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        document = {"apiVersion": "quorate.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        file.write_text(yaml.safe_dump(document))


def queue_spec(queue: Queue) -> dict[str, object]:
    quota = [
        {"gpuType": entry.gpu_type, "guaranteed": (entry.guaranteed or 0) // MILLI_PER_GPU}
        | ({} if entry.max is None else {"max": entry.max // MILLI_PER_GPU})
        for entry in queue.quota
    ]
    return {"quota": quota} | ({"parent": queue.parent} if queue.parent else {})


def class_spec(known: PriorityClass) -> dict[str, object]:
    return {"value": known.value, "sloClass": known.slo_class, "preemptible": known.preemptible}


def geometry_spec(known: MigGeometry) -> dict[str, object]:
    assert known.changes is not None
    changes = {"perPoolPerHour": known.changes.per_pool_per_hour}
    spec: dict[str, object] = {"pool": known.pool, "mode": known.mode, "changes": changes}
    return spec | ({"layouts": [*known.layouts]} if known.layouts else {})


def test_a_seed_decides_everything_but_the_time() -> None:
    first, second = (ran("--case", "4k", "--smaller", "32", "--program-s", "600") for _ in range(2))
    for found in (first, second):
        for name in TIMES:
            del found[name]
    assert first == second


@pytest.mark.parametrize("case", ["warm", "victims"])
def test_no_round_breaks_a_rule(case: str) -> None:
    found = ran("--case", case, "--smaller", "100")
    assert found["checker_violations"] == 0
    steps = found["steps"]
    assert isinstance(steps, dict)
    assert {"evict", "nominate"} <= set(steps)


def assert_complete(found: dict[str, object]) -> None:
    """All fields are there, and layers as others read them; which of them a gap is of."""
    assert set(found) >= FIELDS
    layers, gaps = found["layers"], found["gaps"]
    assert isinstance(layers, list)
    assert isinstance(gaps, dict)
    assert layers
    assert all(set(layer) == {"name", "value", "bound"} for layer in layers)
    assert set(gaps["layers"]) <= {layer["name"] for layer in layers}
    assert gaps["gpus_in_use"] <= gaps["gpus_in_use_bound"]
    assert found["checker_violations"] == 0


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in ("cold", "warm") else pytest.mark.thorough) for case in CASES]
)
def test_every_case_says_all(case: str) -> None:
    found = ran("--case", case, "--smaller", "200", "--pace-s", "1", "--program-s", "1")
    assert_complete(found)
    assert (found["case"], found["warm_p50_s"] is not None) == (case, CASES[case].rounds > 0)
    assert (found["warm_gaps"] is None) == (found["warm_p99_s"] is None)


@pytest.mark.thorough
def test_who_cannot_wait_is_decided_while_others_come() -> None:
    found = ran("--case", "arrival", "--smaller", "16", "--pace-s", "1", "--program-s", "0")
    more = found["more"]
    assert isinstance(more, dict)
    assert more["urgent"] == 3
    assert found["checker_violations"] == 0


def test_with_a_program_its_size_is_reported() -> None:
    found = ran("--case", "4k", "--smaller", "8", "--program-s", "1")
    columns, rows, nonzeros = (found[name] for name in ("columns", "rows", "nonzeros"))
    assert isinstance(columns, int)
    assert isinstance(rows, int)
    assert isinstance(nonzeros, int)
    assert nonzeros >= columns > 100
    assert rows > 100


def test_a_snapshot_of_ones_own_is_timed_under_its_policy() -> None:
    found = ran("--snapshot", str(EXAMPLE), "--policy", str(REPOSITORY))
    assert_complete(found)
    assert found["case"] == "file"


def test_a_snapshot_and_a_policy_in_files_are_decided_as_they_are_in_memory(tmp_path: Path) -> None:
    world = World(1024, pending=100, seed=3)
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_bytes(encode(world.snapshot))
    write_repository(tmp_path / "repository", world)
    found = ran("--snapshot", str(snapshot), "--policy", str(tmp_path / "repository"), "--program-s", "5")
    assert_complete(found)
    there = msgspec.to_builtins(of_snapshot(world.snapshot, world.policy, 1, 5))
    assert [there[name] for name in ("steps", "gaps", "columns")] == [
        found[name] for name in ("steps", "gaps", "columns")
    ]
    assert found["columns"] != 0


def test_a_snapshot_that_is_none_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text("{]")
    refused = CliRunner().invoke(main, ["--snapshot", str(tmp_path / "snapshot.json"), "--policy", str(REPOSITORY)])
    assert refused.exit_code == 1
    assert "snapshot.json:1:2" in refused.stderr


def test_a_snapshot_without_its_policy_is_refused() -> None:
    refused = CliRunner().invoke(main, ["--snapshot", str(EXAMPLE)])
    assert refused.exit_code == 2
    assert "belong together" in refused.stderr
