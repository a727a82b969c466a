"""A round that a clock decided is recorded so that it can be decided again; any other is computed again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.control.recording import NO_CLOCK_S, BadRecordingError, optimiser_of, solver_with
from reconciler.control.replay import first_difference, replay
from reconciler.protocols.rounds import RoundRecord
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Optimiser, Program, Solution
from solver.model.arrays import Floats
from solver.model.quantities import Cpu, Instant, Memory
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup
from solver.policy.policy import Policy, Queue, SchedulingPolicy, SolverLimits, policy_of
from tests.contracts.simulated_worlds import NODES

POLICY = policy_of((Queue(QueueName("q")),), (), SchedulingPolicy(solver=SolverLimits(gap=0.0)))


def job(name: str, gpus: int) -> Job:
    shape = Shape(gpus=gpus, cpu=Cpu(0), memory=Memory(0))
    return Job(JobName(name), Instant(1), JobSpec(QueueName("q"), (TaskGroup("worker", 1, shape),)))


def contended() -> Snapshot:
    """A greedy answer takes `a` first and can't fill the cluster any more; the program does better."""
    return snapshot_of(Instant(2), NODES, [job("a", 1), *(job(name, 4) for name in "bc")])


def cut(program: Program, start: Floats, effort: Effort) -> Solution | None:
    """Claims that a clock stopped it, with an answer that is not what it would have found: the start."""
    found = optimise(program, start, effort)
    return None if found is None else replace(found, values=start, cut_by_clock=True)


def never_answers(program: Program, start: Floats, effort: Effort) -> Solution | None:
    return None


def recorded(optimiser: Optimiser, policy: Policy = POLICY) -> RoundRecord:
    snapshot = contended()
    plan, solution = solver_with(optimiser)(snapshot, policy).conclude()
    return RoundRecord(7, snapshot.time, "revision", snapshot, policy, plan, {}, solution)


def test_a_round_that_no_clock_decided_is_computed_again() -> None:
    record = recorded(optimise)
    assert record.solution == ""
    assert record.plan.certificate.stage == "mip"
    replayed = replay(record, optimise)
    assert (replayed.identical, replayed.difference, replayed.from_recorded_answer) == (True, "", False)
    assert replayed.replayed_plan == record.plan.digest


@pytest.mark.parametrize("optimiser", [cut, never_answers])
def test_a_round_that_a_clock_decided_replays_from_its_recorded_answer(optimiser: Optimiser) -> None:
    record = recorded(optimiser)
    assert record.solution != ""
    assert record.plan != recorded(optimise).plan, "computing it again would give another plan"
    assert record.plan.certificate.cut_by_clock
    replayed = replay(record, optimise)
    assert (replayed.identical, replayed.from_recorded_answer) == (True, True)


def test_computing_again_has_no_time_limit() -> None:
    """What was not cut the first time must not be cut on a slower machine."""
    limits = []

    def watching(program: Program, start: Floats, effort: Effort) -> Solution | None:
        limits.append(effort.time_limit_s)
        return optimise(program, start, effort)

    assert replay(recorded(optimise), watching).identical
    assert set(limits) == {NO_CLOCK_S}


def test_a_different_plan_is_told_by_its_first_difference() -> None:
    record = recorded(optimise)
    other = recorded(never_answers).plan
    replayed = replay(RoundRecord(7, record.time, "r", record.snapshot, POLICY, other, {}), optimise)
    assert not replayed.identical
    assert replayed.difference.startswith("plan.certificate.")
    assert replayed.recorded_plan == other.digest != replayed.replayed_plan


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": [1, 2]}, {"a": [1, 3]}, "plan.a[1] was 2 and is 3 now"),
        ({"a": [1, 2]}, {"a": [1]}, "plan.a had 2 entries and has 1 now"),
        ({"a": {"b": "x"}}, {"a": {}}, "plan.a.b was 'x' and is None now"),
    ],
)
def test_the_first_difference(before: object, after: object, difference: str) -> None:
    assert first_difference(before, after) == difference


def test_a_recording_that_is_none_is_refused() -> None:
    with pytest.raises(BadRecordingError, match="can't be read"):
        optimiser_of("bm9uZQ==", optimise)
    record = recorded(cut)
    smaller = snapshot_of(Instant(2), NODES[:1], contended().jobs)
    with pytest.raises(BadRecordingError, match="none to the program"):
        replay(RoundRecord(7, record.time, "r", smaller, POLICY, record.plan, {}, record.solution), optimise)
