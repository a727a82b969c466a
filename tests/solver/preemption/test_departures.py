"""Limits that were lowered heal by a stated time: clocks start once, survive everything but the limit being kept again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.inflight import ConvergenceClock, InFlight
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.policy.harm import Convergence, Evictable
from solver.policy.policy import Policy, Queue, Quota, SchedulingPolicy, policy_of
from solver.preemption.departures import clocks_of

HOUR = 3_600_000
WITHIN = Duration(24 * HOUR)
Q, H = QueueName("q"), GpuType("H100")


def policy(gpus_max: int, evict: Evictable = "preemptible") -> Policy:
    return policy_of(
        (Queue(Q, quota=(Quota(H, max=MilliGpu.gpus(gpus_max)),)),),
        (),
        SchedulingPolicy(convergence=Convergence(WITHIN, evict)),
    )


def world(hour: int, held: int, clocks: tuple[ConvergenceClock, ...] = ()) -> Snapshot:
    """One queue holds some of 64 GPUs at an hour."""
    node = NodeName("n")
    gpus = tuple(Gpu(DeviceId(f"n/{index}"), index) for index in range(64))
    spec = JobSpec(Q, (TaskGroup("worker", held, Shape(gpus=1)),))
    tasks = tuple(TaskPlacement("worker", index, node, (DeviceId(f"n/{index}"),)) for index in range(held))
    job = Job(JobName("j"), Instant(0), spec, phase="running", attempt=1, started_at=Instant(0), placement=tasks)
    nodes = (Node(node, "pool", Cpu(64_000), Memory(1 << 40), H, gpus),)
    return snapshot_of(Instant(hour * HOUR), nodes, (job,), InFlight(convergence=clocks))


def clock(commit: str, limit: int, hour: int) -> ConvergenceClock:
    return ConvergenceClock(commit, Q, H, MilliGpu.gpus(limit), Instant(hour * HOUR))


def test_a_limit_that_is_kept_has_no_clock() -> None:
    assert clocks_of(world(0, held=8), policy(8), "a") == ()


def test_the_clock_starts_with_the_commit_that_breaks_the_limit_and_outlives_others() -> None:
    first = clocks_of(world(0, held=9), policy(8), "a")
    assert first == (clock("a", 8, 24),)
    assert clocks_of(world(5, 9, first), policy(8), "b") == first


def test_a_limit_lowered_again_has_a_clock_of_its_own() -> None:
    assert clocks_of(world(5, 32, (clock("a", 16, 24),)), policy(8), "b") == (clock("a", 16, 24), clock("b", 8, 29))


def test_a_limit_raised_in_part_keeps_its_time() -> None:
    assert clocks_of(world(5, 32, (clock("a", 16, 24),)), policy(24), "b") == (clock("a", 24, 24),)


def test_a_revert_ends_the_clock() -> None:
    assert clocks_of(world(5, 32, (clock("a", 16, 24),)), policy(32), "b") == ()


def test_nobody_has_to_leave_where_the_policy_says_none() -> None:
    assert clocks_of(world(5, 32), policy(8, "none"), "a") == ()


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 12), st.integers(0, 12)), max_size=8),
)
def test_whatever_happens_a_broken_limit_is_due_within_its_time(steps: list[tuple[int, int, int]]) -> None:
    """At every moment: the limit as it is has a clock exactly where it is broken, and no deadline ever moves back."""
    hour, clocks = 0, tuple[ConvergenceClock, ...]()
    for number, (passed, held, gpus_max) in enumerate(steps):
        hour += passed
        before, clocks = clocks, clocks_of(world(hour, held, clocks), policy(gpus_max), f"commit-{number}")
        assert {known.limit for known in clocks if known.limit == MilliGpu.gpus(gpus_max)} == (
            {MilliGpu.gpus(gpus_max)} if held > gpus_max else set()
        )
        for known in clocks:
            assert known.deadline <= hour * HOUR + WITHIN
        if before and clocks:
            assert min(known.deadline for known in clocks) <= max(known.deadline for known in before) or all(
                old.limit >= MilliGpu.gpus(held) for old in before
            )
        assert clocks_of(world(hour, held, clocks), policy(gpus_max), "restarted") == clocks
