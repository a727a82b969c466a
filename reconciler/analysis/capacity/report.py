"""What `quorate capacity` found, as data: for each cluster and policy what was asked for, held and waited for; and the search."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from reconciler.analysis.backtest.figures import Distribution
from reconciler.analysis.capacity.bottlenecks import Bottleneck
from reconciler.analysis.capacity.target import WaitTarget
from solver.model.cluster import GpuType
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Duration, Instant


class DemandLine(Document, frozen=True):
    """What the jobs of a class ("": of none) asked for that accept the same GPU types.

    `gpu_hours`: GPUs times how long the jobs run once they run. `peak_gpus`: of jobs that were there at once, waiting or running,
    first at `peak_at`. `waits`: seconds to the first start.
    """

    priority_class: str
    gpu_types: str
    jobs: int
    gpu_hours: float
    peak_gpus: float
    peak_at: Instant
    waits: Distribution


class TypeLine(Document, frozen=True):
    """How far the GPUs of a type were held. `full_part`: the part of the time in which all were, so that none was free."""

    gpu_type: GpuType
    gpus: int
    held_gpu_hours: float
    held_part: float
    full_part: float


class WaitLine(Document, frozen=True):
    """How long the jobs of a class waited for one thing: hours of jobs, and of the GPUs that they asked for."""

    bottleneck: Bottleneck
    priority_class: str
    jobs: int
    job_hours: float
    gpu_hours: float


class BottleneckLine(Document, frozen=True):
    """How long jobs of all classes waited for one thing. `example`: what the job was told that waited for it the longest."""

    bottleneck: Bottleneck
    jobs: int
    job_hours: float
    gpu_hours: float
    example: str = ""


class PeakLine(Document, frozen=True):
    """The moment at which most GPUs of a class were waited for, and what most of these jobs waited for.

    `until`: when the last of the jobs that waited then had started; None: not all had by the end of the replay.
    """

    priority_class: str
    at: Instant
    jobs: int
    gpus: float
    bottleneck: Bottleneck
    until: Instant | None = None


class DemandSeries(Document, frozen=True):
    """GPUs that the jobs of a class held or waited for on average in each step of time."""

    priority_class: str
    gpus: tuple[float, ...]


class CapacityCase(Document, frozen=True):
    """One policy on one cluster. `step`: the length of the steps of `over_time`."""

    name: str
    nodes: int
    gpus: int
    jobs: int
    started: int
    never: int
    waits: Distribution
    demand: tuple[DemandLine, ...]
    types: tuple[TypeLine, ...]
    bottlenecks: tuple[BottleneckLine, ...]
    waiting: tuple[WaitLine, ...]
    peaks: tuple[PeakLine, ...]
    step: Duration
    over_time: tuple[DemandSeries, ...]
    digest: str = ""
    notes: tuple[str, ...] = ()


class TriedAddition(Document, frozen=True):
    """The wait with so many more nodes, in seconds; `at_least`: a lower bound. `met`: the target is met for certain."""

    nodes: int
    wait: float
    at_least: bool
    met: bool


class AdditionSearch(Document, frozen=True):
    """How many more nodes meet a target. `nodes`: so many do, and one less does not; None: none of those tried does.

    `of`: what is added, in words; "": nothing could be, for the reason in `note`. `tried`: by their number.
    """

    target: WaitTarget
    told: str
    of: str
    tried: tuple[TriedAddition, ...]
    nodes: int | None = None
    note: str = ""


class CapacityReport(Document, frozen=True, omit_defaults=False):
    """The same jobs in each case; the first is the cluster as it is. `search` unset: no target was named."""

    source: str
    start: Instant
    end: Instant
    cadence: Duration
    notes: tuple[str, ...]
    cases: tuple[CapacityCase, ...]
    search: AdditionSearch | UnsetType = UNSET
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["CapacityReport"] = "CapacityReport"
