"""Facts of the past for accounts: placements and capacity as the stores tell them, and clusters with a random history."""

from __future__ import annotations

import random
from collections.abc import Iterable

from reconciler.protocols.capacity import CapacitySpan, DeviceState, NodeCapacity
from reconciler.protocols.placements import NodePlacement, PlacedTask, Placement, PlacementEnd
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, QueueName

START = Instant.parse("2026-03-01T00:00:00Z")
H100, A100 = GpuType("H100"), GpuType("A100")
HOUR = 3_600_000


def at(ms: int) -> Instant:
    return START.after(ms)


def gpu(node: str, index: int) -> DeviceId:
    return DeviceId(f"{node}/{index}")


def span(
    node: str, since: int, until: int | None, *states: DeviceState, pool: str = "p", gpu_type: GpuType = H100
) -> CapacitySpan:
    devices = tuple(gpu(node, index) for index in range(len(states)))
    over = None if until is None else at(until)
    return CapacitySpan(NodeName(node), at(since), over, NodeCapacity(pool, gpu_type, devices, states))


def whole(node: str, *indices: int) -> PlacedTask:
    return PlacedTask("w", 0, tuple(gpu(node, index) for index in indices), MilliGpu.gpus(len(indices)))


def part(node: str, index: int, milli: int) -> PlacedTask:
    return PlacedTask("w", 0, (gpu(node, index),), MilliGpu(milli))


def instance(node: str, index: int, slot: int, milli: int = 125) -> PlacedTask:
    return PlacedTask("w", 0, (DeviceId(f"{node}/{index}/1g@{slot}"),), MilliGpu(milli), gpu(node, index))


def placed(
    job: str,
    node: str,
    since: int,
    until: int | None,
    *tasks: PlacedTask,
    queue: str = "team",
    user: str = "ann",
    attempt: int = 1,
    ended: PlacementEnd = "",
    gpu_type: GpuType = H100,
    number: int = 1,
) -> NodePlacement:
    gpus = MilliGpu(sum(task.gpus for task in tasks))
    over = None if until is None else at(until)
    of = JobName(job), attempt, QueueName(queue), user, gpu_type, gpus
    return NodePlacement(Placement(number, *of, at(since), over, ended), NodeName(node), gpus, tasks)


STATES: tuple[DeviceState, ...] = ("idle", "reserved", "unhealthy", "partitioning")


class RandomCluster:
    """Two nodes that come, go and change kind, and jobs on them: whole GPUs, fractions, MIG instances; all within `length` ms."""

    def __init__(self, seed: int, length: int = 60) -> None:
        self._chance, self._length = random.Random(seed), length
        self.spans: list[CapacitySpan] = []
        self.placed: list[NodePlacement] = []
        for node in ("n1", "n2"):
            self._nodes_history(node)
            for index in range(3):
                self._jobs_of(node, index)
        self.placed.sort(key=lambda one: (one.node, one.placement.since, one.placement.number))

    def _nodes_history(self, node: str) -> None:
        now = self._chance.choice((-10, 0, 5))
        while now < self._length + 10:
            until = now + self._chance.randrange(1, 25)
            if self._chance.random() < 0.8:
                states = self._chance.choices(STATES, k=self._chance.choice((2, 3)))
                kind = self._chance.choice((("p", H100), ("p", H100), ("q", A100)))
                over = None if until >= self._length + 10 else until
                self.spans.append(span(node, now, over, *states, pool=kind[0], gpu_type=kind[1]))
            now = until

    def _jobs_of(self, node: str, index: int) -> None:
        manner = self._chance.choice(("whole", "parts", "instances"))
        lanes = {"whole": 1, "parts": 3, "instances": 7}[manner]
        for lane in range(lanes):
            now = self._chance.randrange(-10, 20)
            while now < self._length:
                until = now + self._chance.randrange(1, 30)
                task = _task(manner, node, index, lane)
                over = None if until > self._length + 5 else until
                number = len(self.placed) + 1
                self.placed.append(placed(f"j{number}", node, now, over, task, number=number))
                now = until + self._chance.choice((0, 0, 3, 15))

    def held_at(self, ms: int, device: DeviceId) -> int:
        """By another way than the account's: thousandths of a GPU that are held in a millisecond."""
        return sum(
            int(task.gpus)
            for one in self.placed
            for task in one.tasks
            if (task.instance_of or task.devices[0]) == device and lasts(one.placement.since, one.placement.until, ms)
        )

    def state_at(self, ms: int, device: DeviceId) -> tuple[str, GpuType, DeviceState] | None:
        """Of which kind it is then and in which state; None: it is not there."""
        for one in self.spans:
            has = one.capacity
            if device in has.devices and lasts(one.since, one.until, ms):
                return has.pool, has.gpu_type, has.states[has.devices.index(device)]
        return None

    def devices(self) -> Iterable[DeviceId]:
        return (gpu(node, index) for node in ("n1", "n2") for index in range(3))


def lasts(since: Instant, until: Instant | None, ms: int) -> bool:
    return since <= at(ms) and (until is None or at(ms) < until)


def _task(manner: str, node: str, index: int, lane: int) -> PlacedTask:
    if manner == "instances":
        return instance(node, index, lane)
    return whole(node, index) if manner == "whole" else part(node, index, (250, 300, 450)[lane])
