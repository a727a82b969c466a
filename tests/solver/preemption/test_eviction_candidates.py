"""Who may give way, judged for all holders at once as arrays, against judging each holder for each preemptor by itself."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.model.cluster import GpuType
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree, QuotaLine
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.eviction_rules import EvictionRules
from solver.queueing.rotation import with_precedence
from solver.quota.allocation_table import RemovedHolders
from solver.quota.borrowing import NOWHERE, borrowing_of
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares, shares_of
from solver.quota.fairshare import demand_of, with_fair_shares
from solver.quota.lending import live_gpus
from solver.quota.vacated import allows, lies_inside
from solver.quota.victims import STANDINGS, PreemptorJob
from tests.drawn import worlds
from tests.solver.preemption.judging import standing_in_line, victims_of
from tests.solver.worlds import TYPES, comparing_across, policies, snapshots

POLICIES = policies() | policies(keeping=True) | policies().map(comparing_across)


def law_of(snapshot: Snapshot, policy: Policy) -> tuple[Shares, EvictionCandidates]:
    """The shares of a world, fair ones included, and the law under them."""
    shares = shares_of(snapshot, QueueTree.of(policy))
    wanted = [(job, ()) for job in snapshot.pending]
    fair = with_fair_shares(shares, live_gpus(snapshot), demand_of(wanted))
    shares = with_precedence(fair, snapshot, policy, wanted)
    return shares, EvictionCandidates(EvictionRules.of(snapshot, policy, shares))


@worlds(500)
@given(snapshots(elastic=True, held_one_in=1), POLICIES)
def test_everybody_stands_in_every_line_where_one_who_goes_down_the_line_finds_them(
    snapshot: Snapshot, policy: Policy
) -> None:
    shares, evictable = law_of(snapshot, policy)
    rules, allocations = evictable.rules, evictable.allocations
    found = borrowing_of(allocations, shares)
    for column, gpu_type in enumerate(allocations.gpu_types):
        for queue in rules.tree.by_name:
            depth = len(rules.tree.path(queue)) - 1
            own = allocations.below[queue]
            names = [holder.job.name for holder in allocations.holders[own]]
            places = zip(names, found[own, column, depth].tolist(), strict=True)
            there = {name: STANDINGS[place] for name, place in places if place != NOWHERE}
            assert there == standing_in_line(rules, shares, QuotaLine(queue, gpu_type))


def preemptor(job: Job, policy: Policy, *, overdue: bool, past_budgets: bool = False) -> PreemptorJob:
    """A job that waits, as the law sees it."""
    known = policy.priority_class(job)
    return PreemptorJob(job, known.value if known else 0, overdue, past_budgets=past_budgets)


def places(evictable: EvictionCandidates, preemptor: PreemptorJob) -> list[int]:
    """Where those who may have to leave for a preemptor stand in the order of harm, those of all queues together."""
    branches = evictable.rules.tree.path(preemptor.job.spec.queue)
    found = [
        evictable.of_its_own(preemptor),
        *(
            evictable.beside(branch, overdue=preemptor.overdue, past_budgets=preemptor.past_budgets)
            for branch in branches
        ),
    ]
    return sorted(np.concatenate(found).tolist())


def held_by_budgets(snapshot: Snapshot, random: Random) -> Snapshot:
    """Some of what runs is held, by what yields to guarantees or by what never does."""
    jobs = tuple(
        msgspec.structs.replace(job, leaves="not", held_by=random.choice(["", "a budget"]))
        if job.placement and random.random() < 0.3
        else job
        for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=jobs)


@worlds(500)
@given(
    snapshots(elastic=True, held_one_in=1), POLICIES, st.booleans(), st.booleans(), st.randoms(use_true_random=False)
)
def test_the_same_may_leave_in_the_same_order_as_by_judging_each(
    snapshot: Snapshot, policy: Policy, overdue: bool, past_budgets: bool, random: Random
) -> None:
    snapshot = held_by_budgets(snapshot, random)
    _, evictable = law_of(snapshot, policy)
    for job in snapshot.jobs:
        if job.spec.queue in evictable.rules.tree.by_name:
            comes = preemptor(job, policy, overdue=overdue, past_budgets=past_budgets)
            assert [evictable.victim(place) for place in places(evictable, comes)] == victims_of(evictable.rules, comes)


@worlds(500)
@given(snapshots(elastic=True, held_one_in=1), POLICIES, st.data())
def test_what_limits_allow_once_some_have_left_is_what_they_allow_of_the_whole_tree_without_them(
    snapshot: Snapshot, policy: Policy, data: st.DataObject
) -> None:
    shares, evictable = law_of(snapshot, policy)
    headroom, queues = QuotaHeadroom(shares), sorted(shares.tree.by_name)
    charges = st.dictionaries(st.sampled_from(TYPES), st.sampled_from([0, 500, 1000, 2000, 4000, 8000]), min_size=1)
    for _ in range(data.draw(st.integers(0, 2))):
        headroom.take(data.draw(st.sampled_from(queues)), data.draw(charges))
    leaving = RemovedHolders(evictable.allocations, np.array(drawn(evictable, data), dtype=np.int64)).charges
    for queue in queues:
        charge = data.draw(charges)
        own = headroom.under(shares.without([(queue, leaving.get(queue, {}))]))
        assert lies_inside(headroom, "entitled", queue, charge, leaving.get(queue, {})) == own.entitled.holds(
            queue, charge
        )
        assert lies_inside(headroom, "fair", queue, charge, leaving.get(queue, {})) == own.fair.holds(queue, charge)
        without = headroom.under(shares.without(leaving.items()))
        assert allows(headroom, queue, charge, leaving) == without.allows(queue, charge)


@worlds(300)
@given(snapshots(elastic=True, held_one_in=1), policies(), st.data())
def test_who_leaves_takes_along_what_cant_be_without_it_and_brings_it_back(
    snapshot: Snapshot, policy: Policy, data: st.DataObject
) -> None:
    _, evictable = law_of(snapshot, policy)
    numbers = drawn(evictable, data)
    leaving = RemovedHolders(evictable.allocations, np.array(numbers, dtype=np.int64))
    assert charged(leaving.charges) == of_those(evictable, numbers)
    for number in list(numbers):
        back = leaving.come_back(number)
        if data.draw(st.booleans()):
            assert leaving.leave_again(number) == back
        else:
            numbers.remove(number)
        assert charged(leaving.charges) == of_those(evictable, numbers)


def drawn(evictable: EvictionCandidates, data: st.DataObject) -> list[int]:
    """Some holders, by number."""
    count = len(evictable.allocations.holders)
    return data.draw(st.lists(st.integers(0, count - 1), unique=True)) if count else []


def of_those(evictable: EvictionCandidates, numbers: list[int]) -> dict[QueueName, dict[GpuType, int]]:
    """What is charged to these holders, and to what leaves with them."""
    whole = {
        part.job.name: part
        for number in numbers
        for part in evictable.rules.whole(evictable.allocations.holders[number])
    }
    found: dict[QueueName, dict[GpuType, int]] = {}
    for part in whole.values():
        known = found.setdefault(part.job.spec.queue, {})
        for gpu_type, milli in part.charge.items():
            known[gpu_type] = known.get(gpu_type, 0) + milli
    return charged(found)


def charged(charges: Mapping[QueueName, Charge]) -> dict[QueueName, dict[GpuType, int]]:
    """Charges without what is 0."""
    found = {queue: {gpu_type: milli for gpu_type, milli in of.items() if milli} for queue, of in charges.items()}
    return {queue: of for queue, of in found.items() if of}
