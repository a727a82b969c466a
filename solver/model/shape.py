"""What one task asks for on one node: GPUs whole, shared or as a MIG instance, CPU, memory, and what else nodes have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, NewType

import msgspec

from solver.model.amounts import CPU, MEMORY, NONE, Amounts, amounts_of
from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Cpu, Memory, MilliGpu


class Shape(Document, frozen=True):
    """What one task needs. `gpu_types` in order of preference; empty means any type.

    Of GPUs at most one of four: `gpus` whole ones, `gpu_fraction` of one, as much of one as has `gpu_memory`, or a `mig`
    instance of that profile. `devices`: of how many different GPUs such a part, or how many such instances, all on one node; 1
    where it asks for none.
    `min_gpu_memory`: each GPU, whole or not, has at least so much memory altogether; None: any will do.
    `node_labels`: the node has all of these labels, each as KEY=VALUE. `resources`: what it takes of what else nodes have.
    """

    gpus: int = 0
    gpu_types: tuple[GpuType, ...] = ()
    cpu: Cpu = Cpu(0)
    memory: Memory = Memory(0)
    gpu_fraction: MilliGpu | None = None
    gpu_memory: Memory | None = None
    mig: str | None = None
    min_gpu_memory: Memory | None = None
    node_labels: tuple[str, ...] = ()
    resources: Amounts = NONE
    devices: int = 1

    @property
    def beside(self) -> dict[str, int]:
        """What it takes beside GPUs, by name; CPU and memory are there, be it with 0."""
        return {CPU: int(self.cpu), MEMORY: int(self.memory), **self.resources}

    @property
    def cost(self) -> MilliGpu:
        """What a task is charged, where that is known without the type of its GPU."""
        return MilliGpu(MilliGpu.gpus(self.gpus) + (self.gpu_fraction or 0) * self.devices)

    @property
    def is_shared(self) -> bool:
        """It asks for a part of a GPU."""
        return self.gpu_fraction is not None or self.gpu_memory is not None

    @property
    def uses_gpus(self) -> bool:
        """It needs a node with GPUs."""
        return self.gpus > 0 or self.is_shared or self.mig is not None


def taking(gpus: int, beside: Mapping[str, int]) -> Shape:
    """What takes so many whole GPUs, and so much of each name beside them."""
    others = {name: amount for name, amount in beside.items() if amount and name not in (CPU, MEMORY)}
    cpu, memory = Cpu(beside.get(CPU, 0)), Memory(beside.get(MEMORY, 0))
    return Shape(gpus, cpu=cpu, memory=memory, resources=amounts_of(others))


def beside_of(shapes: Iterable[Shape]) -> Counter[str]:
    """What all of these take beside GPUs, by name."""
    found = Counter[str]()
    for shape in shapes:
        found.update(shape.beside)
    return found


TrustDomain = NewType("TrustDomain", str)
"""Trust domains: queues with jobs that may meet on one GPU."""

SharingMode = Literal["mps", "time-slicing"]
"""How tasks share a GPU: side by side through NVIDIA's MPS, or in turns."""


class Circle(NamedTuple):
    """A pool in which a task may share GPUs, its trust domain there, and how they are shared."""

    pool: str
    domain: TrustDomain
    mode: SharingMode


class ServedShape(Shape, frozen=True):
    """A shape as one task group asks for it. `nodes`: the set of the only nodes it may be on; "": it may be on any."""

    nodes: str = ""


def kept_to(shape: Shape, nodes: str) -> Shape:
    """The shape, on nodes of that set alone; "": on any."""
    if isinstance(shape, ServedShape) and not (type(shape) is ServedShape and not nodes):
        return msgspec.structs.replace(shape, nodes=nodes)
    fields = {name: getattr(shape, name) for name in Shape.__struct_fields__}
    return ServedShape(**fields, nodes=nodes) if nodes else Shape(**fields)


def nodes_of(shape: Shape) -> str:
    """The set of the only nodes that a shape may be on; "": it may be on any."""
    return shape.nodes if isinstance(shape, ServedShape) else ""


class SharedShape(ServedShape, frozen=True):
    """A shape with its part of a GPU settled, on one GPU type: `milli` of each of its GPUs, in the pool of one of its `circles`."""

    milli: int = 0
    circles: tuple[Circle, ...] = ()

    @property
    def cost(self) -> MilliGpu:
        """What a task is charged: its part of each of its GPUs."""
        return MilliGpu(self.milli * self.devices)

    @property
    def is_shared(self) -> bool:
        """Always."""
        return True

    def circle(self, pool: str) -> Circle | None:
        """The one in a pool; None where it may not share."""
        return next((circle for circle in self.circles if circle.pool == pool), None)

    def domain(self, pool: str) -> TrustDomain | None:
        """Its trust domain in a pool; None where it may not share."""
        circle = self.circle(pool)
        return circle.domain if circle else None


class MigShape(ServedShape, frozen=True):
    """A shape with its MIG profile settled: that of one `model`, each instance `milli` of a GPU (0: there is no such profile)."""

    model: str = ""
    milli: int = 0

    @property
    def cost(self) -> MilliGpu:
        """What a task is charged: the part of a GPU's memory slices that each of its instances has."""
        return MilliGpu(self.milli * self.devices)
