"""What a queue is guaranteed, holds and waits for of one type of GPUs, and of CPU and memory, and in which hours, as it is told."""

from __future__ import annotations

from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.policy.host_share import Resource


class QueueUser(Document, frozen=True, omit_defaults=False):
    """GPUs of one type that a user of a queue holds and waits for, where its users share it fairly.

    `fair_share`: the part of what its users divide, by `weight` among those that hold or wait for some. `past_gpu_hours`: decayed
    past use, 0 where it does not count. `user` "": all jobs without one.
    """

    user: str
    gpu_type: GpuType
    weight: int
    fair_share: MilliGpu
    held: MilliGpu
    waiting: MilliGpu
    past_gpu_hours: float = 0.0


class HoursInForce(Document, frozen=True, omit_defaults=False):
    """Which hours of a queue's quota are `open`, and from when on others are (`then`); null: from then on they stay as they are."""

    open: tuple[str, ...]
    changes_at: Instant | None
    then: tuple[str, ...] = ()

    def __str__(self) -> str:
        now = f"hours {', '.join(self.open)}" if self.open else "no hours open"
        if self.changes_at is None:
            return now
        return f"{now} until {self.changes_at}, then {', '.join(self.then) or 'none'}"


class QueueLine(Document, frozen=True, omit_defaults=False):
    """GPUs of one type in one queue. `max` null: no ceiling. `borrowed`: the part of `held` above `guaranteed`.

    `fair_share`: what the queue would hold if idle capacity were divided by weight among those that want it now.
    `waiting`: asked for by pending jobs that name the type first. `past_gpu_hours`: decayed past use, 0 where it does not count.
    `lendable`: the most of `guaranteed` that others may borrow; null: all of it.
    """

    gpu_type: GpuType
    guaranteed: MilliGpu
    max: MilliGpu | None
    fair_share: MilliGpu
    held: MilliGpu
    borrowed: MilliGpu
    waiting: MilliGpu
    past_gpu_hours: float = 0.0
    lendable: MilliGpu | None = None


class HostQueueLine(Document, frozen=True, omit_defaults=False):
    """CPU or memory in one queue, written as in its row: in cores, or with a suffix as `256Gi`. `max` null: no ceiling.

    `lendable`: the most of `guaranteed` that jobs without GPUs of others may hold; null: all of it. `per_user`: the most that the
    jobs of one user may hold; null: no ceiling. `shared`: the queues below it have its guarantee in common.
    `held`: by all jobs. `without_gpus`: of that, by jobs without GPUs: for these alone are `guaranteed`, `fair_share`,
    `borrowed`, the part of theirs above `guaranteed`, and `waiting`, what pending ones ask for.
    """

    resource: Resource
    guaranteed: str
    max: str | None
    fair_share: str
    held: str
    without_gpus: str
    borrowed: str
    waiting: str
    lendable: str | None = None
    per_user: str | None = None
    shared: bool = False


MILLI_PER_CORE = 1000
_MIB = 2**20


def amount_number(resource: Resource, text: str) -> float:
    """Cores, or bytes, of what is written so."""
    return int(Cpu.parse(text)) / MILLI_PER_CORE if resource == "cpu" else float(int(Memory.parse(text)))


def amount_text(resource: Resource, amount: int) -> str:
    """Milli-cores as cores, or bytes; what was divided is told in whole MiB."""
    if resource == "cpu":
        return str(Cpu(amount))
    return str(Memory(amount // _MIB * _MIB if amount > _MIB else amount))
