"""CPU and memory in a policy: what GPUs carry of them, and what queues are guaranteed and may hold."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document
from solver.model.quantities import Cpu, Memory

Resource = Literal["cpu", "memory"]


class HostShare(Document, frozen=True):
    """The CPU and memory that one GPU of a pool carries. None: an equal part of what the pool's nodes have."""

    pool: str
    cpu: Cpu | None = None
    memory: Memory | None = None


class CpuQuota(Document, frozen=True, tag_field="resource", tag="cpu"):
    """What a queue may hold of CPU: its jobs without GPUs are guaranteed `guaranteed`, and all of its jobs hold at most `max`.

    `guaranteed` None: what the queues below it are guaranteed, and none where there are none. `max` None: there is no ceiling.
    `lendable`: the most of `guaranteed` that jobs without GPUs of other queues may hold; None: all of it. `per_user`: the most that
    the jobs of one user hold. `shared`: every queue below it may claim what is guaranteed, whatever it is guaranteed itself.
    """

    guaranteed: Cpu | None = None
    max: Cpu | None = None
    lendable: Cpu | None = None
    per_user: Cpu | None = None
    origin: str = ""
    shared: bool = False


class MemoryQuota(Document, frozen=True, tag_field="resource", tag="memory"):
    """The same of memory."""

    guaranteed: Memory | None = None
    max: Memory | None = None
    lendable: Memory | None = None
    per_user: Memory | None = None
    origin: str = ""
    shared: bool = False


HostQuota = CpuQuota | MemoryQuota


def resource_of(quota: HostQuota) -> Resource:
    """Which of the two it is about."""
    return "cpu" if isinstance(quota, CpuQuota) else "memory"
