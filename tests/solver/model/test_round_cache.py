"""Rounds that follow each other decide the same with what is kept between them as without, and do less."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.rounds.onward import Onward
from hack.rounds.world import World
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, Node
from solver.model.document import decode, encode
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, snapshot_of
from solver.plan.plan import Plan, Shrink
from solver.policy.policy import Policy
from solver.quota.victims import HeldGang
from solver.round.admission import Gate
from solver.round.solve import solve
from tests.drawn import first, worlds
from tests.solver.checker.test_check_at_scale import instructions
from tests.solver.worlds import policies, snapshots

Round = tuple[Snapshot, Policy]
Change = Callable[[random.Random, Snapshot, Policy], Round]

CHURN = 0.03
LESS, LATER = 0.95, 0.8
"""Of the instructions that a later round takes from nothing, and of those of the first, what it may take at most."""


def other_objects(_: random.Random, snapshot: Snapshot, policy: Policy) -> Round:
    """Nothing has changed, and nothing is the same object: as when all of it is read from a store in each pass."""
    return decode(encode(snapshot), Snapshot), decode(encode(policy), Policy)


def node_breaks(chance: random.Random, snapshot: Snapshot, policy: Policy) -> Round:
    broken = chance.choice(snapshot.nodes)
    gpus = tuple(msgspec.structs.replace(gpu, healthy=chance.random() < 0.5) for gpu in broken.gpus)
    after = msgspec.structs.replace(broken, gpus=gpus, ready=chance.random() < 0.5)
    return with_nodes(snapshot, [after if node is broken else node for node in snapshot.nodes]), policy


def node_goes(chance: random.Random, snapshot: Snapshot, policy: Policy) -> Round:
    gone = chance.choice(snapshot.nodes)
    return with_nodes(snapshot, [node for node in snapshot.nodes if node is not gone]), policy


def node_comes(chance: random.Random, snapshot: Snapshot, policy: Policy) -> Round:
    like = chance.choice(snapshot.nodes)
    gpus = tuple(msgspec.structs.replace(gpu, id=DeviceId(f"{gpu.id}-new"), instances=None) for gpu in like.gpus)
    new = msgspec.structs.replace(like, name=f"{like.name}-new", gpus=gpus)
    return with_nodes(snapshot, [*snapshot.nodes, new]), policy


def queue_changes(chance: random.Random, snapshot: Snapshot, policy: Policy) -> Round:
    """One is guaranteed less, and one stops."""
    less, stopped = chance.sample([queue for queue in policy.queues if queue.quota], 2)
    quota = tuple(msgspec.structs.replace(entry, guaranteed=(entry.guaranteed or 0) // 2) for entry in less.quota)
    changed = {
        less.name: msgspec.structs.replace(less, quota=quota),
        stopped.name: msgspec.structs.replace(stopped, stop_policy="Hold"),
    }
    queues = tuple(changed.get(queue.name, queue) for queue in policy.queues)
    return snapshot, msgspec.structs.replace(policy, queues=queues)


def class_changes(chance: random.Random, snapshot: Snapshot, policy: Policy) -> Round:
    """What runs is in parts no more, or is again."""
    other = chance.choice(policy.priority_classes)
    after = msgspec.structs.replace(other, preemptible=not other.preemptible, may_borrow=True, slo_class="standard")
    classes = tuple(after if known is other else known for known in policy.priority_classes)
    return snapshot, msgspec.structs.replace(policy, priority_classes=classes)


def specs_change(chance: random.Random, snapshot: Snapshot, policy: Policy) -> Round:
    """Under their old names some jobs are something else: others than they were ask, and run."""
    jobs = list(snapshot.jobs)
    for place in chance.sample(range(len(jobs)), 10):
        job, like = jobs[place], chance.choice(snapshot.jobs)
        spec = like.spec if job.phase == "pending" else msgspec.structs.replace(job.spec, queue=like.spec.queue)
        jobs[place] = msgspec.structs.replace(job, spec=spec)
    return snapshot_of(snapshot.time, snapshot.nodes, jobs, snapshot.in_flight, snapshot.node_sets), policy


CHANGES: tuple[Change, ...] = (
    other_objects,
    node_breaks,
    specs_change,
    node_goes,
    class_changes,
    queue_changes,
    node_comes,
)


def with_nodes(snapshot: Snapshot, nodes: Iterable[Node]) -> Snapshot:
    return snapshot_of(snapshot.time, nodes, snapshot.jobs, snapshot.in_flight)


@cache
def chain(seed: int, gpus: int = 512, pending: int = 100) -> tuple[tuple[Round, Plan], ...]:
    """Rounds, each after what the plan before it has done and one change more, with what they decide from nothing."""
    return tuple(_chain(seed, gpus, pending))


def _chain(seed: int, gpus: int, pending: int) -> Iterator[tuple[Round, Plan]]:
    world, chance = World(gpus, pending=pending, seed=seed), random.Random(seed)
    snapshot, policy = world.snapshot, world.policy
    onward = Onward(world.workload(random.Random(seed + 1), "later"), chance, CHURN)
    for change in (None, *CHANGES):
        if change is not None:
            snapshot, policy = change(chance, snapshot, policy)
        plan = solve(snapshot, policy, None)
        yield (snapshot, policy), plan
        snapshot = onward.after(snapshot, plan)


def decided(rounds: Iterable[Round]) -> list[bytes]:
    """The plans of rounds that follow each other."""
    kept = RoundCache()
    return [encode(solve(snapshot, policy, None, kept)) for snapshot, policy in rounds]


@pytest.mark.parametrize("seed", first(1, [1, 2, 3]))
def test_a_chain_of_rounds_decides_the_same_byte_for_byte(seed: int) -> None:
    rounds = chain(seed)
    assert decided(known for known, _ in rounds) == [encode(plan) for _, plan in rounds]


@pytest.mark.parametrize("seed", first(1, [1, 2, 3]))
def test_so_it_does_in_any_order(seed: int) -> None:
    mixed = random.Random(seed).sample(chain(seed) * 2, 2 * len(chain(seed)))
    assert decided(known for known, _ in mixed) == [encode(plan) for _, plan in mixed]


@worlds(150)
@given(
    st.lists(
        st.tuples(snapshots(elastic=True, held_one_in=2), policies() | policies(keeping=True)), min_size=2, max_size=4
    )
)
def test_so_do_rounds_of_different_worlds_in_which_other_things_have_the_same_names(rounds: list[Round]) -> None:
    assert decided(rounds) == [encode(solve(snapshot, policy, None)) for snapshot, policy in rounds]


def test_so_it_does_with_a_program() -> None:
    rounds, kept = [known for known, _ in chain(1, 192, 60)[:3]], RoundCache()
    for snapshot, policy in rounds:
        assert encode(solve(snapshot, policy, optimise, kept)) == encode(solve(snapshot, policy, optimise))


def test_of_a_later_round_only_what_has_changed_is_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(512, pending=100)
    onward, kept = Onward(world.workload(random.Random(2), "later"), random.Random(3), CHURN), RoundCache()
    judged, parted = counted(monkeypatch, Gate, "_judge"), counted(monkeypatch, HeldGang, "of")
    first = world.snapshot
    plan = solve(first, world.policy, None, kept)
    assert len(judged) > 50
    assert len(parted) == sum(job.phase == "running" for job in first.jobs)
    judged.clear()
    parted.clear()
    later = onward.after(first, plan)
    before = {job.name: job for job in first.jobs}
    new = [job for job in later.jobs if before.get(job.name) != job]
    plan = solve(decode(encode(later), Snapshot), world.policy, None, kept)
    assert 0 < len(judged) <= sum(job.phase == "pending" for job in new)
    # What a rule has shrink is looked at once more, or twice.
    shrinking = sum(isinstance(step, Shrink) for step in plan.steps)
    assert 2 * shrinking < len(parted) <= sum(job.phase == "running" for job in new) + 2 * shrinking


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[object]:
    """One for each time that a function is called."""
    calls, function = list[object](), getattr(owner, name)

    def call(*arguments: object, **named: object) -> object:
        calls.append(arguments)
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_a_later_round_takes_fewer_instructions() -> None:
    world, kept = World(512, pending=100), RoundCache()
    onward = Onward(world.workload(random.Random(2), "later"), random.Random(3), CHURN)
    first, policy = world.snapshot, world.policy
    plan = solve(first, policy, None)  # what is learnt once in a process is known from here on
    of_first = instructions(lambda: solve(first, policy, None, kept))
    later = onward.after(first, plan)
    after = instructions(lambda: solve(later, policy, None, kept))
    anew = instructions(lambda: solve(later, policy, None))
    assert after < LESS * anew
    assert after < LATER * of_first
