"""What a machine tells of its hardware: facts alone; what they mean is judged elsewhere.

None means that the machine can't say: a GPU without ECC has no count of its errors, which is not the count 0.
"""

from __future__ import annotations

from solver.model.cluster import DeviceId, NodeName
from solver.model.document import Document
from solver.model.quantities import Instant, Memory


class Xid(Document, frozen=True):
    """One error that NVIDIA's driver reported of a GPU, by its number. `at`: when the agent heard of it."""

    number: int
    at: Instant


class GpuFacts(Document, frozen=True):
    """One GPU. `lost`: it no longer answers its driver; then nothing else is known of it but its `xids`.

    `uncorrectable_errors`: of its memory, since it was made. `remap_pending`: a row of its memory is replaced at the next reset;
    `remap_failed`: one could not be. `throttle_reasons`: why its clocks are held down now, sorted. `processes`: pids that use it.
    `clique`: the NVLink domain beyond its machine that it belongs to; "": none.
    """

    id: DeviceId
    uuid: str = ""
    lost: bool = False
    xids: tuple[Xid, ...] = ()
    uncorrectable_errors: int | None = None
    remap_failed: bool | None = None
    remap_pending: bool | None = None
    throttle_reasons: tuple[str, ...] = ()
    temperature_c: int | None = None
    processes: tuple[int, ...] = ()
    memory_used: Memory | None = None
    clique: str | None = None


class NicFacts(Document, frozen=True):
    """One network port, Ethernet or InfiniBand. `speed_mbps` None: it does not say, as most do that are down."""

    name: str
    up: bool
    speed_mbps: int | None = None


class NodeFacts(Document, frozen=True):
    """One node at one time. GPUs and NICs are sorted by their names. `containers`: whether it runs any."""

    node: NodeName
    at: Instant
    gpus: tuple[GpuFacts, ...] = ()
    nics: tuple[NicFacts, ...] = ()
    containers: bool | None = None
