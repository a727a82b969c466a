"""A small, crowded cluster, whose GPUs rounds may partition, and what its users do in a few minutes: drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from hack.crash.keeping import STORAGE
from reconciler.control.control import PolicyInForce
from reconciler.documents.operations import Operations
from reconciler.model.clock import Clock
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.retry_policy import Backoff, RetryPolicy
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import Checkpoint, JobName, JobSpec, QueueName, Stuck, TaskGroup, TimeLimitWarning
from solver.policy.division import MigChanges, MigGeometry
from solver.policy.harm import Convergence, Protection
from solver.policy.policy import PriorityClass, Queue, Quota, SchedulingPolicy, policy_of

QUEUES = (QueueName("red"), QueueName("blue"))
GPUS_PER_NODE = 4
START_DEADLINE = Duration(20_000)
"""Shorter than orders may be on their way, so that some arrive after their attempt was given up."""
USERS_BUSY_MS = 60_000

NODES = tuple(
    Node(
        name,
        "pool",
        Cpu(64_000),
        Memory(2**38),
        GpuType("H100"),
        tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(GPUS_PER_NODE)),
    )
    for name in (NodeName("n1"), NodeName("n2"))
)
# Nothing protects what runs, so that evictions are among what is interrupted.
UNPROTECTED = PriorityClass("unprotected", protection=Protection(min_runtime=Duration(0)))
URGENT = PriorityClass("urgent", value=100, protection=Protection(min_runtime=Duration(0)))
POLICY = policy_of(
    tuple(Queue(name) for name in QUEUES),
    (UNPROTECTED, URGENT),
    SchedulingPolicy(default_priority_class=UNPROTECTED.name, start_deadline=START_DEADLINE),
    mig=(MigGeometry("parts", "pool", "free", "H100-80GB", changes=MigChanges(per_pool_per_hour=1_000)),),
)


REMEMBERING = msgspec.structs.replace(POLICY.scheduling, usage_half_life=Duration(30_000))
LOWERED = Queue(
    QUEUES[0],
    quota=(Quota(GpuType("H100"), max=MilliGpu.gpus(2)),),
    convergence=Convergence(Duration(1_000)),
)
"""It may hold less than it does."""

HEALTH = HealthPolicy(
    *(Duration(1_000), Duration(2_000)),
    lost="cordon",
    suspect_ttl=Duration(4_000),
    bad_node_ttl=Duration(6_000),
    max_unhealthy="50%",
)
"""A node that dies is cordoned for a while, of as many as there are."""

LOWERED_FOR_MS = 8_000
"""For so long a max is lowered, and then for as long not."""

REMEMBERED = policy_of(POLICY.queues, POLICY.priority_classes, REMEMBERING, mig=POLICY.mig)
LESS = policy_of((LOWERED, *(Queue(name) for name in QUEUES[1:])), POLICY.priority_classes, REMEMBERING, mig=POLICY.mig)


AGAIN = RetryPolicy("again", max_retries=2, backoff=Backoff(Duration(1_000), max=Duration(5_000)))
"""Rests that are short beside the run, so that jobs begin again while faults last."""


STUCK_AFTER, WARNED_BEFORE = Duration(8_000), Duration(5_000)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that comes from outside: a job, a cancellation, or the death of a node for `lasts`."""

    at: Instant
    kind: Literal["submit", "cancel", "suspend", "resume", "requeue", "hold", "cordon", "node-dies"]
    subject: str
    spec: JobSpec | None = None
    lasts: Duration = Duration(0)  # noqa: RUF009  (an int: can't be changed)


@dataclass(frozen=True, slots=True)
class ChangingPolicy:
    """Implements PolicySource. With a `clock`, past use counts, nodes are judged, and until then a max is lowered now and then."""

    clock: Clock | None = None
    until: Instant = Instant(0)  # noqa: RUF009  (an int: can't be changed)
    nodes: tuple[Node, ...] = NODES

    def current(self) -> PolicyInForce:
        """As Git has it now."""
        operations = Operations((STORAGE,), (AGAIN,))
        if self.clock is None:
            return PolicyInForce("revision", POLICY, self.nodes, operations)
        now = self.clock.now()
        is_lowered = now < self.until and int(now) // LOWERED_FOR_MS % 2 == 1
        policy = LESS if is_lowered else REMEMBERED
        operations = msgspec.structs.replace(operations, health=HEALTH)
        return PolicyInForce("lowered" if is_lowered else "revision", policy, self.nodes, operations)


def workload(chance: random.Random, start: Instant, *, divided: bool) -> tuple[Happening, ...]:
    """Five to eight gangs that don't all fit at once: elastic, failing, cancelled; and perhaps a node that dies.

    `divided`: some ask for instances.
    """
    happenings = []
    for number in range(chance.randint(5, 8)):
        name, at = f"job-{number}", start.after(chance.randint(0, USERS_BUSY_MS // 2))
        command = _command(chance)
        spec = _with_retries(chance, _spec(chance, command, divided))
        happenings.append(Happening(at, "submit", name, spec))
        # What would run for ever ends by its limit, or because somebody cancels it.
        endless = command == ("sleep", "forever") and spec.time_limit is None
        if endless or chance.random() < 0.15:
            happenings.append(Happening(at.after(chance.randint(0, USERS_BUSY_MS // 2)), "cancel", name))
    if chance.random() < 0.5:
        at, node = start.after(chance.randint(0, USERS_BUSY_MS)), chance.choice(NODES).name
        happenings.append(Happening(at, "node-dies", node, lasts=Duration(chance.randint(1_000, 30_000))))
    return tuple(sorted(happenings, key=lambda happening: (happening.at, happening.kind, happening.subject)))


def by_hand(chance: random.Random, happenings: tuple[Happening, ...]) -> tuple[Happening, ...]:
    """The same, and people hold some jobs and cordon a node for a while."""
    more = []
    for happening in happenings:
        if happening.kind == "submit" and chance.random() < 0.4:
            at, lasts = happening.at.after(chance.randint(0, USERS_BUSY_MS // 3)), Duration(chance.randint(500, 15_000))
            more.append(Happening(at, "hold", happening.subject, lasts=lasts))
    if chance.random() < 0.5:
        at = happenings[0].at.after(chance.randint(0, USERS_BUSY_MS))
        more.append(Happening(at, "cordon", chance.choice(NODES).name, lasts=Duration(chance.randint(500, 15_000))))
    return tuple(sorted((*happenings, *more), key=lambda happening: (happening.at, happening.kind, happening.subject)))


def second_thoughts(chance: random.Random, happenings: tuple[Happening, ...]) -> tuple[Happening, ...]:
    """The same, and some jobs are suspended for a while, or made to begin anew; half of them save their work first."""
    more = []
    happenings = tuple(_saving(happening) if chance.random() < 0.5 else happening for happening in happenings)
    for happening in happenings:
        if happening.kind == "submit" and chance.random() < 0.4:
            at = happening.at.after(chance.randint(0, USERS_BUSY_MS // 2))
            if chance.random() < 0.5:
                more.append(Happening(at, "requeue", happening.subject))
            else:
                more.append(Happening(at, "suspend", happening.subject))
                more.append(Happening(at.after(chance.randint(100, 20_000)), "resume", happening.subject))
    return tuple(sorted((*happenings, *more), key=lambda happening: (happening.at, happening.kind, happening.subject)))


def _saving(happening: Happening) -> Happening:
    if happening.spec is None:
        return happening
    saves = msgspec.structs.replace(happening.spec, checkpoint=Checkpoint(Duration(60_000), Duration(8_000)))
    return replace(happening, spec=saves)


def urgent(chance: random.Random, happenings: tuple[Happening, ...]) -> tuple[Happening, ...]:
    """The same, but the first jobs are long, and save their work before they leave for the others, which come before them."""
    submits = [happening for happening in happenings if happening.kind == "submit"]
    first = {happening.subject for happening in submits[: len(submits) // 2]}
    changed = (
        replace(
            happening,
            spec=_yielding(chance, happening.spec) if happening.subject in first else _pressing(happening.spec),
        )
        if happening.spec
        else happening
        for happening in happenings
    )
    return tuple(changed)


def _yielding(chance: random.Random, spec: JobSpec) -> JobSpec:
    """A gang of one size, which has much to save: whole nodes' worth of the queue that the pressing ones are in."""
    group = TaskGroup("worker", chance.randint(2, 4), Shape(gpus=1))
    command = "sleep", f"{chance.randint(40, 80)}s"
    saves = Checkpoint(Duration(60_000), Duration(20_000))
    return JobSpec(QUEUES[0], (group,), command=command, checkpoint=saves, retry_policy=spec.retry_policy)


def _pressing(spec: JobSpec) -> JobSpec:
    return msgspec.structs.replace(spec, queue=QUEUES[0], priority_class=URGENT.name)


def hanging(chance: random.Random, happenings: tuple[Happening, ...]) -> tuple[Happening, ...]:
    """The same, but some gangs hang, and are to be found out; and those with a limit want to know when it is near."""
    return tuple(
        replace(happening, spec=_perhaps_hanging(chance, happening.spec)) if happening.spec else happening
        for happening in happenings
    )


def names(happenings: tuple[Happening, ...], kind: str) -> set[JobName]:
    """The jobs that something of a kind happens to."""
    return {JobName(happening.subject) for happening in happenings if happening.kind == kind}


def _perhaps_hanging(chance: random.Random, spec: JobSpec) -> JobSpec:
    if spec.time_limit is not None:
        return msgspec.structs.replace(spec, time_limit_warning=TimeLimitWarning(WARNED_BEFORE))
    if spec.command[0] != "sleep" or chance.random() < 0.75:
        return spec
    stuck = Stuck(STUCK_AFTER, "retry" if spec.retry_policy else "fail")
    groups = tuple(msgspec.structs.replace(group, command=()) for group in spec.task_groups)
    command = "hang", "2", f"{chance.randint(1, 15)}s"
    return msgspec.structs.replace(spec, command=command, task_groups=groups, stuck=stuck)


def _with_retries(chance: random.Random, spec: JobSpec) -> JobSpec:
    """Two in three may begin again when they fail; of half of those, single members may."""
    if chance.random() < 1 / 3:
        return spec
    rejoin = chance.random() < 0.5
    groups = tuple(msgspec.structs.replace(group, rejoin=rejoin) for group in spec.task_groups)
    return msgspec.structs.replace(spec, retry_policy=AGAIN.name, task_groups=groups)


def _command(chance: random.Random) -> tuple[str, ...]:
    span = f"{chance.randint(1, 30)}s"
    match chance.random():
        case drawn if drawn < 0.15:
            return ("fail", str(chance.randint(1, 9)), span)
        case drawn if drawn < 0.3:
            return ("sleep", "forever")
        case _:
            return ("sleep", span)


def _longer(chance: random.Random, command: tuple[str, ...]) -> tuple[str, ...]:
    """What an elastic gang runs: long enough for its size to change a few times."""
    return command if command[-1] == "forever" else (*command[:-1], f"{chance.randint(20, 60)}s")


def _spec(chance: random.Random, command: tuple[str, ...], divided: bool) -> JobSpec:
    if divided and chance.random() < 0.4:
        profile = chance.choice(("1g.10gb", "2g.20gb", "3g.40gb"))
        group = TaskGroup("worker", chance.randint(1, 3), Shape(mig=profile))
    elif chance.random() < 0.5:
        group = TaskGroup("worker", chance.randint(1, 3), Shape(gpus=chance.randint(1, 2)))
    else:
        group = TaskGroup("worker", chance.randint(2, 4), Shape(gpus=1), _longer(chance, command), min_replicas=1)
    limit = Duration(chance.randint(1_000, 20_000)) if chance.random() < 0.3 else None
    return JobSpec(chance.choice(QUEUES), (group,), time_limit=limit, command=command)
