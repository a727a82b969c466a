"""The benchmark of what rounds serve: clusters of whole GPUs, the same whenever it runs, decided by program and by search."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hack.bench_quality import main
from hack.rounds.quality import CASES, Chooser, measure
from hack.rounds.world import World
from solver.model.quantities import MILLI_PER_GPU

SMALL = CASES["512"].smaller(8)


def ran(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["--smaller", "8", "--seeds", "1", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.thorough
def test_both_choosers_are_told_of_first_and_later_rounds() -> None:
    found = json.loads(ran("--rounds", "2", "-o", "json"))
    assert [(each["chooser"], each["full"]) for each in found] == [
        (chooser, full) for chooser in ("program", "search") for full in (0.93, 0.99)
    ]
    for each in found:
        assert each["first"]["violations"] == each["later"]["violations"] == 0
        assert each["later"]["rounds"] == 2
        assert each["later"]["quiet_rounds"] >= 1
        assert all(layer["value"] <= layer["bound"] for layer in each["first"]["layers"])


@pytest.mark.thorough
def test_a_table_has_each_figure_in_a_row() -> None:
    lines = ran("--rounds", "1").splitlines()
    rows = {line.strip().rpartition("  ")[0].strip() for line in lines}
    assert any(row.startswith("GPU-hours lost for guarantees") for row in rows)
    assert any(row.startswith("evictions in quiet rounds") for row in rows)
    assert "Later rounds" not in ran("--rounds", "0")


def test_larger_clusters_are_decided_by_search_alone() -> None:
    assert CASES["4k"].choosers == ("search",)


@pytest.mark.parametrize("chooser", ["program", "search"])
def test_harm_and_evictions_agree(chooser: Chooser) -> None:
    found = [measure("512", SMALL, seed, 0.99, chooser, 0) for seed in (1, 2, 3)]
    for each in found:
        lost = each.first.lost_entitled_gpu_h + each.first.lost_fair_gpu_h
        assert (lost > 0) == (each.first.evicted + each.first.shrunk + each.first.moved > 0)
    assert any(each.first.evicted for each in found)


def test_no_job_moves_for_one_that_is_elsewhere_once_others_are_spared() -> None:
    """In this cluster the job for which two move has its place elsewhere once a victim of another is spared."""
    assert measure("512", CASES["512"], 5, 0.93, "search", 0).first.violations == 0


def test_clusters_without_parts_have_whole_gpus_alone() -> None:
    world = World(512, pending=200, seed=3, parts=False)
    shapes = {group.shape for job in world.snapshot.jobs for group in job.spec.task_groups}
    assert all(shape.gpus and not shape.mig and not shape.is_shared for shape in shapes)
    assert all(gpu.instances is None for node in world.snapshot.nodes for gpu in node.gpus)
    held = sum(task.gpus for job in world.snapshot.jobs for task in job.placement) / MILLI_PER_GPU
    assert held == pytest.approx(0.93 * 512, rel=0.02)
