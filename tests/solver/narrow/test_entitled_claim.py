"""Others leave for a job that waits inside its guarantee, once something has ended, as a complete round would have them leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.ledger_check import LedgerCheck
from solver.model.cluster import NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.snapshot_patch import patch_between
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import FreedDecision, NarrowStep, NarrowWorld
from solver.plan.plan import Bind, Evict, Nominate, Plan, Shrink, Withdraw
from solver.policy.harm import Evictions
from solver.policy.policy import Policy, Queue, Reclaim, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.checker.test_eviction_check import judged
from tests.solver.crowded import CLASSES, GPUS, NOW, crowded, crowded_policies, urgent, whole
from tests.solver.narrow.test_freed_round import complete, plan_of, served, started, without
from tests.solver.narrow.test_narrow_preemption import SOON, beginning
from tests.solver.worlds import node, quota_of

KINDS = ("training", "training", "training", "inference", "batch")
RECLAIMS: Sequence[Reclaim] = ("guaranteed", "guaranteed", "fair-share")


@dataclass(frozen=True)
class Crowd:
    """A round that was acted on, jobs that came after it, and others that ended. `world`: as it is then."""

    policy: Policy
    world: Snapshot
    narrow: NarrowWorld
    before: tuple[Snapshot, Plan]
    gone: Collection[JobName]

    def decided(self) -> tuple[FreedDecision, tuple[NarrowStep, ...]]:
        """What is decided of what has become free."""
        found = self.narrow.found(SOON)
        self.narrow.give(found)
        return found, tuple(found.steps(self.policy))


@st.composite
def lending_policies(draw: st.DrawFn, snapshot: Snapshot) -> Policy:
    """Two queues hold about what they are guaranteed, at times below another, and the third borrows."""
    parent = QueueName("org") if draw(st.booleans()) else None
    held = Counter(known.spec.queue for known in snapshot.jobs for task in known.placement for _ in task.devices)
    dues = {QueueName(name): held[QueueName(name)] + draw(st.sampled_from([0, 0, 0, 1, 2, -1])) for name in "ab"}
    queues = [Queue(parent, None, (quota_of(GPUS, sum(dues.values())),))] if parent else []
    queues += [Queue(name, parent, (quota_of(GPUS, max(0, most)),)) for name, most in dues.items()]
    queues.append(Queue(QueueName("c"), None, ()))
    evictions = Evictions(
        min_gain=draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])), moves_per_round=draw(st.sampled_from([0, 0, 4]))
    )
    scheduling = SchedulingPolicy(evictions=evictions, reclaim=draw(st.sampled_from(RECLAIMS)))
    return policy_of(tuple(queues), CLASSES, scheduling)


@st.composite
def lent(draw: st.DrawFn) -> Snapshot:
    """Nodes that are full of small jobs of three queues, none of which is protected; larger ones wait."""
    nodes, jobs = [node(f"n{number}", 4) for number in range(draw(st.integers(2, 4)))], list[Job]()
    for host in nodes:
        at = 0
        while at < len(host.gpus):
            gpus = min(draw(st.sampled_from([1, 2, 2])), len(host.gpus) - at)
            one = whole(f"run-{len(jobs)}", draw(st.sampled_from("abcc")), gpus, "training", 0)
            devices = tuple(gpu.id for gpu in host.gpus[at : at + gpus])
            place = (TaskPlacement("worker", 0, NodeName(host.name), devices),)
            since = Instant(draw(st.integers(1, 6)) * 100_000)
            jobs.append(msgspec.structs.replace(one, phase="running", attempt=1, started_at=since, placement=place))
            at += gpus
    waiting = [
        whole(f"wait-{number}", draw(st.sampled_from("aab")), gpus, draw(st.sampled_from(KINDS)), 500_000 + number)
        for number, gpus in enumerate(draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=6)))
    ]
    return snapshot_of(NOW, nodes, [*jobs, *waiting])


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Hardly a GPU is free, some are lent, and several jobs wait."""
    snapshot = draw(crowded(waiting_max=7) if draw(st.integers(0, 3)) == 0 else lent())
    policy = draw(lending_policies(snapshot) if draw(st.integers(0, 3)) else crowded_policies())
    plan = solve(snapshot, policy, None)
    narrow = NarrowWorld.after(snapshot, policy, plan)
    world = beginning(acted_on(snapshot, plan), plan)
    if draw(st.integers(0, 2)) == 0:
        came = draw(urgent(SOON))
        world = without(world, (), came)
        done = plan_of(world, policy, narrow.decide(came, SOON))
        world = beginning(acted_on(world, done), done)
    holding = [known.name for known in world.jobs if known.placement]
    gone = draw(st.lists(st.sampled_from(holding), min_size=1, max_size=4, unique=True)) if holding else []
    narrow.end(gone)
    return Crowd(policy, msgspec.structs.replace(without(world, gone), time=SOON), narrow, (snapshot, plan), gone)


def promised(steps: Collection[NarrowStep]) -> set[JobName]:
    return {step.job for step in steps if isinstance(step, Nominate)}


@worlds(400)
@given(crowds())
def test_what_is_decided_keeps_every_rule(known: Crowd) -> None:
    _, steps = known.decided()
    assert judged(known.world, known.policy, steps) == ()


@worlds(400)
@given(crowds())
def test_each_step_keeps_every_rule_beside_those_before(known: Crowd) -> None:
    check, (snapshot, _) = LedgerCheck(known.before[0], known.policy), known.before
    check.change(patch_between(snapshot, known.world))
    jobs, evictions = {job.name: job for job in known.world.jobs}, list[Evict]()
    for step in known.decided()[1]:
        if isinstance(step, Evict):
            evictions.append(step)
            continue
        job = jobs[step.job]
        if isinstance(step, Nominate):
            assert check.refused_promise(step, evictions, job, SOON) == ()
        else:
            assert check.refused(step, job, SOON) == ()
        for eviction in evictions:
            until = SOON.after(eviction.grace)
            check.ask(Intent("stop", eviction.job, eviction.attempt, SOON, until, purpose="evict"))
        check.hold(job, step.attempt, step.tasks)
        evictions = []


@worlds(400)
@given(crowds())
def test_a_complete_round_would_serve_them_too(known: Crowd) -> None:
    _, steps = known.decided()
    whole = complete(known.world, known.policy)
    assert {step.job for step in steps if isinstance(step, Bind)} <= started(whole)
    assert promised(steps) <= served(whole)


@worlds(400)
@given(crowds())
def test_no_job_that_waits_is_worse_off_for_it(known: Crowd) -> None:
    """The next complete round serves each other job that it would have served without, and takes nothing of it back."""
    found, steps = known.decided()
    done = plan_of(known.world, known.policy, found)
    following = complete(beginning(acted_on(known.world, done), done), known.policy)
    begun = {job.name for job in found.jobs}
    assert served(complete(known.world, known.policy)) <= served(following) | begun
    back = (step.job for step in following.steps if isinstance(step, Evict | Shrink | Withdraw))
    assert begun.isdisjoint(back)
    assert promised(steps) <= begun
