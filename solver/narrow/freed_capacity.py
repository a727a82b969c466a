"""What has become free since a complete round, and is not left to jobs that come: those that wait go first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.shape import Shape, taking
from solver.model.workload import QueueName, TaskPlacement
from solver.quota.entitlement import Charge, Shares
from solver.quota.users import CapLine


@dataclass(slots=True)
class FreedCapacity:
    """Mutable. `devices`, `host` (what is beside them, by name): by node. `charges`, `caps`: what queues, and users in them, held
    and hold no more. `types`: the GPU types of all nodes on which anything has become free.
    """

    devices: dict[NodeName, set[DeviceId]] = field(default_factory=dict)
    host: defaultdict[NodeName, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    charges: Counter[tuple[QueueName, GpuType]] = field(default_factory=Counter)
    caps: Counter[CapLine] = field(default_factory=Counter)
    types: set[GpuType] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.types)

    def add(self, task: TaskPlacement, shape: Shape, gpu_type: GpuType) -> None:
        """A task holds this no more."""
        self.types.add(gpu_type)
        self.devices.setdefault(task.node, set()).update(task.devices)
        self.host[task.node].update(shape.beside)

    def add_quota(self, queue: QueueName, charge: Charge, caps: Iterable[tuple[CapLine, int]]) -> None:
        """A queue is charged so much less."""
        for gpu_type, milli in charge.items():
            self.types.add(gpu_type)
            self.charges[queue, gpu_type] += milli
        for line, amount in caps:
            self.caps[line] += amount

    def give(self, tasks: Iterable[tuple[TaskPlacement, Shape]]) -> None:
        """A job that waits has got these tasks, of what had become free or beside it."""
        for task, shape in tasks:
            if task.node in self.devices:
                self.devices[task.node].difference_update(task.devices)
            if task.node in self.host:
                self.host[task.node] -= Counter(shape.beside)  # what is left above 0

    def give_quota(self, queue: QueueName, charge: Charge, caps: Iterable[tuple[CapLine, int]]) -> None:
        """A queue is charged so much for it."""
        for gpu_type, milli in charge.items():
            self.charges[queue, gpu_type] = max(0, self.charges[queue, gpu_type] - milli)
        for line, amount in caps:
            self.caps[line] = max(0, self.caps[line] - amount)

    def hide(self, room: FreeCapacity) -> None:
        """Take it from a room."""
        for node, host in sorted(self.host.items()):
            devices = tuple(sorted(self.devices.get(node, ())))
            task = TaskPlacement("", 0, node, devices)
            room.occupy([(task, taking(len(devices), host))], is_new=False)

    def hidden_from(self, shares: Shares) -> Shares:
        """The shares as if it were held still."""
        if not self:
            return shares
        held: Mapping[CapLine, int] = Counter(shares.users.used) + self.caps
        more = ((queue, {gpu_type: milli}) for (queue, gpu_type), milli in self.charges.items() if milli)
        return replace(shares.beside(more), users=replace(shares.users, used=held))
