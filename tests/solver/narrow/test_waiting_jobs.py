"""Sorted anew only where it changes, the order of those that wait is that in which a round would serve them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName, QueueName
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import NarrowWorld
from solver.policy.policy import Policy, Queue, policy_of
from solver.queueing.demand import in_order
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.worlds import comparing_across, job, node, policies, quota_of, shared_by_users, snapshots


@worlds(200)
@given(
    snapshots(jobs_max=9, held_one_in=1),
    policies() | policies().map(comparing_across) | policies().map(shared_by_users),
    st.data(),
)
def test_it_is_the_order_of_a_round(snapshot: Snapshot, policy: Policy, data: st.DataObject) -> None:
    """Whatever has ended, and whoever waits no more, since it was sorted first."""
    plan = solve(snapshot, policy, None)
    narrow = NarrowWorld.after(snapshot, policy, plan)
    narrow.know_waiting()
    world = acted_on(snapshot, plan)
    holding = [job.name for job in world.jobs if job.placement]
    waiting = [job.name for job in world.pending]
    narrow.end(data.draw(st.lists(st.sampled_from(holding), unique=True)) if holding else [])
    narrow.withdraw(data.draw(st.lists(st.sampled_from(waiting), unique=True)) if waiting else [])
    shares = narrow.know_waiting()
    found = sorted((known for line in narrow.waiting.lines.values() for known in line), key=lambda known: known[0])
    left = [(candidate.job, candidate.options) for _, candidate in found]
    again = in_order(left, policy, shares, narrow.waiting.now)
    assert [(c.job.name, c.sub_layer, c.inside_only) for _, c in found] == [
        (c.job.name, c.sub_layer, c.inside_only) for c in again
    ]


def test_a_queue_that_holds_less_comes_earlier() -> None:
    """Each is guaranteed eight GPUs: the one that has less of that is served first."""
    policy = policy_of(tuple(Queue(QueueName(name), None, (quota_of("H100", 8),)) for name in ("a", "b")))
    known = [job("a-0", "a", 1, 2), job("a-1", "a", 1, 5), job("b-0", "b", 1, 6)]
    waiting = [job("a-2", "a", 1, 8), job("b-1", "b", 1, 8)]
    snapshot = snapshot_of(Instant(100), [node("n1", 8), node("n2", 8)], [*known, *waiting])
    narrow = NarrowWorld.after(snapshot, policy, solve(snapshot, policy, None))

    def order() -> list[str]:
        narrow.know_waiting()
        found = sorted((known for line in narrow.waiting.lines.values() for known in line), key=lambda known: known[0])
        return [candidate.job.name for _, candidate in found]

    assert order() == ["b-1", "a-2"]
    narrow.end([JobName("a-1")])
    assert order() == ["a-2", "b-1"]
