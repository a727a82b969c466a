"""What a cluster goes through: users, nodes that die, and policies that change, drawn from a seed for as long as one likes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from reconciler.backends.simulated.behaviour import Faults
from reconciler.backends.simulated.cluster import Interval, SimulatedCluster
from reconciler.control.control import PolicyInForce
from reconciler.documents.operations import Operations
from reconciler.model.budget import BudgetStanding
from reconciler.model.clock import SIMULATION_START, VirtualClock
from reconciler.model.idle_policy import IdleEvidence, IdlePolicy
from reconciler.model.retry_policy import Backoff, RetryPolicy
from reconciler.protocols.backend import AttemptKey
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.policy.harm import Convergence, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, SchedulingPolicy, policy_of
from solver.policy.reservation import DeclaredReservation

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
H100 = GpuType("H100")
NODES, GPUS_PER_NODE = 6, 4
GUARANTEED = MilliGpu.gpus(8)
"""To each of three queues, but for the days on which one has less."""
QUEUES = (QueueName("red"), QueueName("blue"), QueueName("green"))
CLASSES = ("inference", "training", "batch")
JOBS_PER_HOUR = 1.4
RUNS_AT_MOST_MIN = 12 * 60
"""Nothing is saved: what runs for days and leaves time and again would never end, and the cluster be asked for more and more."""
AGAIN = RetryPolicy("again", max_retries=2, backoff=Backoff(Duration(60_000), max=Duration(1_800_000)))
IDLE = IdlePolicy("quiet", IdleEvidence(no_task_activity_for=Duration(2 * HOUR_MS)), queues=(QUEUES[2],), action="lend")
FAULTS = Faults(
    lost=0.02,
    late=0.02,
    unacknowledged=0.02,
    blind=0.01,
    arrival_delay=Duration(120_000),
    effect_delay=Duration(5_000),
    report_delay=Duration(5_000),
)
KEEP_ROUNDS, KEEP_PLACEMENTS = Duration(2 * DAY_MS), Duration(30 * DAY_MS)


def nodes() -> tuple[Node, ...]:
    """All that there is."""
    return tuple(_node(NodeName(f"n{number}")) for number in range(NODES))


def _node(name: NodeName) -> Node:
    gpus = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(GPUS_PER_NODE))
    return Node(name, "pool", Cpu(64_000), Memory(2**38), H100, gpus)


@dataclass
class Policies:
    """Implements PolicySource. What is in force changes with the simulated days: as usual, a lowered max, a hold, a Reservation."""

    clock: VirtualClock

    def current(self) -> PolicyInForce:
        """As Git has it now."""
        day = (self.clock.now() - SIMULATION_START) // DAY_MS
        revision = f"{day % 7}" if day % 7 != 5 else f"5 of day {day}"
        return PolicyInForce(revision, self._policy(day), nodes(), Operations(retry=(AGAIN,), idle=(IDLE,)))

    def budgets(self) -> tuple[BudgetStanding, ...]:
        """One queue has spent its budget on every third day."""
        now = self.clock.now()
        day = (now - SIMULATION_START) // DAY_MS
        if day % 3:
            return ()
        start = SIMULATION_START.after(day * DAY_MS)
        one, two, none = Decimal(1), Decimal(2), Decimal(0)
        spent = BudgetStanding(
            budget="spent",
            origin="",
            subject="queue red",
            queue=QUEUES[0],
            user="",
            start=start,
            end=start.after(DAY_MS),
            at=now,
            unit="GPU-hours",
            limit=one,
            spent=two,
            unpriced=none,
            percent=200,
            per_day=two,
            over=Duration(DAY_MS),
            runs_out_at=None,
            when_spent="no-borrowing",
        )
        return (spent,)

    def _policy(self, day: int) -> Policy:
        changed = {2: {"lowered": True}, 4: {"held": True}}.get(day % 7, {})
        queues = tuple(_queue(name, **(changed if name == QUEUES[1] else {})) for name in QUEUES)
        reserved: tuple[DeclaredReservation, ...] = ()
        if day % 7 == 5:
            at = SIMULATION_START.after(day * DAY_MS + 6 * HOUR_MS)
            document = DeclaredReservation(
                "demo", at, at.after(6 * HOUR_MS), QUEUES[0], gpu_type=H100, count=2, gpus_per_node=4
            )
            reserved = (document,)
        protection = Protection(Duration(600_000))
        classes = (
            PriorityClass("inference", 1000, "latency-critical", protection=protection),
            PriorityClass("training", 100, protection=protection),
            PriorityClass(
                "batch", 10, "preemptible", 1.0, protection=Protection(Duration(600_000), evictions_per_day=3)
            ),
        )
        scheduling = SchedulingPolicy(
            "training", usage_half_life=Duration(DAY_MS), keep_rounds=KEEP_ROUNDS, keep_placements=KEEP_PLACEMENTS
        )
        return policy_of(queues, classes, scheduling, reservations=reserved)


def _queue(name: QueueName, *, lowered: bool = False, held: bool = False) -> Queue:
    most = MilliGpu.gpus(4) if lowered else None
    quota = (Quota(H100, MilliGpu.gpus(2) if lowered else GUARANTEED, most),)
    return Queue(name, quota=quota, stop_policy="Hold" if held else "None", convergence=Convergence(Duration(HOUR_MS)))


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that comes. `gives_up`: its user cancels it then, whatever it does; None: never."""

    at: Instant
    name: str
    spec: JobSpec
    gives_up: Instant | None


class Arrivals(Iterator[Arrival]):
    """Jobs without end: they ask for about as much as there is."""

    def __init__(self, seed: int) -> None:
        self._chance, self._at, self._number = random.Random(f"soak {seed}"), SIMULATION_START, 0

    def __next__(self) -> Arrival:
        chance, number = self._chance, self._number
        self._at = at = self._at.after(round(chance.expovariate(JOBS_PER_HOUR / HOUR_MS)))
        gives_up = at.after(chance.randrange(48 * HOUR_MS)) if chance.random() < 0.1 else None
        spec = _spec(chance)
        if spec.time_limit is None and spec.command[-1] == "forever":
            gives_up = at.after(24 * HOUR_MS)
        self._number += 1
        return Arrival(at, f"job-{number:06}", spec, gives_up)


def _spec(chance: random.Random) -> JobSpec:
    gpus, tasks, kind = chance.choice((1, 1, 2, 4)), chance.choice((1, 1, 1, 2, 3)), chance.random()
    minutes = min(max(1, round(chance.lognormvariate(4.5, 1.2))), RUNS_AT_MOST_MIN)
    command: tuple[str, ...] = ("sleep", f"{minutes}m")
    if kind < 0.12:
        command = ("fail", "3", f"{minutes}m")
    elif kind < 0.16:
        command = ("sleep", "forever")
    least = 1 if tasks > 1 and chance.random() < 0.4 else None
    group = TaskGroup("worker", tasks, Shape(gpus), min_replicas=least)
    limit = Duration(chance.choice((1, 4, 12)) * HOUR_MS) if chance.random() < 0.6 else None
    retry = AGAIN.name if chance.random() < 0.5 else ""
    return JobSpec(
        chance.choice(QUEUES), (group,), chance.choice(CLASSES), time_limit=limit, command=command, retry_policy=retry
    )


GONE = Interval(JobName(""), 0, "", 0, NodeName(""), (), SIMULATION_START, SIMULATION_START)
"""In place of what is forgotten."""


class Forgetful(list[Interval]):
    """Intervals of a simulated cluster: those that ended long ago are gone, and their numbers stay theirs."""

    gone_to = 0
    """All before this number are gone."""
    over: frozenset[AttemptKey] = frozenset()
    """Attempts that nothing was reported of any more when something was forgotten last: no order for these is on its way now."""

    def trim(self, cluster: SimulatedCluster, before: Instant) -> None:
        """Forget what had ended before an instant, in all books of the cluster: a soak is about the memory of what is tried."""
        known = ((number, self[number]) for number in range(self.gone_to, len(self)))
        gone = [number for number, it in known if it.job and it.end is not None and it.end < before]
        for number in gone:
            self[number] = GONE
            cluster._said.pop(number, None)
            cluster._behaviours.pop(number, None)
            for kept in (cluster._figures, cluster.tells):
                for book in vars(kept).values():
                    if isinstance(book, dict):
                        book.pop(number, None)
        while self.gone_to < len(self) and not self[self.gone_to].job:
            self.gone_to += 1
        journal = cluster.journal
        over = frozenset(key for key in cluster._attempts if key in journal._forgotten)
        for key in over & self.over:
            if not cluster._attempts[key].running:
                del cluster._attempts[key]
                journal._forgotten.discard(key)
        self.over = over
