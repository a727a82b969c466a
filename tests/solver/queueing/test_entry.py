"""Promises about what the queues let in, for every world: holds, classes and the cap for one user."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, QueueName
from solver.plan.plan import Bind, Inadmissible, Plan, Waits
from solver.plan.reasons import HeldReason
from solver.plan.refusals import ClassNotAllowed, NamespaceNotAllowed
from solver.policy.policy import (
    NamespaceAccess,
    NamespaceSelector,
    Policy,
    QueueAccess,
    UnlistedNamespaces,
    policy_of,
)
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.worlds import TYPES, policies, quota_of, snapshots

many = worlds(100)

BELOW = {"org": ("left", "r1", "r2"), "right": ("r1", "r2"), "r1": ("r1",)}
"""The leaves at or below a queue of the random policies."""
Listed = list[tuple[str, NamespaceAccess]]


@many
@given(snapshots(), policies(), st.sampled_from(sorted(BELOW)))
def test_a_hold_starts_nothing_below_it_and_leaves_the_room_to_others(
    snapshot: Snapshot, policy: Policy, name: str
) -> None:
    held = changed(policy, name, stop_policy="Hold")
    plan = solve(snapshot, held, optimise)
    below = BELOW[name]
    for verdict in plan.verdicts:
        job = next(job for job in snapshot.jobs if job.name == verdict.job)
        if job.phase == "pending" and job.spec.queue in below:
            assert isinstance(verdict, Waits | Inadmissible)
            assert isinstance(verdict, Inadmissible) or HeldReason(QueueName(name)) in verdict.reasons
    without = [job for job in snapshot.jobs if job.phase != "pending" or job.spec.queue not in below]
    emptied = msgspec.structs.replace(snapshot, jobs=tuple(without))
    assert plan.steps == solve(emptied, held, optimise).steps, "held jobs take part in the round"


@many
@given(snapshots(), policies(), st.sampled_from(sorted(BELOW)))
def test_only_classes_that_every_queue_on_the_path_takes_are_admitted(
    snapshot: Snapshot, policy: Policy, name: str
) -> None:
    only = ("training",)
    plan = solve(snapshot, changed(policy, name, priority_classes=only), optimise)
    below = BELOW[name]
    for job in snapshot.pending:
        verdict = next(verdict for verdict in plan.verdicts if verdict.job == job.name)
        if job.spec.queue in below and job.spec.priority_class != "training":
            assert isinstance(verdict, Inadmissible)
            assert ClassNotAllowed(job.spec.priority_class, QueueName(name), only) in verdict.reasons


@many
@given(snapshots(sizes=(1, 2)), policies(), st.sampled_from(sorted(BELOW)), st.integers(0, 6))
def test_no_user_is_lifted_above_a_cap(snapshot: Snapshot, policy: Policy, name: str, cap: int) -> None:
    capped = changed(policy, name, quota=tuple(quota_of(gpu_type, per_user=cap) for gpu_type in TYPES))
    before, after = held_by_user(snapshot, name, None), held_by_user(snapshot, name, solve(snapshot, capped, optimise))
    assert all(gpus <= max(cap, before[who]) for who, gpus in after.items())


PATTERNS = ("vision", "vision-*", "lab-*", "*")
NAMESPACES = ("", "vision", "vision-2", "lab-7", "guests")

LABELS = ((), ("team=a",), ("team=a", "tier=gpu"), ("team=b", "tier=gpu"))
"""Of NAMESPACES but the first, in their order."""
SELECTORS = ({"team": "a"}, {"tier": "gpu", "team": "a"}, {"tier": "gpu"})

some_classes = st.none() | st.sampled_from([("training",), ("batch", "inference")])
entries = st.builds(NamespaceAccess, st.sampled_from(PATTERNS), some_classes) | st.builds(
    NamespaceAccess,
    priority_classes=some_classes,
    selector=st.builds(NamespaceSelector, st.sampled_from(SELECTORS)),
)
lists = st.lists(st.tuples(st.sampled_from(sorted(BELOW)), entries), max_size=4)


@many
@given(snapshots(), policies(), lists, st.sampled_from(["allowed", "refused"]), st.data())
def test_a_namespace_uses_the_queues_that_list_it_and_no_running_job_leaves_for_that(
    snapshot: Snapshot, policy: Policy, listed: Listed, unlisted: UnlistedNamespaces, data: st.DataObject
) -> None:
    for name in {name for name, _ in listed}:
        access = QueueAccess(namespaces=tuple(entry for queue, entry in listed if queue == name))
        policy = changed(policy, name, access=access)
    scheduling = msgspec.structs.replace(policy.scheduling, unlisted_namespaces=unlisted)
    policy = msgspec.structs.replace(policy, scheduling=scheduling)
    labels = dict(zip(NAMESPACES, ((), *LABELS), strict=True))
    spaces = [data.draw(st.sampled_from(NAMESPACES)) for _ in snapshot.jobs]
    drawn = [
        msgspec.structs.replace(job, namespace=space, namespace_labels=labels[space])
        for job, space in zip(snapshot.jobs, spaces, strict=True)
    ]
    world = msgspec.structs.replace(snapshot, jobs=tuple(drawn))
    plan = solve(world, policy, optimise)
    assert violations(world, policy, plan) == ()
    barred = [job for job in world.pending if not may_use(job, listed, unlisted)]
    told = {
        verdict.job
        for verdict in plan.verdicts
        if isinstance(verdict, Inadmissible) and any(isinstance(why, NamespaceNotAllowed) for why in verdict.reasons)
    }
    assert told == {job.name for job in barred}
    emptied = msgspec.structs.replace(world, jobs=tuple(job for job in world.jobs if job not in barred))
    assert plan.steps == solve(emptied, policy, optimise).steps, "a job that may not be there takes part in the round"


def may_use(job: Job, listed: Listed, unlisted: UnlistedNamespaces) -> bool:
    """By the rule's own words."""
    everywhere = [(queue, entry) for queue, entry in listed if fits(job, entry)]
    on_path = [queue for queue, _ in listed if job.spec.queue in BELOW[queue]]
    if not job.namespace:
        return True
    if not everywhere:
        return unlisted == "allowed" and not on_path
    return any(
        entry.priority_classes is None or job.spec.priority_class in entry.priority_classes
        for queue, entry in everywhere
        if job.spec.queue in BELOW[queue]
    )


def fits(job: Job, entry: NamespaceAccess) -> bool:
    beginning = {"vision": "vision", "vision-*": "vision-", "lab-*": "lab-", "*": ""}.get(entry.name, "")
    if entry.selector:
        there = dict(label.split("=") for label in job.namespace_labels)
        return {**there, **entry.selector.match_labels} == there
    return job.namespace.startswith(beginning) if entry.name.endswith("*") else job.namespace == beginning


def changed(policy: Policy, name: str, **fields: object) -> Policy:
    """The policy with fields of one queue replaced."""
    queues = tuple(msgspec.structs.replace(queue, **fields) if queue.name == name else queue for queue in policy.queues)
    return policy_of(queues, policy.priority_classes, policy.scheduling)


def held_by_user(snapshot: Snapshot, name: str, plan: Plan | None) -> Counter[tuple[str, str]]:
    """GPUs by user and type, in one queue and below it, after the plan's binds."""
    below = BELOW[name]
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    binds = {step.job: step.tasks for step in (plan.steps if plan else ()) if isinstance(step, Bind)}
    held: Counter[tuple[str, str]] = Counter()
    for job in snapshot.jobs:
        for task in (*job.placement, *binds.get(job.name, ())) if job.spec.queue in below else ():
            held[job.user, types[task.node]] += len(task.devices)
    return held
