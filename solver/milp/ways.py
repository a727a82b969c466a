"""What the columns of the program stand for: ways to serve a class of gangs, and kinds of tasks that flow into cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from solver.capacity.reserved_view import NOBODY, Against
from solver.milp.classes import JobClass
from solver.model.cluster import GpuType, Level
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape
from solver.model.workload import Bundled
from solver.placement.starts import Segment
from solver.queueing.demand import SubLayer
from solver.quota.dominance import HostUse
from solver.quota.entitlement import Charge
from solver.quota.options import Option

Part = tuple[Shape, GpuType, int]
"""Tasks of one shape on one type, and how many of them."""


@dataclass(frozen=True, slots=True)
class FlowKind:
    """What flows into cells: one task (`level` None; `pool` where it must stay in one), or a gang kept together at `level`.

    `against`: the holders of reservations that hold it back. `inner`: the smaller bundles that its tasks are in.
    """

    level: Level | None
    pool: int | None
    parts: tuple[Part, ...]
    against: Against = NOBODY
    inner: Bundled = ()


@dataclass(frozen=True, slots=True)
class Way:
    """One way to serve a class: the column `a`."""

    job_class: int
    option: Option
    level: Level | None
    pool: int | None
    strain: float


@dataclass(frozen=True, slots=True)
class GrowthColumn:
    """Tasks of one group by which the gangs served one way grow, taken together: the column `g`."""

    way: Way
    group: int


@dataclass(frozen=True, slots=True)
class DemandColumn:
    """A column that takes GPUs: gangs, or what they grow by.

    `charge`, `worth`, `misfit` and `excess_weight` are those of one of it.
    `inside_only`: it takes them inside guarantees or not at all.
    """

    column: int
    job_class: JobClass
    layer: SubLayer
    charge: Charge
    worth: float
    misfit: float
    excess_weight: float
    inside_only: bool
    beside: HostUse


def by_segment(demands: Iterable[DemandColumn]) -> dict[Segment, list[tuple[int, float]]]:
    """For each segment the columns that take GPUs of it, with the GPUs that one of each takes."""
    segments: dict[Segment, list[tuple[int, float]]] = defaultdict(list)
    for demand in demands:
        for gpu_type, milli in demand.charge.items():
            known = demand.job_class
            segment = Segment(not demand.inside_only, demand.layer, known.band, known.queue, gpu_type)
            segments[segment].append((demand.column, milli / MILLI_PER_GPU))
    return segments
