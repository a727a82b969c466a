"""What is answered to the questions what GPUs do, and what they did."""

from __future__ import annotations

from reconciler.api.payloads import Payload
from reconciler.control.model_flops import WorkLine
from reconciler.control.use_summary import GpuUtilisation
from reconciler.model.gpu_use import UseFigures, UseSpread
from reconciler.protocols.gpu_use import GpuPast, UseStep
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName


class GpuView(Document, frozen=True, omit_defaults=False):
    """One GPU. `jobs`: of those that hold it or a part of it, the ones that the caller may see; `held`: whether any does.

    `use`: what it did in the newest `minute` of which that is known, which may be long ago; null: nothing is known.
    """

    gpu: DeviceId
    node: NodeName
    gpu_type: GpuType
    healthy: bool
    held: bool
    jobs: tuple[JobName, ...]
    minute: Instant | None = None
    use: UseFigures | None = None


class NamedUse(Document, frozen=True):
    """A queue or priority class, and its GPUs by type."""

    name: str
    lines: tuple[GpuUtilisation, ...]


class GpuList(Payload, frozen=True, kw_only=True):
    """GPUs in the order of their nodes, a page of those asked for; and of all GPUs what is allocated, and of that active.

    `classes`: "" is the class of jobs that name none. `work`: what jobs report of their own work.
    `next`: the cursor of the page after this one; "": there is none.
    """

    items: tuple[GpuView, ...]
    types: tuple[GpuUtilisation, ...]
    queues: tuple[NamedUse, ...]
    classes: tuple[NamedUse, ...]
    work: tuple[WorkLine, ...] = ()
    next: str = ""


class NodeUse(Payload, frozen=True, kw_only=True):
    """What the GPUs of a node did."""

    node: NodeName
    step: UseStep
    items: tuple[GpuPast, ...]


class JobUsePoint(Document, frozen=True):
    """A stretch in which `gpus` of a job are measured; `active`: over these GPUs, each with its mean."""

    start: Instant
    gpus: int
    active: UseSpread


class JobUseHistory(Payload, frozen=True, kw_only=True):
    """What the GPUs did that a job held whole, in stretches that lie wholly in what it held. `active`: of all; null: not known."""

    job: JobName
    step: UseStep
    active: float | None
    points: tuple[JobUsePoint, ...]
