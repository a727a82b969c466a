"""What a GPU carries of its node's CPU and memory, where a policy says it."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.quantities import Cpu, Memory


class HostShare(Document, frozen=True):
    """The CPU and memory that one GPU of a pool carries. None: an equal part of what the pool's nodes have."""

    pool: str
    cpu: Cpu | None = None
    memory: Memory | None = None
