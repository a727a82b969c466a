"""Seeded clusters are possible ones, with work on whole GPUs, parts of them and instances, and stay so from round to round."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hack.rounds.nodes import IN_PARTS, POOLS_IN_PARTS
from hack.rounds.onward import Onward
from hack.rounds.world import World
from solver.checker.check import violations
from solver.model.quantities import MILLI_PER_GPU
from solver.model.snapshot import Snapshot
from solver.model.workload import Job
from solver.plan.plan import Bind, Inadmissible, Nominate, Repartition
from solver.round.solve import solve

WORLD = World(1024, pending=300, seed=2)
KINDS = ("whole", "fraction", "instance")


def kind(job: Job) -> str:
    (group,) = job.spec.task_groups
    return "instance" if group.shape.mig else "fraction" if group.shape.is_shared else "whole"


def objections(snapshot: Snapshot) -> list[str]:
    """What of a cluster can't be: a device that is not there, or given more than once, or a node with more than it has."""
    devices = {gpu.id for node in snapshot.nodes for gpu in node.gpus if gpu.instances is None}
    devices |= {part.id_on(gpu.id) for node in snapshot.nodes for gpu in node.gpus for part in gpu.instances or ()}
    given, cores, memory = Counter[str](), Counter[str](), Counter[str]()
    for job in snapshot.jobs:
        (group,) = job.spec.task_groups
        for task in job.placement:
            cores[task.node] += group.shape.cpu
            memory[task.node] += group.shape.memory
            given.update(dict.fromkeys(task.devices, task.share or MILLI_PER_GPU))
    return [
        *(f"{device} is not there" for device in given if device not in devices),
        *(f"{device} is given {milli}" for device, milli in given.items() if milli > MILLI_PER_GPU),
        *(node.name for node in snapshot.nodes if cores[node.name] > node.cpu or memory[node.name] > node.memory),
    ]


def test_of_every_kind_some_run_and_some_wait() -> None:
    snapshot = WORLD.snapshot
    assert objections(snapshot) == []
    for jobs in (snapshot.pending, [job for job in snapshot.jobs if job.placement]):
        assert set(map(kind, jobs)) == set(KINDS)


def test_as_much_is_held_as_was_asked_for_and_few_nodes_are_in_parts() -> None:
    world = World(8192, pending=10, full=0.9)
    snapshot = world.snapshot
    held = sum(task.gpus for job in snapshot.jobs for task in job.placement)
    assert held / MILLI_PER_GPU == pytest.approx(0.9 * 8192, rel=0.001)
    apart = sum(node.pool in POOLS_IN_PARTS.values() for node in snapshot.nodes)
    assert apart / len(snapshot.nodes) == pytest.approx(IN_PARTS, rel=0.1)


@pytest.mark.thorough
def test_clusters_stay_possible_from_round_to_round() -> None:
    chance = random.Random(7)
    onward, snapshot, policy = Onward(WORLD.workload(chance, "later"), chance, churn=0.05), WORLD.snapshot, WORLD.policy
    started, changed = Counter[str](), 0
    for _ in range(4):
        plan = solve(snapshot, policy, None)
        assert violations(snapshot, policy, plan) == ()
        jobs = {job.name: job for job in snapshot.jobs}
        started.update(kind(jobs[step.job]) for step in plan.steps if isinstance(step, Bind | Nominate))
        changed += sum(isinstance(step, Repartition) for step in plan.steps)
        # Parts are always small enough for somebody: what can never start is a gang, too large for what its queue may have.
        never = {kind(jobs[known.job]) for known in plan.verdicts if isinstance(known, Inadmissible)}
        assert never <= {"whole"}
        snapshot = onward.after(snapshot, plan)
        assert objections(snapshot) == []
    assert set(started) == set(KINDS)
    assert changed > 0


def test_no_queue_runs_above_its_ceiling() -> None:
    most = {(str(queue.name), str(quota.gpu_type)): quota.max for queue in WORLD.policy.queues for quota in queue.quota}
    types, held = WORLD.snapshot.gpu_types, Counter[tuple[str, str]]()
    for job in WORLD.snapshot.jobs:
        for task in job.placement if kind(job) == "whole" else ():
            held[job.spec.queue, types[task.node]] += task.gpus
    assert [line for line, milli in held.items() if milli > (most[line] or milli)] == []
