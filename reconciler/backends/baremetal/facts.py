"""What a machine tells of its hardware: pure data, judged elsewhere."""

from __future__ import annotations

from solver.world.cluster import DeviceId, NodeName
from solver.world.document import Document
from solver.world.quantities import Instant


class Xid(Document, frozen=True):
    """An error that the driver has reported of a GPU, by its number, and when."""

    number: int
    at: Instant


class GpuFacts(Document, frozen=True):
    """One GPU. `uncorrectable_errors`: of its memory, so far; `throttle_reasons`: what slows it down now."""

    id: DeviceId
    xids: tuple[Xid, ...] = ()
    uncorrectable_errors: int = 0
    remap_failed: bool = False
    remap_pending: bool = False
    throttle_reasons: tuple[str, ...] = ()
    temperature_c: int | None = None


class NicFacts(Document, frozen=True):
    """One network interface; `speed_mbps` None: not known."""

    name: str
    up: bool
    speed_mbps: int | None = None


class NodeFacts(Document, frozen=True):
    """What a node tells of itself at an instant."""

    node: NodeName
    at: Instant
    gpus: tuple[GpuFacts, ...] = ()
    nics: tuple[NicFacts, ...] = ()
