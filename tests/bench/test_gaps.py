"""How far a plan may be from the best: what it leaves unused of what could be used, whatever its steps say, and layer by layer."""

from __future__ import annotations

import random

import msgspec
import pytest

from hack.rounds.gaps import gaps_of, worse
from hack.rounds.onward import Onward
from hack.rounds.world import World
from solver.model.quantities import MILLI_PER_GPU
from solver.model.snapshot import Snapshot
from solver.plan.plan import Certificate, LayerResult, Plan
from solver.round.solve import solve

WORLD = World(1024, pending=200)


@pytest.fixture(scope="module")
def decided() -> tuple[Snapshot, Plan]:
    snapshot = WORLD.snapshot
    return snapshot, solve(snapshot, WORLD.policy, None)


def layers(*results: LayerResult) -> Certificate:
    return Certificate("greedy", results, 0.0, "", 0)


def test_in_use_is_what_the_next_round_finds_held(decided: tuple[Snapshot, Plan]) -> None:
    snapshot, plan = decided
    chance = random.Random(1)
    then = Onward(WORLD.workload(chance), chance, churn=0.0).after(snapshot, plan)
    held = sum(task.gpus for job in then.jobs for task in job.placement)
    found = gaps_of(snapshot, plan)
    assert found.gpus_in_use == pytest.approx(held / MILLI_PER_GPU)
    there = sum(len(node.gpus) for node in snapshot.nodes)
    assert 0.9 * there < found.gpus_in_use <= found.gpus_in_use_bound <= there
    assert found.gpus_in_use_gap == pytest.approx(1 - found.gpus_in_use / found.gpus_in_use_bound, abs=1e-6)


def test_where_little_waits_no_more_can_be_used(decided: tuple[Snapshot, Plan]) -> None:
    snapshot, plan = decided
    idle = msgspec.structs.replace(snapshot, jobs=())
    nothing = msgspec.structs.replace(
        plan, steps=(), certificate=layers(LayerResult("leftover.standard.0", 8.0, 16.0, "unproven"))
    )
    found = gaps_of(idle, nothing)
    assert (found.gpus_in_use, found.gpus_in_use_bound, found.gpus_in_use_gap) == (0, 16, 1)


def test_the_entitled_layer_that_is_furthest_from_its_bound_is_named(decided: tuple[Snapshot, Plan]) -> None:
    snapshot, plan = decided
    certificate = layers(
        LayerResult("entitled.standard.0", 99.0, 100.0, "unproven"),
        LayerResult("entitled.standard.1", 45.0, 50.0, "unproven"),
        LayerResult("leftover.standard.0", 10.0, 20.0, "unproven"),
        LayerResult("fit", -3.0, 0.0, "unproven"),
    )
    found = gaps_of(snapshot, msgspec.structs.replace(plan, certificate=certificate))
    assert found.layers == {"entitled.standard.0": 0.01, "entitled.standard.1": 0.1, "leftover.standard.0": 0.5}
    assert (found.worst_entitled_layer, found.worst_entitled) == ("entitled.standard.1", 0.1)
    better = msgspec.structs.replace(found, worst_entitled=0.05, gpus_in_use_gap=1.0)
    assert worse(better, found) is found
