"""What a policy test begins with: nodes, jobs that run already, and jobs that come, as a replay takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from reconciler.documents.declarations import Declaration
from reconciler.documents.inventory import NodePoolSpec, PoolNodes, declared_nodes
from reconciler.documents.mig import fixed_layouts
from reconciler.documents.policy_test import GivenJob, GivenPool, PolicyTest, PolicyTestSetup, Running
from reconciler.documents.reader import Located
from reconciler.documents.repository import Compiled
from reconciler.documents.topology import TopologyShape, TopologySpec
from reconciler.model.problem import Path
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import Job, JobSpec, TaskGroup, TaskPlacement
from solver.plan.reason import count
from solver.policy.policy import Policy
from solver.simulation.trace import TraceJob

BEGINS = Instant.parse("2026-01-05T00:00:00Z")
"""When a test begins that does not say it."""

_FOR_EVER = Duration(100 * 365 * 86_400_000)
"""How long a job runs without a stated end: for longer than any test."""

_NOWHERE = Located({}, {}, {})
"""Pools of a test are no documents of their own."""


class GivenError(Exception):
    """What is given can't be so: `path` leads to what is wrong in the document."""

    def __init__(self, path: Path, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem
        self.fix = fix


@dataclass(frozen=True)
class PolicyTestWorld:
    """The cluster as it is when the test begins, what runs on it, and what comes. A job comes with how long it runs."""

    begins: Instant
    nodes: tuple[Node, ...]
    running: tuple[TraceJob, ...]
    arriving: tuple[TraceJob, ...]


def world_of(test: PolicyTest, compiled: Compiled) -> PolicyTestWorld:
    """Build it. Raises GivenError."""
    given = test.given
    begins = given.begins if given.begins is not None else BEGINS
    nodes = tuple(_condition(node, given) for node in (_own_nodes(given, compiled) or compiled.nodes))
    floor = _Floor(nodes)
    running: list[TraceJob] = []
    arriving: list[TraceJob] = []
    for index, written in enumerate(given.jobs):
        for name in written.names:
            job = Job(name, _submitted(written, begins), _spec(written), written.user, namespace=written.namespace)
            begun = TraceJob(job, _duration(written, job, compiled.policy))
            if written.running is None:
                arriving.append(begun)
            else:
                path: Path = ("spec", "given", "jobs", index)
                running.append(_started(begun, written.running, begins, floor, compiled.policy, path))
    return PolicyTestWorld(begins, nodes, tuple(running), tuple(arriving))


def _own_nodes(given: PolicyTestSetup, compiled: Compiled) -> tuple[Node, ...]:
    pools = [Declaration("", pool.name, _NOWHERE, _pool_spec(pool)) for pool in given.pools]
    topologies = [
        Declaration(
            "",
            pool.name,
            _NOWHERE,
            TopologySpec(pool.name, shape=TopologyShape(1, pool.nodes_per_rack or 1, pool.racks_per_block or 1)),
        )
        for pool in given.pools
        if pool.nodes_per_rack or pool.racks_per_block
    ]
    return declared_nodes(pools, topologies, fixed_layouts(compiled.policy.mig))


def _pool_spec(pool: GivenPool) -> NodePoolSpec:
    nodes = PoolNodes(names=tuple(pool.node_names()))
    gpus = pool.gpus_per_node if pool.gpu_type else 0
    return NodePoolSpec(pool.cpu, pool.memory, nodes, pool.gpu_type, gpus, pool.gpu_memory, labels=pool.labels)


def _condition(node: Node, given: PolicyTestSetup) -> Node:
    """A node as the test finds it: declared nodes count as there."""
    return msgspec.structs.replace(
        node, ready=node.name not in given.lost, cordoned=node.cordoned or node.name in given.cordoned
    )


def _spec(written: GivenJob) -> JobSpec:
    shape = Shape(written.gpus or 0, written.gpu_types)
    groups = written.task_groups or (TaskGroup("worker", written.replicas, shape, min_replicas=written.min_replicas),)
    return JobSpec(
        queue=written.queue,
        task_groups=groups,
        priority_class=written.priority_class,
        topology=written.topology,
        time_limit=written.time_limit,
        checkpoint=written.checkpoint,
        fallback_after=written.fallback_after,
        type=written.type,
    )


def _submitted(written: GivenJob, begins: Instant) -> Instant:
    ran = written.running.since if written.running else 0
    return begins.after(written.submitted_at - written.waited - ran)


def _duration(written: GivenJob, job: Job, policy: Policy) -> Duration:
    """Until it is done or its time limit ends it."""
    limit = policy.time_limit(job)
    return min(known for known in (written.runs_for, limit, _FOR_EVER) if known is not None)


def _started(begun: TraceJob, running: Running, begins: Instant, floor: _Floor, policy: Policy, path: Path) -> TraceJob:
    """The job as it runs already, and how long it runs in all."""
    job = begun.job
    if running.since >= begun.duration:
        fix = "Let it have begun later, or run longer."
        raise GivenError((*path, "running", "since"), f"{job.name} ends {begun.duration} after its start", fix)
    started = msgspec.structs.replace(
        job,
        phase="running",
        attempt=1,
        started_at=begins.after(-running.since),
        placement=tuple(floor.place(job, running.on, path)),
        time_limit=policy.time_limit(job),
    )
    return TraceJob(started, begun.duration)


class _Floor:
    """What is free where jobs run when the test begins."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = {node.name: node for node in nodes if node.ready}
        self._devices = {node.name: [gpu.id for gpu in node.gpus if gpu.instances is None] for node in nodes}
        self._cpu = {node.name: int(node.cpu) for node in nodes}
        self._memory = {node.name: int(node.memory) for node in nodes}

    def place(self, job: Job, on: Sequence[NodeName], path: Path) -> Iterator[TaskPlacement]:
        """Tasks on the nodes named, else on any, in order. Each group on one GPU type. Raises GivenError."""
        names = [name for name in on or sorted(self._nodes) if name in self._nodes]
        for group in job.spec.task_groups:
            tasks = next(filter(None, (self._fill(group, nodes) for nodes in self._by_type(group.shape, names))), None)
            if tasks is None:
                wanted = f"{group.replicas} x {count(group.shape.gpus, 'GPU')}"
                where = f"on {', '.join(on)}" if on else "in the cluster"
                fix = "Give it fewer tasks, or the cluster more nodes."
                raise GivenError(path, f"{job.name} can't run already: no room for {wanted} {where}", fix)
            yield from tasks

    def _by_type(self, shape: Shape, names: Sequence[NodeName]) -> Iterator[list[Node]]:
        """The nodes that could serve it, type by type in the order of its wishes."""
        nodes = [self._nodes[name] for name in names]
        there = sorted({node.gpu_type for node in nodes if node.gpus}) if shape.gpus else [None]
        for gpu_type in (shape.gpu_types if shape.gpus else ()) or there:
            yield [node for node in nodes if gpu_type is None or node.gpu_type == gpu_type]

    def _fill(self, group: TaskGroup, nodes: Sequence[Node]) -> list[TaskPlacement] | None:
        """All tasks of the group on these nodes, and what they take is taken; None, and nothing taken, if they don't fit."""
        tasks: list[TaskPlacement] = []
        shape = group.shape
        for node in nodes:
            while len(tasks) < group.replicas and self._has_room(node.name, shape):
                tasks.append(TaskPlacement(group.name, len(tasks), node.name, self._take(node.name, shape)))
        if len(tasks) == group.replicas:
            return tasks
        for task in tasks:
            self._give_back(task, shape)
        return None

    def _has_room(self, node: NodeName, shape: Shape) -> bool:
        return (
            len(self._devices[node]) >= shape.gpus
            and self._cpu[node] >= shape.cpu
            and self._memory[node] >= shape.memory
        )

    def _take(self, node: NodeName, shape: Shape) -> tuple[DeviceId, ...]:
        self._cpu[node] -= shape.cpu
        self._memory[node] -= shape.memory
        taken, self._devices[node] = self._devices[node][: shape.gpus], self._devices[node][shape.gpus :]
        return tuple(taken)

    def _give_back(self, task: TaskPlacement, shape: Shape) -> None:
        self._cpu[task.node] += shape.cpu
        self._memory[task.node] += shape.memory
        self._devices[task.node] = sorted((*self._devices[task.node], *task.devices))
