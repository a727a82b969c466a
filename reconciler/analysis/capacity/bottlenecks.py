"""What a waiting job waits for, in one word: the first reason of its verdict, without the job's own numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal

from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.workload import JobSpec
from solver.plan.mig_reasons import MigGeometryReason, MigHasNoPeers
from solver.plan.reasons import (
    AnyReason,
    BeyondGuarantee,
    Bundles,
    CapacityReason,
    EntitledDemandFirst,
    FallbackLater,
    GuaranteeFragmented,
    HeldReason,
    HostResources,
    NoRoomReason,
    Outranked,
    Protected,
    QuotaChanges,
    QuotaMax,
    ReservedFor,
    StrictOrder,
    TooClose,
    Topology,
    UserShare,
)
from solver.plan.refusals import AboveMax, GpuTooSmall, NeverFits, NotDivided

BottleneckKind = Literal["gpu-type", "shape", "host", "mig", "quota", "order", "policy", "refused", "round"]
"""Which sort of thing is short.

`gpu-type`: GPUs of a type. `shape`: GPUs that are free, but not together as a gang wants them. `host`: CPU, memory or another
resource beside GPUs. `mig`: how GPUs are partitioned. `quota`: a limit or a guarantee of a queue. `order`: jobs that come before.
`policy`: what holds jobs back or protects others. `refused`: the job can never run. `round`: the next round.
"""

ADDED_BY_NODES: Final[tuple[BottleneckKind, ...]] = ("gpu-type", "shape", "host", "mig")
"""What more nodes bring more of."""


class Bottleneck(Document, frozen=True, order=True):
    """One thing that was waited for. `gpu_types`: of which types; (): it is not about GPUs."""

    kind: BottleneckKind
    what: str
    gpu_types: tuple[GpuType, ...] = ()

    def __str__(self) -> str:
        return self.what


NEXT_ROUND: Final = Bottleneck("round", "the next round")


def types_of(spec: JobSpec) -> tuple[GpuType, ...]:
    """The GPU types that a job accepts; (): any, or it asks for none."""
    return tuple(sorted({gpu_type for group in spec.task_groups for gpu_type in group.shape.gpu_types}))


def in_words(gpu_types: Iterable[GpuType], *, wants_gpus: bool = True) -> str:
    """`H100 or A100`, `any GPU`, `no GPU`."""
    return " or ".join(gpu_types) or ("any GPU" if wants_gpus else "no GPU")


def bottleneck_of(
    reasons: tuple[AnyReason, ...], spec: JobSpec, there: Collection[GpuType], *, is_refused: bool = False
) -> Bottleneck:
    """What the first of a job's reasons is about. `there`: the cluster's GPU types. `is_refused`: the job can never run."""
    if not reasons:
        return NEXT_ROUND
    if is_refused:
        return _refusal(reasons[0], spec)
    if isinstance(reasons[0], GuaranteeFragmented) and len(reasons) > 1:
        reasons = reasons[1:]  # It says that a guarantee is a count; the next one says which shape is not free.
    mine = types_of(spec) or (tuple(there) if len(there) == 1 else ())
    return _of_nodes(reasons[0], spec, mine) or _of_quota(reasons[0], spec) or _of_policy(reasons[0])


def _of_nodes(reason: AnyReason, spec: JobSpec, mine: tuple[GpuType, ...]) -> Bottleneck | None:
    match reason:
        case CapacityReason(gpu_type=gpu_type):
            return Bottleneck("gpu-type", gpu_type, (gpu_type,))
        case NoRoomReason(gpu_type=gpu_type, gpus_per_task=gpus):
            return Bottleneck("shape", f"{gpus} {gpu_type} together on a node", (gpu_type,))
        case GuaranteeFragmented(gpu_type=gpu_type):
            return Bottleneck("shape", f"{gpu_type} in the shape of a guarantee", (gpu_type,))
        case HostResources(gpu_type=gpu_type, lacking=lacking, resource=resource):
            what = resource.name if resource else " and ".join(lacking) or "CPU and memory together"
            beside = f" beside {gpu_type}" if gpu_type else ""
            return Bottleneck("host", f"{'CPU' if what == 'cpu' else what}{beside}", (gpu_type,) if gpu_type else ())
        case Topology(level=level):
            return Bottleneck("shape", f"{in_words(mine)} in one {level}", mine)
        case Bundles(level=level):
            return Bottleneck("shape", f"{in_words(mine)}, bundles in one {level}", mine)
        case TooClose(level=level):
            return Bottleneck("shape", f"{in_words(mine)}, spread over {level}s", mine)
        case MigGeometryReason(gpu_type=gpu_type, profile=profile):
            return Bottleneck("mig", f"{profile or 'whole GPUs'} of {gpu_type}", (gpu_type,))
        case Outranked():
            wants_gpus = spec.gpus > 0
            kind: BottleneckKind = "gpu-type" if wants_gpus else "order"
            return Bottleneck(kind, in_words(mine) if wants_gpus else "jobs that come before", mine)
        case _:
            return None


def _of_quota(reason: AnyReason, spec: JobSpec) -> Bottleneck | None:
    match reason:
        case QuotaMax(queue=queue, user=user, kept_back=kept_back):
            which = "lendable" if kept_back is not None else "perUser" if user is not None else "max"
            return Bottleneck("quota", f"{which} of queue {queue}", types_of(spec))
        case QuotaChanges(queue=queue, gpu_type=gpu_type, what=what, refused=True):
            return Bottleneck("quota", f"{what} of queue {queue}", (gpu_type,))
        case BeyondGuarantee(queue=queue, gpu_type=gpu_type):
            return Bottleneck("quota", f"guaranteed of queue {queue}", (gpu_type,))
        case EntitledDemandFirst(gpu_type=gpu_type):
            return Bottleneck("quota", f"{gpu_type} that others are guaranteed", (gpu_type,))
        case ReservedFor():
            return Bottleneck("order", "what is reserved for others")
        case UserShare(queue=queue):
            return Bottleneck("order", f"fair shares among users of queue {queue}")
        case StrictOrder(queue=queue):
            return Bottleneck("order", f"the order of queue {queue}")
        case _:
            return None


def _of_policy(reason: AnyReason) -> Bottleneck:
    match reason:
        case HeldReason(queue=queue):
            return Bottleneck("policy", f"queue {queue} is on hold")
        case Protected(by="preemptAfter" | "preemptWithin" | "reclaimedFor" as by):
            return Bottleneck("policy", by)
        case Protected(by=by):
            return Bottleneck("policy", f"{by} of running jobs")
        case FallbackLater():
            return Bottleneck("policy", "fallbackAfter")
        case _:
            code = str(reason.__struct_config__.tag)
            return NEXT_ROUND if code in ("awaits-release", "round-cut-short") else Bottleneck("policy", code)


def _refusal(reason: AnyReason, spec: JobSpec) -> Bottleneck:
    match reason:
        case NeverFits(gpu_type=gpu_type, host=host, resource=resource):
            what = resource.name if resource else "CPU or memory of one node" if host else gpu_type or "nodes"
            return Bottleneck("refused", f"more {what} than there is", (gpu_type,) if gpu_type else ())
        case AboveMax(queue=queue):
            return Bottleneck("refused", f"more than queue {queue} may hold", types_of(spec))
        case GpuTooSmall(wanted=wanted, least=True):
            return Bottleneck("refused", f"GPUs with {wanted} that there are not", types_of(spec))
        case NotDivided() | MigHasNoPeers():
            return Bottleneck("refused", "parts of GPUs that there are not", types_of(spec))
        case _:
            return Bottleneck("refused", f"never: {reason.__struct_config__.tag}")
