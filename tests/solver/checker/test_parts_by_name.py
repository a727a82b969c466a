"""The checker takes running gangs apart where a rule asks for them, and nowhere else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.rounds.world import World
from solver.checker import parts
from solver.checker.case import JudgedPlan
from solver.checker.evictions import eviction_violations
from solver.checker.parts import PartsByName
from solver.checker.policy_index import PolicyIndex
from solver.model.parts import in_parts
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName
from solver.plan.plan import Evict, Nominate
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.solver.worlds import policies, snapshots


def everything(snapshot: Snapshot, lookup: PolicyIndex) -> dict[JobName, Job]:
    """All parts of all jobs, worked out one after the other; nothing is in flight."""
    found: dict[JobName, Job] = {}
    for job in snapshot.jobs:
        known = lookup.class_of(job)
        divisible = job.phase == "running" and known is not None and known.preemptible
        found |= {part.name: part for part in (in_parts(job) if divisible else (job,))}
    return found


@given(snapshots(elastic=True), policies(), st.randoms(use_true_random=False))
def test_parts_are_those_of_all_jobs_whoever_is_asked_for_first(
    snapshot: Snapshot, policy: Policy, chance: random.Random
) -> None:
    lookup = PolicyIndex(policy)
    expected, found = everything(snapshot, lookup), PartsByName(snapshot, lookup)
    names = list(expected)
    chance.shuffle(names)
    assert {name: found[name] for name in names[: len(names) // 2]} == {
        name: expected[name] for name in names[: len(names) // 2]
    }
    assert list(found.items()) == list(expected.items())
    assert len(found) == len(expected)
    assert JobName("nobody/worker/000001") not in found


def test_one_eviction_takes_few_gangs_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1024, pending=256)
    snapshot = world.snapshot
    plan = solve(snapshot, world.policy, None)
    eviction = next(step for step in plan.steps if isinstance(step, Evict) and step.means == "reclaim")
    promise = next(step for step in plan.steps if isinstance(step, Nominate) and step.job == eviction.beneficiary)
    case = JudgedPlan.of(
        snapshot, world.policy, type(plan)(plan.snapshot, plan.policy, (eviction, promise), (), plan.certificate)
    )
    apart: list[str] = []

    def counted(job: Job) -> tuple[Job, ...]:
        apart.append(job.name)
        return in_parts(job)

    monkeypatch.setattr(parts, "in_parts", counted)
    list(eviction_violations(case))
    assert len(apart) == len(set(apart))
    few = len(apart)
    assert few
    list(case.parted.jobs)
    assert few <= len(apart) / 2
