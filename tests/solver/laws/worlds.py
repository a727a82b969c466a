"""Tiny worlds in a form that a person can read and write: text to a snapshot and a policy, and back.

    nodes n1=6 n2=4
    rules reclaim=guaranteed minGain=0.5 moves=0 backOff=60s reclaimWithin=60m shared
    class low -1
    class pinned 0 fixed mayBorrow minRuntime=20m
    queue x -
    queue x1 in x 3 max=5 weight=2 reclaim=guaranteed
    queue y shared 4 within=newer
    run a1 x1 3@n1 for 600m/700m low
    run e1 x1 1-3x1@n1,n2 for 45m
    wait c1 x1 2x1 for 30m

A semicolon does for the end of a line. A queue has its guarantee, `-` where it says none; `shared` if all below have it in common.
A job has TASKSxGPUS, if it is elastic LEAST-MOSTxGPUS; one that runs is on as many nodes as it has tasks, for so long, submitted
so long ago; a part of a GPU is on one of a node, `0.5@n1/2`. With `cpu=8` at the end a task has so many cores, of the 96 of each
node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape, SharingMode
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.policy.division import SharingPolicy, TrustGroup
from solver.policy.harm import Evictions, Protection
from solver.policy.policy import (
    Policy,
    PreemptWithin,
    PriorityClass,
    Queue,
    Quota,
    Reservations,
    SchedulingPolicy,
    policy_of,
)

TYPE = GpuType("H100")
POOL = "pool"
MINUTE_MS = 60_000
DAY_M = 1440
NOW = Instant(0)
PLAIN = PriorityClass("plain", protection=Protection(Duration(0)))
"""Of jobs that name no class: nothing protects them."""
_TASKS = re.compile(r"(?:(\d+)-)?(?:(\d+)x)?([\d.]+)(?:@(\S+))?")


class World(NamedTuple):
    """A cluster of one GPU type and its jobs, under a policy."""

    snapshot: Snapshot
    policy: Policy


def world_of(text: str) -> World:
    """The world that a text describes; raises ValueError where it does not say one."""
    reader = _Reader()
    for line in re.split(r"[;\n]", text):
        words = line.split("#")[0].split()
        if words:
            reader.read(words[0], words[1:])
    return reader.world()


def text_of(world: World, *, settings: bool = True) -> str:
    """The world as text, from which `world_of` makes the same; without `settings` the queues and jobs alone."""
    lines = [*_setting_lines(world)] if settings else []
    return "\n".join([*lines, *map(_queue_line, _from_the_top(world.policy)), *_job_lines(world)])


class _Reader:
    """What was read so far."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.queues: list[Queue] = []
        self.classes: list[PriorityClass] = []
        self.jobs: list[tuple[str, list[str]]] = []
        self.held: set[DeviceId] = set()
        self.scheduling = _scheduling({})
        self.shared = False

    def read(self, about: str, words: list[str]) -> None:
        match about:
            case "nodes":
                self.nodes = [_node(name, int(gpus)) for name, gpus in (word.split("=") for word in words)]
            case "rules":
                self.shared = "shared" in words
                self.scheduling = _scheduling(dict(word.split("=") for word in words if "=" in word))
            case "class":
                self.classes.append(_class(words))
            case "queue":
                self.queues.append(_queue(words))
            case "run" | "wait":
                self.jobs.append((about, words))
            case _:
                raise ValueError(f"{about!r} says nothing about a world")

    def world(self) -> World:
        roots = tuple(queue.name for queue in self.queues if queue.parent is None)
        sharing = (SharingPolicy("parts", (POOL,), "mps", (TrustGroup("all", roots),)),) if self.shared else ()
        policy = policy_of(tuple(self.queues), (PLAIN, *self.classes), self.scheduling, sharing)
        # Parts of GPUs say where they are; whole ones are any others.
        in_parts_first = sorted(self.jobs, key=lambda known: "/" not in known[1][2])
        jobs = [self._job(words, runs=about == "run") for about, words in in_parts_first]
        return World(snapshot_of(NOW, self.nodes, jobs), policy)

    def _job(self, words: list[str], *, runs: bool) -> Job:
        name, queue, asked, _, ages, *rest = words
        match = _TASKS.fullmatch(asked)
        if match is None:
            raise ValueError(f"{asked!r} is no number of tasks and GPUs")
        most, gpus = int(match[2] or 1), float(match[3])
        cores = int(rest.pop().removeprefix("cpu=")) if rest and rest[-1].startswith("cpu=") else 0
        least = int(match[1]) if match[1] else None
        group = TaskGroup("worker", most, _shape(gpus, cores), min_replicas=least)
        since, _, submitted = ages.partition("/")
        spec = JobSpec(QueueName(queue), (group,), rest[0] if rest else "")
        began, asked_at = _ago(since), _ago(submitted or since)
        if not runs:
            return Job(JobName(name), asked_at, spec)
        placement = tuple(
            TaskPlacement("worker", index, NodeName(place.split("/")[0]), *self._devices(place, gpus))
            for index, place in enumerate((match[4] or "").split(","))
        )
        return Job(JobName(name), asked_at, spec, "", "running", 1, began, placement)

    def _devices(self, place: str, gpus: float) -> tuple[tuple[DeviceId, ...], MilliGpu | None, SharingMode | None]:
        """On a node as many as are not held; for a part of a GPU the one that is named."""
        if 0 < gpus < 1:
            self.held.add(DeviceId(place))
            return (DeviceId(place),), MilliGpu(round(gpus * 1000)), "mps"
        (node,) = (node for node in self.nodes if node.name == place)
        free = [gpu.id for gpu in node.gpus if gpu.id not in self.held][: int(gpus)]
        if len(free) < gpus:
            raise ValueError(f"{place} has no {gpus:g} GPUs left")
        self.held.update(free)
        return tuple(free), None, None


def _ago(age: str) -> Instant:
    return Instant(-round(float(age.removesuffix("m")) * MINUTE_MS))


def _node(name: str, gpus: int) -> Node:
    devices = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(gpus))
    return Node(NodeName(name), POOL, Cpu(96_000), Memory(2**40), TYPE, devices)


def _shape(gpus: float, cores: int) -> Shape:
    cpu = Cpu(cores * 1000)
    return Shape(gpu_fraction=MilliGpu(round(gpus * 1000)), cpu=cpu) if 0 < gpus < 1 else Shape(int(gpus), cpu=cpu)


def _scheduling(said: dict[str, str]) -> SchedulingPolicy:
    """Nobody asks for estimates or reservations here: they say nothing of who leaves."""
    evictions = Evictions(
        min_gain=float(said.get("minGain", 0)),
        moves_per_round=int(said.get("moves", 4)),
        back_off=Duration(int(said.get("backOff", "0").removesuffix("s")) * 1000),
    )
    return SchedulingPolicy(
        estimated_jobs=0,
        reservations=Reservations(0),
        reclaim="guaranteed" if said.get("reclaim") == "guaranteed" else "fair-share",
        reclaim_within=Duration(int(said.get("reclaimWithin", "60m").removesuffix("m")) * MINUTE_MS),
        evictions=evictions,
        default_priority_class=PLAIN.name,
    )


def _class(words: list[str]) -> PriorityClass:
    said = dict(word.split("=") for word in words if "=" in word)
    return PriorityClass(
        words[0],
        int(words[1]),
        preemptible="fixed" not in words,
        may_borrow="mayBorrow" in words,
        protection=Protection(
            Duration(int(said.get("minRuntime", "0m").removesuffix("m")) * MINUTE_MS),
            Duration(int(said.get("coolDown", "0m").removesuffix("m")) * MINUTE_MS),
            int(said["perDay"]) if "perDay" in said else None,
        ),
    )


def _queue(words: list[str]) -> Queue:
    said = dict(word.split("=") for word in words if "=" in word)
    plain = [word for word in words if "=" not in word]
    parent = QueueName(plain[2]) if plain[1] == "in" else None
    guaranteed, most = plain[-1], said.get("max")
    own = None if guaranteed == "-" else _milli(guaranteed)
    within: dict[str, PreemptWithin] = {"never": "never", "newer": "lower-or-newer"}
    quota = Quota(TYPE, own, _milli(most) if most else None, shared="shared" in plain)
    return Queue(
        QueueName(plain[0]),
        parent,
        (quota,),
        int(said.get("weight", 1)),
        reclaim="guaranteed"
        if said.get("reclaim") == "guaranteed"
        else "fair-share"
        if said.get("reclaim") == "fair-share"
        else None,
        preempt_within=within.get(said.get("within", "")),
    )


def _milli(gpus: str) -> MilliGpu:
    return MilliGpu(round(float(gpus) * 1000))


def _setting_lines(world: World) -> Iterator[str]:
    yield "nodes " + " ".join(f"{node.name}={len(node.gpus)}" for node in world.snapshot.nodes)
    scheduling = world.policy.scheduling
    evictions, said = scheduling.evictions, list[str]()
    said += ["reclaim=guaranteed"] if scheduling.reclaim == "guaranteed" else []
    said += [f"minGain={evictions.min_gain:g}"] if evictions.min_gain else []
    said += [f"moves={evictions.moves_per_round}"] if evictions.moves_per_round != 4 else []
    said += [f"backOff={evictions.back_off // 1000}s"] if evictions.back_off else []
    within = scheduling.reclaim_within // MINUTE_MS
    said += [f"reclaimWithin={within}m"] if within != 60 else []
    said += ["shared"] if world.policy.sharing else []
    if said:
        yield "rules " + " ".join(said)
    yield from (_class_line(known) for known in world.policy.priority_classes if known != PLAIN)


def _class_line(known: PriorityClass) -> str:
    words = ["class", known.name, str(known.value), *["fixed"] * (not known.preemptible)]
    words += ["mayBorrow"] * known.may_borrow
    runtime, rest, per_day = (
        known.protection.min_runtime,
        known.protection.cool_down,
        known.protection.evictions_per_day,
    )
    words += [f"minRuntime={runtime // MINUTE_MS}m"] if runtime else []
    words += [f"coolDown={rest // MINUTE_MS}m"] if rest else []
    words += [f"perDay={per_day}"] if per_day is not None else []
    return " ".join(words)


def _from_the_top(policy: Policy) -> Iterator[Queue]:
    for root in policy.queues:
        if root.parent is None:
            yield root
            yield from (queue for queue in policy.queues if queue.parent == root.name)


def _queue_line(queue: Queue) -> str:
    quota = queue.quota[0]
    words = ["queue", queue.name, *(["in", queue.parent] if queue.parent else [])]
    words += ["shared"] * quota.shared
    words.append("-" if quota.guaranteed is None else str(quota.guaranteed))
    words += [f"max={quota.max}"] if quota.max is not None else []
    words += [f"weight={queue.weight}"] if queue.weight != 1 else []
    words += [f"reclaim={queue.reclaim}"] if queue.reclaim else []
    words += {"never": ["within=never"], "lower-or-newer": ["within=newer"]}.get(queue.preempt_within or "", [])
    return " ".join(words)


def _job_lines(world: World) -> Iterator[str]:
    snapshot = world.snapshot
    order = sorted(snapshot.jobs, key=lambda job: (not job.placement, job.spec.queue, job.submitted_at))
    for job in order:
        yield job_line(job, snapshot.time)


def job_line(job: Job, now: Instant) -> str:
    """One job: what it asks for, where it runs, for how long, and its class."""
    (group,) = job.spec.task_groups
    size = f"{group.shape.cost}" if group.replicas == 1 else f"{group.replicas}x{group.shape.cost}"
    least = f"{group.least}-" if group.least != group.replicas else ""
    where = ",".join(task.devices[0] if task.share is not None else task.node for task in job.placement)
    submitted = f"{(now - job.submitted_at) / MINUTE_MS:g}m"
    age = submitted
    if job.started_at is not None:
        began = f"{(now - job.started_at) / MINUTE_MS:g}m"
        age = began if began == submitted else f"{began}/{submitted}"
    words = ["run" if job.placement else "wait", job.name, job.spec.queue]
    words += [least + size + (f"@{where}" if where else ""), "for", age]
    words += [job.spec.priority_class] if job.spec.priority_class else []
    return " ".join([*words, *([f"cpu={group.shape.cpu}"] if group.shape.cpu else [])])
