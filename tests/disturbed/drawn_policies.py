"""Random policies with all rules: quotas, orders, protections, evictions, shared and partitioned GPUs, Reservation documents."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import msgspec

from solver.model.cluster import GpuType, Node
from solver.model.document import decode, encode
from solver.model.quantities import Duration, Instant, MilliGpu, whole_gpus
from solver.model.shape import SharingMode
from solver.model.workload import PlacementStyle, QueueName
from solver.policy.division import MigChanges, MigGeometry, MigMode, SharingPolicy, TrustGroup
from solver.policy.harm import Convergence, Evictable, Evictions, Protection
from solver.policy.ordering import OrderBy, Ordering, Turns
from solver.policy.policy import (
    Policy,
    PriorityClass,
    Queue,
    Quota,
    Reclaim,
    Reservations,
    SchedulingPolicy,
    Scope,
    StopPolicy,
    policy_of,
)
from solver.policy.reservation import DeclaredReservation
from solver.policy.type_weights import GpuTypeWeight
from tests.solver.worlds import COSTS, HOUR_MS, ORDERS

FEATURES = (
    *("mig", "shares", "declared", "lending", "per-user", "strict", "turns", "sets", "topology", "elastic", "hold", "scope"),
    *("not-preemptible", "cpu", "limits", "fallback", "services"),
)  # fmt: skip
"""What a world has or has not; with all of them at once in each, most would stand in each other's way."""
LIKELIHOOD = 0.4

MIG_MODELS = {"H100": "H100-80GB", "A30": "A30-24GB"}
MIG_LAYOUTS = {
    "H100": ("7x 1g.10gb", "3g.40gb + 2g.20gb + 1g.10gb + 1g.10gb", "4g.40gb + 1g.20gb + 1g.10gb", "3g.40gb + 3g.40gb"),
    "A30": ("4x 1g.6gb", "2g.12gb + 1g.6gb + 1g.6gb+me"),
}
MIG_MODES: tuple[MigMode, ...] = ("free", "bounded", "fixed")
DRAINS: tuple[Literal["never", "entitled"], ...] = ("never", "entitled")

TRUST: tuple[tuple[TrustGroup, ...], ...] = (
    (),
    (TrustGroup("l", (QueueName("left"),)),),
    (TrustGroup("one", (QueueName("r1"),)), TrustGroup("two", (QueueName("r2"), QueueName("left")))),
)
SHARED_POOLS = (("h100",), ("a100", "h100"), ("a100", "a100-x", "h100-x"))
MODES_OF_SHARING: tuple[SharingMode, ...] = ("mps", "time-slicing")
STOPS: tuple[StopPolicy, ...] = ("Hold", "HoldAndDrain")
CLASSES_LET_IN = (("training", "batch"), ("inference",), ("training", "batch", "inference"))
RECLAIMS_OF_QUEUES: tuple[Reclaim | None, ...] = (None, None, "guaranteed", "fair-share")
RECLAIMS: tuple[Reclaim, ...] = ("fair-share", "fair-share", "guaranteed")
EVICTABLE: tuple[Evictable, ...] = ("none", "preemptible", "all")
STYLES: tuple[PlacementStyle | None, ...] = (None, "spread")


def maybe(chance: random.Random, likelihood: float) -> bool:
    return chance.random() < likelihood


def hours(count: float) -> Duration:
    return Duration(int(count * HOUR_MS))


class DrawnPolicies:
    """Policies for one cluster, one after the other: all have the same `features`, and their pools keep their MIG modes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.features = frozenset(name for name in FEATURES if maybe(chance, LIKELIHOOD))
        self.gpu_types = tuple(
            GpuType(name) for name in ("H100", "A100", *(("A30",) if "mig" in self.features else ()))
        )
        self.leaves: tuple[str, ...] = ()
        self._mig_modes: dict[str, MigMode] = {}

    def mig_mode(self, pool: str) -> MigMode:
        if pool not in self._mig_modes:
            self._mig_modes[pool] = self._chance.choice(MIG_MODES)
        return self._mig_modes[pool]

    def policy(self) -> Policy:
        queues, classes = self._queues(), self._classes()
        policy = policy_of(queues, classes, self._scheduling(), self._sharing(), self._mig())
        return decode(encode(policy), Policy)

    def varied(self, policy: Policy) -> Policy:
        """Another policy's queues, with their guarantees, under other rules."""
        classes = tuple(self._varied_class(known) for known in policy.priority_classes)
        scheduling = msgspec.structs.replace(self._scheduling(), gpu_types=(), default_priority_class=classes[0].name)
        mig = tuple(
            msgspec.structs.replace(known, changes=MigChanges(self._chance.choice([0, 1, 2, 3, 8, 32]), "never"))
            for known in policy.mig
        )
        queues = tuple(map(self._varied_queue, policy.queues))
        return decode(
            encode(
                msgspec.structs.replace(policy, queues=queues, priority_classes=classes, scheduling=scheduling, mig=mig)
            ),
            Policy,
        )

    def _varied_queue(self, queue: Queue) -> Queue:
        varied = self._ordered(queue)
        stop = varied.stop_policy if maybe(self._chance, 0.3) else "None"
        quota = tuple(map(self._varied_quota, queue.quota))
        return msgspec.structs.replace(varied, priority_classes=None, stop_policy=stop, quota=quota)

    def _varied_quota(self, quota: Quota) -> Quota:
        chance, lendable, per_user = self._chance, quota.lendable, quota.per_user
        if "lending" in self.features and quota.guaranteed and maybe(chance, 0.4):
            lendable = MilliGpu.gpus(chance.randint(0, whole_gpus(quota.guaranteed)))
        if "per-user" in self.features and maybe(chance, 0.2):
            per_user = MilliGpu.gpus(chance.choice([0, 8, 32, 64]))
        return msgspec.structs.replace(quota, lendable=lendable, per_user=per_user)

    def _varied_class(self, known: PriorityClass) -> PriorityClass:
        chance = self._chance
        return msgspec.structs.replace(
            known,
            protection=self._protection() if maybe(chance, 0.5) else known.protection,
            scope="cluster" if "scope" in self.features and maybe(chance, 0.5) else "queue",
            aging_per_hour=chance.choice([0.0, 1.0]),
        )

    def with_reservations(self, policy: Policy, now: Instant, nodes: Sequence[Node]) -> Policy:
        """The policy with up to two Reservation documents, of which no two keep the same node."""
        if "declared" not in self.features:
            return policy
        free = [node.name for node in nodes if node.gpus]
        documents = []
        for number in range(self._chance.randint(0, 2)):
            document = self._kept_for(number, now, policy)
            if maybe(self._chance, 0.5) and free:
                chosen = self._chance.sample(free, min(len(free), self._chance.randint(1, 2)))
                free = [name for name in free if name not in chosen]
                documents.append(msgspec.structs.replace(document, nodes=tuple(sorted(chosen))))
            else:
                documents.append(self._of_a_type(document))
        return decode(encode(msgspec.structs.replace(policy, reservations=tuple(documents))), Policy)

    def _kept_for(self, number: int, now: Instant, policy: Policy) -> DeclaredReservation:
        start = now.after(hours(self._chance.randint(-2, 6)))
        until = start.after(hours(self._chance.randint(1, 8)))
        queue = self._chance.choice([None, *(known.name for known in policy.queues)])
        users = self._chance.choice([("ada",), ("ada", "bob")] if queue is None else [None, ("ada",)])
        return DeclaredReservation(f"d{number}", start, until, queue, users)

    def _of_a_type(self, document: DeclaredReservation) -> DeclaredReservation:
        gpu_type, count = self._chance.choice(self.gpu_types), self._chance.randint(1, 3)
        each = self._chance.choice([1, 2, 4])
        return msgspec.structs.replace(document, gpu_type=gpu_type, count=count, gpus_per_node=each)

    def _queues(self) -> tuple[Queue, ...]:
        above: dict[str, str | None] = {"org": None, "left": "org", "right": "org", "r1": "right", "r2": "right"}
        if maybe(self._chance, 0.3):
            above["other"] = None
        if maybe(self._chance, 0.3):
            above["deep"] = "r2"
        self.leaves = tuple(name for name in above if name not in above.values())
        left: dict[tuple[str | None, GpuType], int] = {}
        ceilings: dict[tuple[str | None, GpuType], MilliGpu | None] = {}
        return tuple(self._queue(name, parent, left, ceilings) for name, parent in above.items())

    def _queue(
        self,
        name: str,
        parent: str | None,
        left: dict[tuple[str | None, GpuType], int],
        ceilings: dict[tuple[str | None, GpuType], MilliGpu | None],
    ) -> Queue:
        """A queue that is guaranteed no more than is `left` above it, and whose maxima are no higher than those above it."""
        quota = []
        for gpu_type in self.gpu_types:
            if maybe(self._chance, 0.1):
                continue
            rest, ceiling = left.get((parent, gpu_type)), ceilings.get((parent, gpu_type))
            entry = self._quota(gpu_type, rest, ceiling, unset=parent is None and maybe(self._chance, 0.6))
            quota.append(entry)
            if entry.guaranteed is not None or rest is not None:
                left[name, gpu_type] = entry.guaranteed or 0
            if entry.guaranteed is not None and rest is not None:
                left[parent, gpu_type] = rest - entry.guaranteed
            ceilings[name, gpu_type] = entry.max if entry.max is not None else ceiling
        return self._ordered(Queue(QueueName(name), QueueName(parent) if parent else None, tuple(quota)))

    def _quota(self, gpu_type: GpuType, rest: int | None, ceiling: MilliGpu | None, *, unset: bool) -> Quota:
        chance = self._chance
        guaranteed = None if unset or maybe(chance, 0.3) else self._guaranteed(rest)
        if guaranteed is not None and maybe(chance, 0.1):
            guaranteed = MilliGpu(max(guaranteed - 500, 0))
        most = MilliGpu.gpus(chance.randint(whole_gpus(guaranteed or 0), 16)) if maybe(chance, 0.25) else None
        if ceiling is not None:
            most = None if most is None else min(most, ceiling)
            guaranteed = None if guaranteed is None else min(guaranteed, ceiling)
        per_user = MilliGpu.gpus(chance.randint(0, 6)) if "per-user" in self.features and maybe(chance, 0.3) else None
        lendable = None
        if "lending" in self.features and guaranteed and maybe(chance, 0.6):
            lendable = MilliGpu(chance.choice([0, guaranteed // 2, guaranteed]))
        return Quota(gpu_type, guaranteed, most, per_user, lendable)

    def _guaranteed(self, rest: int | None) -> MilliGpu:
        if rest is None:
            return MilliGpu.gpus(self._chance.choice([0, 1, 2, 4, 8]))
        return MilliGpu.gpus(min(self._chance.choice([0, 1, 2, 3, 4, 6, 8]), rest // 1000))

    def _ordered(self, queue: Queue) -> Queue:
        """The queue, at times with an order of its own, on hold, or for some classes only."""
        chance = self._chance
        ordering = self._ordering() if maybe(chance, 0.4) else None
        stop = chance.choice(STOPS) if "hold" in self.features and maybe(chance, 0.12) else "None"
        return msgspec.structs.replace(
            queue,
            ordering=ordering,
            stop_policy=stop,
            priority_classes=chance.choice(CLASSES_LET_IN) if maybe(chance, 0.06) else None,
            weight=chance.randint(1, 3),
            reclaim=chance.choice(RECLAIMS_OF_QUEUES),
            reclaim_within=chance.choice([None, None, hours(0), hours(1)]),
        )

    def _ordering(self) -> Ordering:
        chance = self._chance
        strict = "strict" in self.features and maybe(chance, 0.5)
        if "turns" in self.features and maybe(chance, 0.4):
            cost: OrderBy = chance.choice(COSTS)
            return Ordering(cost, strict, Turns(hours(chance.choice([1, 24]))))
        return Ordering(chance.choice(ORDERS), strict)

    def _limit(self) -> Duration | None:
        """A class's time limit."""
        return self._chance.choice([hours(1), hours(5)] if "limits" in self.features else [None, hours(1), hours(5)])

    def _classes(self) -> tuple[PriorityClass, ...]:
        chance, features = self._chance, self.features
        protection = self._protection()
        aging = chance.choice([0.0, 1.0, 3.0])
        kinds = [(False, True), (False, False), (True, False)]
        preemptible, may_borrow = chance.choice(kinds) if "not-preemptible" in features else (True, False)
        scope: Scope = "cluster" if "scope" in features else "queue"
        inference = PriorityClass("inference", 1000, "latency-critical", 0.0, self._limit(), preemptible=preemptible)
        style = chance.choice(STYLES)
        training = PriorityClass("training", 100, "standard", aging, self._limit(), protection=protection, scope=scope)
        fallback_after = chance.choice([None, hours(1)]) if "fallback" in features else None
        classes = (
            msgspec.structs.replace(inference, may_borrow=may_borrow, scope=scope, placement=style),
            msgspec.structs.replace(training, fallback_after=fallback_after),
            PriorityClass("batch", 10, "preemptible", aging, self._limit(), protection=protection),
        )
        if not maybe(chance, 0.3):
            return classes
        return (*classes, PriorityClass("pinned", 100, "standard", preemptible=False, may_borrow=maybe(chance, 0.5)))

    def _protection(self) -> Protection:
        chance = self._chance
        return Protection(
            Duration(chance.choice([0, 0, 300_000, 2 * HOUR_MS])),
            hours(chance.choice([0, 0, 1])),
            chance.choice([None, None, 1, 3]),
        )

    def _evictions(self) -> Evictions:
        chance = self._chance
        return Evictions(
            chance.choice([None, None, 1, 2]),
            chance.choice([0.0, 0.0, 0.9]),
            grace=Duration(chance.choice([0, 30_000, 300_000])),
            back_off=Duration(chance.choice([0, 60_000, HOUR_MS])),
            moves_per_round=chance.choice([0, 4, 4]),
        )

    def _scheduling(self) -> SchedulingPolicy:
        chance = self._chance
        return SchedulingPolicy(
            evictions=self._evictions(),
            default_priority_class="training" if maybe(chance, 0.5) else "",
            reservations=Reservations(chance.choice([0, 1, 1, 2])),
            reclaim=chance.choice(RECLAIMS),
            reclaim_within=hours(chance.choice([0, 1])),
            fallback_after=hours(1 if "fallback" in self.features and maybe(chance, 0.5) else 0),
            gpu_types=self._weights() if maybe(chance, 0.3) else (),
            convergence=Convergence(hours(chance.choice([0, 1])), chance.choice(EVICTABLE)),
            usage_half_life=chance.choice([None, hours(24)]),
            estimated_jobs=chance.choice([0, 3, 100]),
            duration_quantile=chance.choice([0.0, 0.9]),
        )

    def _weights(self) -> tuple[GpuTypeWeight, ...]:
        return tuple(
            GpuTypeWeight(gpu_type, self._chance.choice([0.5, 1.0, 2.0]))
            for gpu_type in self.gpu_types
            if maybe(self._chance, 0.5)
        )

    def _sharing(self) -> tuple[SharingPolicy, ...]:
        if "shares" not in self.features:
            return ()
        mode, groups = self._chance.choice(MODES_OF_SHARING), self._chance.choice(TRUST)
        pools = self._chance.choice(SHARED_POOLS)
        times = self._chance.choice([1.0, 1.5, 2.0]) if mode == "time-slicing" else 1.0
        return (SharingPolicy("parts", pools, mode, groups, times),)

    def _mig(self) -> tuple[MigGeometry, ...]:
        if "mig" not in self.features:
            return ()
        return tuple(self._geometry(pool, gpu_type) for gpu_type in MIG_MODELS for pool in pools_of(gpu_type))

    def _geometry(self, pool: str, gpu_type: str) -> MigGeometry:
        mode, chance = self.mig_mode(pool), self._chance
        layouts = MIG_LAYOUTS[gpu_type] if mode != "free" else ()
        changes = None
        if mode != "fixed":
            changes = MigChanges(chance.choice([0, 1, 2, 8, 8]), chance.choice(DRAINS))
        return MigGeometry(pool, pool, mode, MIG_MODELS[gpu_type], layouts, changes)


def pools_of(gpu_type: str) -> tuple[str, str]:
    """Nodes of a type are in two pools, of which the rules are not the same."""
    return gpu_type.lower(), f"{gpu_type.lower()}-x"
