"""On rounds of hundreds of jobs, exact and production rounds beside an independent program of classes by racks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from solver.milp.certificate import better, same
from solver.milp.highs import optimise
from solver.milp.start_decision import StartDecision, begin
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.placement.starts import layer_names, layer_values
from solver.policy.policy import Policy, Queue, SolverLimits, SolverMode, policy_of
from solver.policy.tree import QuotaLine
from tests.solver.milp.rack_model import GangClass, layer_values_of
from tests.solver.round.test_against_brute_force import world_of
from tests.solver.worlds import CLASSES, job, node, quota_of

RACKS, NODES_PER_RACK, GPUS, JOBS = 20, 4, 8, 200
QUEUES = ("red", "green", "blue")
H100 = GpuType("H100")

NOT_PLACED = {1}
"""Worlds in which no place is found for all that the program counts, in as many tries as there may be."""


@pytest.mark.parametrize(
    "number",
    [pytest.param(0, marks=pytest.mark.thorough), *(pytest.param(other, marks=pytest.mark.long) for other in (1, 2))],
)
def test_every_layer_has_the_value_of_classes_times_racks(number: int) -> None:
    snapshot, policy = world(Random(number))
    exact, values, names = decided(snapshot, policy, "exact")
    model = by_racks(snapshot, policy)
    layers = exact.certificate.layers
    if number in NOT_PLACED:
        # What it could not place it does not call proven; and the first layer in which it is short has the right bound.
        first = next(n for n, (mine, theirs) in enumerate(zip(values, model, strict=False)) if not same(mine, theirs))
        assert layers[first].status == "unproven"
        assert layers[first].bound == pytest.approx(model[first])
    else:
        differing = [
            f"{name}: {mine}, racks {theirs}"
            for name, mine, theirs in zip(names, values, model, strict=False)
            if not same(mine, theirs)
        ]
        assert not differing, "\n".join(differing)
        assert {layer.status for layer in layers} == {"proven"}
    production, others, _ = decided(snapshot, policy, "production")
    assert not better(others, values), "production is above what is proven to be the best"
    assert all(layer.value <= layer.bound + 1e-6 for layer in production.certificate.layers)
    short = sum(max(0.0, mine - theirs) for mine, theirs in zip(values, others, strict=True) if not same(mine, theirs))
    assert short == 0 or {layer.status for layer in production.certificate.layers} != {"proven"}


def world(random: Random) -> tuple[Snapshot, Policy]:
    """A cluster of one type, two thirds held, and more gangs than it has room for, of sizes that divide each other."""
    nodes = [
        node(f"n{rack:02}-{place}", GPUS, rack=f"r{rack:02}")
        for rack in range(RACKS)
        for place in range(NODES_PER_RACK)
    ]
    running = [_runner(random, on.name, f"{on.name}", [gpu.id for gpu in on.gpus]) for on in nodes]
    pending = [
        job(
            f"j{number:03}",
            random.choice(QUEUES),
            random.choice([1, 1, 2, 3, 5]),
            random.choice([1, 2, 4, 8]),
            required=random.choice([None, "rack"]),
            submitted=number,
            priority_class=random.choice(["training", "inference"]),
        )
        for number in range(JOBS)
    ]
    guaranteed = {queue: random.choice([60, 120, 200]) for queue in QUEUES}
    queues = tuple(
        Queue(QueueName(queue), None, (quota_of("H100", guaranteed[queue], random.choice([None, 240])),))
        for queue in QUEUES
    )
    return snapshot_of(Instant(1000), nodes, [*(r for r in running if r), *pending]), policy_of(queues, CLASSES)


def _runner(random: Random, node_name: str, name: str, devices: list[str]) -> Job | None:
    gpus = random.choice([0, 3, 6, 7, 8])
    spec = JobSpec(QueueName(random.choice(QUEUES)), (TaskGroup("worker", 1, Shape(gpus)),), "training")
    held = (TaskPlacement("worker", 0, node_name, tuple(devices[:gpus])),)  # type: ignore[arg-type]
    started = Instant(0)
    return Job(JobName(f"run-{name}"), started, spec, "ada", "running", 1, started, held) if gpus else None


def decided(
    snapshot: Snapshot, policy: Policy, mode: SolverMode
) -> tuple[StartDecision, tuple[float, ...], tuple[str, ...]]:
    """The answer in a mode, its layers' values and their names."""
    # With blocks as cells some of these rounds never end; what production has by then must keep to its bounds all the same.
    limits = SolverLimits(mode, time_limit=Duration(120_000 if mode == "exact" else 2_000))
    candidates, room, shares, sub_layers = world_of(snapshot, policy)
    answer = begin(candidates, room, shares, limits, optimise).answer()
    return answer, layer_values(answer.starts, sub_layers, shares), layer_names(sub_layers)


def by_racks(snapshot: Snapshot, policy: Policy) -> list[float]:
    """What the program of classes by racks reaches in each layer."""
    candidates, room, shares, sub_layers = world_of(snapshot, policy)
    alike = Counter(
        GangClass(
            c.job.spec.queue,
            sub_layers.index(c.sub_layer),
            c.weight,
            c.job.spec.task_groups[0].replicas,
            c.job.spec.task_groups[0].shape.gpus,
            0,
            c.job.spec.topology.required == "rack",
        )
        for c in candidates
    )
    classes = [replace(known, count=count) for known, count in alike.items()]
    racks: dict[str, list[int]] = {}
    for place, on in enumerate(room.nodes):
        racks.setdefault(on.rack, []).append(int(room.free_gpus[place]))
    lines = {queue: QuotaLine(QueueName(queue), H100) for queue in QUEUES}
    under_max = {queue: shares.left_under_max(line) for queue, line in lines.items()}
    return layer_values_of(
        classes,
        list(racks.values()),
        {queue: shares.entitled_room(line) // MILLI_PER_GPU for queue, line in lines.items()},
        {q: sum(map(sum, racks.values())) if room is None else room // MILLI_PER_GPU for q, room in under_max.items()},
        {queue: shares.fair_room(line) // MILLI_PER_GPU for queue, line in lines.items()},
    )
