"""What is free, followed from snapshot to snapshot, is what it is worked out from nothing; so are shares and victims."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from hack.rounds.onward import Onward
from hack.rounds.world import World
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.model.amounts import CPU, MEMORY
from solver.model.round_cache import RoundCache
from solver.model.shape import TrustDomain
from solver.model.snapshot import Snapshot, snapshot_of
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.eviction_rules import EvictionRules
from solver.quota.entitlement import shares_of
from solver.quota.lending import live_gpus
from solver.round.solve import decide, solve, standing
from tests.drawn import worlds
from tests.solver.aftermath import applied, victims_gone
from tests.solver.capacity.test_offers import offered, state
from tests.solver.round.test_mig import partitioned, partitioned_by
from tests.solver.worlds import policies, sharing_policies, snapshots, with_fractions, with_sets

BESIDE = (CPU, MEMORY, "nic")

WORLDS = st.one_of(
    st.tuples(
        snapshots(elastic=True, close=True, held_one_in=2).flatmap(with_sets), policies() | policies(keeping=True)
    ),
    st.tuples(snapshots(held_one_in=2).flatmap(with_fractions), policies().flatmap(sharing_policies)),
    partitioned(),
)
Round = tuple[Snapshot, Policy]


def started(draw: st.DataObject, snapshot: Snapshot, policy: Policy) -> Round:
    """What the round decides happens, but for jobs that are asked to leave: those are still there."""
    del draw
    return applied(snapshot, solve(snapshot, policy, None)), policy


def left(draw: st.DataObject, snapshot: Snapshot, policy: Policy) -> Round:
    """What the round decides happens, and who was asked to leave has left; GPUs are partitioned anew."""
    del draw
    plan = solve(snapshot, policy, None)
    return partitioned_by(victims_gone(applied(snapshot, plan)), plan), policy


def ended(draw: st.DataObject, snapshot: Snapshot, policy: Policy) -> Round:
    """Some jobs are no more."""
    staying = [job for job in snapshot.jobs if draw.draw(st.booleans())]
    return snapshot_of(snapshot.time, snapshot.nodes, staying, snapshot.in_flight, snapshot.node_sets), policy


def broken(draw: st.DataObject, snapshot: Snapshot, policy: Policy) -> Round:
    """Of one node some GPUs are well and others are not, and it may be closed, or keep its geometry."""
    one = draw.draw(st.sampled_from(snapshot.nodes))
    gpus = tuple(msgspec.structs.replace(gpu, healthy=draw.draw(st.booleans())) for gpu in one.gpus)
    more = {
        name: draw.draw(st.booleans()) for name in draw.draw(st.sampled_from([(), ("cordoned",), ("keeps_geometry",)]))
    }
    other = msgspec.structs.replace(one, gpus=gpus, **more)
    nodes = tuple(other if node is one else node for node in snapshot.nodes)
    return msgspec.structs.replace(snapshot, nodes=nodes), policy


def shrunk(draw: st.DataObject, snapshot: Snapshot, policy: Policy) -> Round:
    """Some jobs have given up a task."""
    jobs = (
        msgspec.structs.replace(job, placement=job.placement[:-1]) if draw.draw(st.booleans()) else job
        for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs)), policy


def governed(draw: st.DataObject, snapshot: Snapshot, policy: Policy) -> Round:
    """Other queues, in other trust domains; the cluster is divided as before."""
    other = draw.draw(policies().flatmap(sharing_policies))
    return snapshot, msgspec.structs.replace(other, mig=policy.mig)


CHANGES: list[Callable[[st.DataObject, Snapshot, Policy], Round]] = [started, left, ended, broken, shrunk, governed]


def room_of(snapshot: Snapshot, policy: Policy, kept: RoundCache | None, leaving: frozenset[Any]) -> FreeCapacity:
    sharing = sharing_of(policy, QueueTree.of(policy), snapshot.nodes)
    return FreeCapacity.of(snapshot, sharing.domain, pool_rules(policy, snapshot), leaving, kept)


def free_in(snapshot: Snapshot, policy: Policy, kept: RoundCache | None, leaving: frozenset[Any]) -> object:
    """All that is said of what is free: by the room itself, and by what its copies offer."""
    room = room_of(snapshot, policy, kept, leaving)
    _, admissions = standing(snapshot, policy)
    ways = [(job.spec, option) for job in snapshot.pending for option in admissions[job.name].options]
    others = [sorted(room.partitions.unused.items()), room.partitions.rules, room.nodes, list(room.shared)]
    return state(room), offered(room.copy(), ways), others


def victims_in(snapshot: Snapshot, policy: Policy, kept: RoundCache | None) -> object:
    """All that is said of jobs that might leave, at what cost, and of what nodes get back from them."""
    shares = shares_of(snapshot, QueueTree.of(policy), kept)
    rules = EvictionRules.of(snapshot, policy, shares, kept)
    found = EvictionCandidates(rules, kept or RoundCache())
    released, held = found.released(room_of(snapshot, policy, kept, frozenset())), rules.allocations
    arrays = (
        *(held.charge, held.has, held.gpus, held.leave, held.place, held.countable, held.by_name, held.devices),
        *(rules.standing, rules.rank, rules.host.alone, rules.host.exceeds, rules.host.milli),
        *(released.holder, released.node, released.gpus, *map(released.beside, BESIDE), *held.columns),
    )
    holders = [(holder.job, dict(holder.charge), holder.priority_class) for holder in held.holders]
    gives = [released.of(number, BESIDE) for number in range(len(holders))]
    order = [found.place_of(number, means) for number in range(len(holders)) for means in range(4)]
    return [array.tolist() for array in arrays], holders, gives, order, rules.ranks, held.gpu_types


@worlds(120)
@given(WORLDS, st.data())
def test_what_is_kept_is_what_is_worked_out_from_nothing(world: Round, data: st.DataObject) -> None:
    (snapshot, policy), kept = world, RoundCache()
    for _ in range(data.draw(st.integers(2, 5))):
        change = data.draw(st.sampled_from(CHANGES))
        event(change.__name__)
        snapshot, policy = change(data, snapshot, policy)
        leaving = frozenset(job.name for job in snapshot.jobs if bool(job.placement) and data.draw(st.booleans()))
        kept.begin()
        seen = kept.settled(snapshot)
        for gone in (frozenset[Any](), leaving, frozenset[Any]()):
            assert free_in(seen, policy, kept, gone) == free_in(snapshot, policy, None, gone)
        tree = QueueTree.of(policy)
        assert shares_of(seen, tree, kept) == shares_of(snapshot, tree)
        assert list(live_gpus(seen, kept).items()) == list(live_gpus(snapshot).items())
        assert victims_in(seen, policy, kept) == victims_in(snapshot, policy, None)


@worlds(120)
@given(WORLDS, st.data())
def test_a_round_decides_the_same_with_what_is_kept(world: Round, data: st.DataObject) -> None:
    (snapshot, policy), kept = world, RoundCache()
    for _ in range(data.draw(st.integers(2, 4))):
        snapshot, policy = data.draw(st.sampled_from(CHANGES))(data, snapshot, policy)
        with_kept, without = (decide(snapshot, policy, None, known) for known in (kept, None))
        assert (with_kept.deed(), with_kept.plan()) == (without.deed(), without.plan())


def later_rounds(world: World, churn: float) -> Onward:
    return Onward(world.workload(random.Random(2), "later"), random.Random(3), churn)


def test_a_room_does_not_change_with_those_that_come_after_it() -> None:
    world, kept = World(512, pending=100), RoundCache()
    snapshot, policy = world.snapshot, world.policy
    first = room_of(snapshot, policy, kept, frozenset())
    before = state(first.copy())
    later = later_rounds(world, 0.1).after(snapshot, solve(snapshot, policy, None))
    second = room_of(later, policy, kept, frozenset())
    assert state(first) == before != state(second)


def test_tasks_that_a_job_has_given_up_are_free() -> None:
    world, kept, nobody = World(512, pending=10), RoundCache(), frozenset[Any]()
    snapshot, policy = world.snapshot, world.policy
    room_of(snapshot, policy, kept, nobody)
    gang = max(snapshot.jobs, key=lambda job: len({task.node for task in job.placement}))
    fewer = msgspec.structs.replace(gang, placement=gang.placement[:1])
    after = msgspec.structs.replace(snapshot, jobs=tuple(fewer if job is gang else job for job in snapshot.jobs))
    assert state(room_of(after, policy, kept, nobody)) == state(room_of(after, policy, None, nobody))


def test_other_trust_domains_are_those_of_shares_that_were_there_before() -> None:
    snapshot, kept = World(512, pending=10).snapshot, RoundCache()
    assert any(task.share is not None for job in snapshot.jobs for task in job.placement)
    one, other = (FreeCapacity.of(snapshot, lambda *_, name=name: TrustDomain(name), kept=kept) for name in "ab")
    assert {gpu.domain for gpus in one.shared.values() for gpu in gpus} == {TrustDomain("a")}
    assert {gpu.domain for gpus in other.shared.values() for gpu in gpus} == {TrustDomain("b")}


def test_only_nodes_on_which_something_changed_are_filled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world, kept, filled = World(2048, pending=100), RoundCache(), list[int]()
    fill = FreeCapacity._hold_together

    def counted(room: FreeCapacity, node: int, tasks: Any) -> None:
        filled.append(node)
        fill(room, node, tasks)

    monkeypatch.setattr(FreeCapacity, "_hold_together", counted)
    snapshot, policy = world.snapshot, world.policy
    plan = solve(snapshot, policy, None, kept)
    in_use = {task.node for job in snapshot.jobs for task in job.placement}
    assert len(filled) == len(set(filled)) == len(in_use)
    filled.clear()
    later = later_rounds(world, 0.01).after(snapshot, plan)
    decide(later, policy, None, kept)
    was = {job.name: job for job in snapshot.jobs}
    other = [(job, was.get(job.name)) for job in later.jobs if was.get(job.name) != job]
    gone = [job for job in snapshot.jobs if job.name not in {known.name for known in later.jobs}]
    of_jobs = [known for pair in other for known in pair if known is not None] + gone
    nodes = {task.node for job in of_jobs for task in job.placement}
    changed = {node.name for node, before in zip(later.nodes, snapshot.nodes, strict=True) if node != before}
    assert 0 < len(filled) <= len(nodes | changed) < len(in_use) / 2
