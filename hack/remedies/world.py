"""A small, crowded cluster under quotas, drawn from a seed, as rounds leave it when nothing more can start."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from hack.remedies.kinds import HOUR_MS, Kind, job_for, later, node_for, policy_for
from solver.model.cluster import DeviceId, Gpu, GpuType, Level, MigInstance, Node, NodeName
from solver.model.inflight import InFlight
from solver.model.parts import without
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TopologyRequest
from solver.narrow.acted_on import acted_on
from solver.policy.harm import Evictions, Protection
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, Reservations, SchedulingPolicy, policy_of
from solver.round.solve import solve

TYPES = (GpuType("H100"), GpuType("A100"))
LEAVES = (QueueName("left"), QueueName("r1"), QueueName("r2"))
CORES_PER_GPU = 8
NOW = Instant(100 * HOUR_MS)
ROUNDS_TO_REST = 12


@dataclass(frozen=True, slots=True)
class World:
    """What a round is decided from."""

    snapshot: Snapshot
    policy: Policy


def drawn(seed: int, kind: Kind = "whole") -> World | None:
    """The world of a seed, after as many rounds as it takes; None where it does not come to rest."""
    chance, varied = random.Random(f"remedies {seed}"), random.Random(f"remedies {kind} {seed}")
    nodes = tuple(_node(chance, number) for number in range(chance.randint(1, 6)))
    jobs = [_job(chance, number) for number in range(chance.randint(3, 12))]
    policy = _policy(chance)
    if kind != "whole":
        policy = policy_for(kind, policy, varied)
        nodes = tuple(node_for(kind, known, policy, varied) for known in nodes)
        jobs = [job_for(kind, job, varied) for job in jobs]
    world = at_rest(World(snapshot_of(NOW, nodes, jobs), policy))
    if kind != "turns" or world is None:
        return world
    known = world.snapshot
    aged = snapshot_of(known.time, known.nodes, (later(job, varied) for job in known.jobs), known.in_flight)
    return at_rest(World(aged, policy))


def at_rest(world: World) -> World | None:
    """What becomes of it once jobs that are asked to leave have left and all that can start runs."""
    snapshot = world.snapshot
    for _ in range(ROUNDS_TO_REST):
        plan = solve(snapshot, world.policy, None)
        if not plan.steps:
            return World(snapshot, world.policy)
        snapshot = _left(acted_on(snapshot, plan))
    return None


def _left(snapshot: Snapshot) -> Snapshot:
    """Every job that was asked to leave, or to shrink, has, and every GPU is partitioned as it was to be."""
    gone = {intent.job for intent in snapshot.in_flight.evictions}
    shrunk = {intent.job: intent.tasks for intent in snapshot.in_flight.intents if intent.kind == "shrink"}

    def after(job: Job) -> Job:
        if job.name not in gone:
            return msgspec.structs.replace(job, placement=without(job.placement, shrunk.get(job.name, ())))
        evicted = (*job.evicted_at, snapshot.time)
        return msgspec.structs.replace(
            job, phase="pending", placement=(), started_at=None, time_limit=None, evicted_at=evicted
        )

    asked = {known.device: known.instances for known in snapshot.in_flight.repartitions}
    nodes = tuple(_cut(known, asked) for known in snapshot.nodes)
    promised = tuple(intent for intent in snapshot.in_flight.intents if intent.kind == "nominate")
    in_flight = InFlight(intents=promised, reservations=snapshot.in_flight.reservations)
    return snapshot_of(snapshot.time, nodes, map(after, snapshot.jobs), in_flight)


def _cut(node: Node, asked: Mapping[DeviceId, tuple[MigInstance, ...] | None]) -> Node:
    """With each GPU partitioned as it was asked to be."""
    if not any(gpu.id in asked for gpu in node.gpus):
        return node
    gpus = (msgspec.structs.replace(gpu, instances=asked.get(gpu.id, gpu.instances)) for gpu in node.gpus)
    return msgspec.structs.replace(node, gpus=tuple(gpus))


def node(name: str, gpu_type: GpuType, gpus: int, rack: str, cpu: int | None = None) -> Node:
    """A healthy node."""
    devices = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(gpus))
    cores = CORES_PER_GPU * gpus if cpu is None else cpu
    return Node(
        NodeName(name), gpu_type.lower(), Cpu(cores * 1000), Memory(2**40), gpu_type, devices, rack=rack, block="b0"
    )


def _node(chance: random.Random, number: int) -> Node:
    gpu_type = chance.choice(TYPES)
    return node(f"n{number}", gpu_type, chance.choice((2, 4, 4, 8)), f"{gpu_type}-r{number // 2}")


def _job(chance: random.Random, number: int) -> Job:
    gpus = chance.choice((1, 1, 2, 4, 8))
    level: Level | None = "rack" if chance.random() < 0.2 else None
    groups_of_two = chance.random() < 0.15
    # Where several groups, or a domain, may be of any type, reasons do not say which of them belong together.
    one = TYPES[:1], TYPES[1:]
    types = chance.choice(one if level or groups_of_two else ((), TYPES, *one, *one))
    cores = chance.choice((0, 0, CORES_PER_GPU, 2 * CORES_PER_GPU)) * gpus
    groups: tuple[TaskGroup, ...] = (
        TaskGroup("worker", chance.choice((1, 1, 2, 3)), Shape(gpus, types, Cpu(cores * 1000))),
    )
    if groups_of_two:
        groups = (*groups, TaskGroup("other", chance.choice((1, 2)), Shape(chance.choice((1, 2)), types)))
    limit = Duration(HOUR_MS * chance.choice((1, 4, 24))) if chance.random() < 0.6 else None
    spec = JobSpec(
        chance.choice(LEAVES),
        groups,
        chance.choice(("inference", "training", "training", "batch", "pinned")),
        TopologyRequest(level),
        limit,
    )
    submitted = NOW.after(-HOUR_MS * chance.choice((0, 1, 3)))
    return Job(JobName(f"job-{number:02}"), submitted, spec, chance.choice(("ada", "bob")))


def _policy(chance: random.Random) -> Policy:
    protection = Protection(Duration(HOUR_MS * chance.choice((0, 0, 2))))
    classes = (
        PriorityClass("inference", 1000, "latency-critical"),
        PriorityClass("training", 100, protection=protection),
        PriorityClass("batch", 10, "preemptible", protection=protection),
        PriorityClass("pinned", 100, preemptible=False),
    )
    scheduling = SchedulingPolicy(
        "training",
        reclaim=chance.choice(("fair-share", "guaranteed")),
        evictions=Evictions(chance.choice((None, None, 1))),
        reservations=Reservations(chance.choice((0, 1))),
    )
    return policy_of(tuple(_queues(chance)), classes, scheduling)


def _queues(chance: random.Random) -> Iterator[Queue]:
    for name, parent in (("org", None), ("left", "org"), ("right", "org"), ("r1", "right"), ("r2", "right")):
        yield Queue(
            QueueName(name),
            QueueName(parent) if parent else None,
            tuple(_quota(chance, gpu_type, parent) for gpu_type in TYPES),
            chance.randint(1, 3),
            "Hold" if chance.random() < 0.04 else "None",
            ordering=Ordering("fifo", strict=True) if chance.random() < 0.1 else None,
        )


def _quota(chance: random.Random, gpu_type: GpuType, parent: str | None) -> Quota:
    # What is stated does not change with what there is.
    guaranteed = None if parent is None else chance.choice((0, 0, 2, 4))
    most = None if parent is None or chance.random() < 0.5 else (guaranteed or 0) + chance.choice((0, 4, 8))
    per_user = chance.choice((2, 4, 8)) if chance.random() < 0.15 else None
    lendable = chance.choice((0, guaranteed // 2)) if guaranteed and chance.random() < 0.3 else None
    guarantee, ceiling, cap, lent = (
        None if it is None else MilliGpu.gpus(it) for it in (guaranteed, most, per_user, lendable)
    )
    return Quota(gpu_type, guarantee, ceiling, cap, lent)


def used_gpus(world: World) -> set[DeviceId]:
    """Those of which a job has something: a whole one, a part, or an instance."""
    held = (task for known in world.snapshot.jobs for task in known.placement)
    return {device for task in held for device in ((task.mig.gpu,) if task.mig else task.devices)}


def is_free(world: World, on: Node, gpu: Gpu, used: Collection[DeviceId]) -> bool:
    """Whether a job may have the whole of a GPU: no other has anything of it, and it is in one piece, or may be again."""
    rule = next((known for known in world.policy.mig if known.pool == on.pool), None)
    return gpu.id not in used and (not gpu.instances or bool(rule and rule.changes_max))


def with_nodes(world: World, more: Iterable[Node]) -> World:
    """The world with these nodes beside its own."""
    return World(on_nodes(world, (*world.snapshot.nodes, *more)), world.policy)


def on_nodes(world: World, nodes: Iterable[Node]) -> Snapshot:
    """What is there, on these nodes in place of its own."""
    known = world.snapshot
    return snapshot_of(known.time, nodes, known.jobs, known.in_flight)
