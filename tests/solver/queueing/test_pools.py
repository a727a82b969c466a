"""Pools as partitions: nothing starts, grows, moves or is promised anything outside of those that policy opens to it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import Node
from solver.model.snapshot import Snapshot
from solver.model.workload import Job
from solver.plan.plan import Bind, Grow, Nominate
from solver.policy.policy import Policy, policy_of
from solver.queueing.pools import with_pool_limits
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.worlds import policies, snapshots

POOLS = ("left", "right", "far")
LABELS = ("disk=nvme", "zone=west", "zone=east")


def in_pools(snapshot: Snapshot, policy: Policy, seed: int) -> tuple[Snapshot, Policy]:
    """The same cluster, its nodes in three pools, under a policy that closes some of them to some."""
    random = Random(seed)

    def some() -> tuple[str, ...] | None:
        return tuple(random.sample(POOLS, random.randint(1, 2))) if random.random() < 0.5 else None

    def labels() -> list[str]:
        return random.sample(LABELS, random.choice((0, 0, 1, 2)))

    nodes = tuple(
        msgspec.structs.replace(node, pool=random.choice(POOLS), labels=tuple(sorted(labels())))
        for node in snapshot.nodes
    )
    jobs = tuple(_asking(job, labels) for job in snapshot.jobs)
    queues = tuple(msgspec.structs.replace(queue, pools=some()) for queue in policy.queues)
    classes = tuple(msgspec.structs.replace(known, pools=some()) for known in policy.priority_classes)
    scheduling = msgspec.structs.replace(policy.scheduling, gpu_nodes_for=random.choice(("all-jobs", "gpu-jobs")))
    return msgspec.structs.replace(snapshot, nodes=nodes, jobs=jobs), policy_of(queues, classes, scheduling)


def _asking(job: Job, labels: Callable[[], list[str]]) -> Job:
    """The job, of which some task groups ask for labels of nodes."""
    groups = (
        msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, node_labels=tuple(labels()[:1])))
        for group in job.spec.task_groups
    )
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, task_groups=tuple(groups)))


def is_open(job: Job, group: str, node: Node, policy: Policy) -> bool:
    """Whether tasks of a job may be on a node, by a reading of the policy of its own."""
    asked = next(known.shape.node_labels for known in job.spec.task_groups if known.name == group)
    if any(label not in node.labels for label in asked):
        return False
    lists = [known.pools] if (known := policy.priority_class(job)) else []
    name: str | None = job.spec.queue
    while name and (queue := policy.queue(name)):
        lists.append(queue.pools)
        name = queue.parent
    has_none = not any(group.shape.uses_gpus for group in job.spec.task_groups)
    if policy.scheduling.gpu_nodes_for == "gpu-jobs" and has_none and node.gpus:
        return False
    return all(node.pool in pools for pools in lists if pools is not None)


@worlds(200)
@given(snapshots(), policies(), st.integers(0, 10**6), st.booleans())
def test_nothing_is_placed_where_it_may_not_be(snapshot: Snapshot, policy: Policy, seed: int, by_program: bool) -> None:
    snapshot, policy = in_pools(snapshot, policy, seed)
    plan = solve(snapshot, policy, optimise if by_program else None)
    assert violations(snapshot, policy, plan) == ()
    jobs, nodes = {job.name: job for job in snapshot.jobs}, {node.name: node for node in snapshot.nodes}
    placed = (step for step in plan.steps if isinstance(step, Bind | Nominate | Grow))
    tasks = [(jobs[step.job], task) for step in placed for task in step.tasks]
    assert all(is_open(job, task.group, nodes[task.node], policy) for job, task in tasks)


@worlds(50)
@given(snapshots(), policies(), st.integers(0, 10**6))
def test_a_job_is_limited_to_just_the_nodes_that_are_open_to_it(snapshot: Snapshot, policy: Policy, seed: int) -> None:
    snapshot, policy = in_pools(snapshot, policy, seed)
    limited = with_pool_limits(snapshot, policy)
    sets = {known.name: set(known.nodes) for known in limited.node_sets}
    every = {node.name for node in snapshot.nodes}
    for before, after in zip(snapshot.jobs, limited.jobs, strict=True):
        for group, narrowed in zip(before.spec.task_groups, after.spec.task_groups, strict=True):
            of_group = sets[group.nodes] if group.nodes else every
            expected = {node.name for node in snapshot.nodes if is_open(before, group.name, node, policy)} & of_group
            assert (sets[narrowed.nodes] if narrowed.nodes else every) == expected


@given(snapshots(), policies())
@worlds(20)
def test_a_policy_that_says_nothing_of_pools_changes_nothing(snapshot: Snapshot, policy: Policy) -> None:
    assert with_pool_limits(snapshot, policy) is snapshot
