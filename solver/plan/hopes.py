"""What would help a job that waits, for each reason that binds it; also where its user can't change it."""

from __future__ import annotations

from collections.abc import Iterable

from solver.model.amounts import in_words
from solver.model.inflight import declared_name
from solver.model.quantities import MilliGpu
from solver.plan.mig_reasons import MigGeometryReason
from solver.plan.reason import among, beside_gpus, count
from solver.plan.reasons import (
    AnyReason,
    BeyondGuarantee,
    Bundles,
    CapacityReason,
    EntitledDemandFirst,
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


def what_would_help(reasons: Iterable[AnyReason]) -> tuple[str, ...]:
    """`8 H100 more free`, `queue vision not on hold`: in the order of the reasons; () where only time helps.

    Where a job accepts several GPU types, its reasons are those of all of them, and what helps for one of them does.
    """
    return tuple(dict.fromkeys(hope for reason in reasons if (hope := _of_policy(reason) or _of_room(reason))))


def _of_policy(reason: AnyReason) -> str:
    """What the queue's owners or those above it could change, or which jobs it waits for."""
    match reason:
        case QuotaMax() | QuotaChanges():
            return _of_max(reason)
        case StrictOrder(first=first):
            return f"{first} started"
        case HeldReason(queue=queue):
            return f"queue {queue} not on hold"
        case BeyondGuarantee(until=None, queue=queue, gpu_type=gpu_type, room=room, wanted=wanted):
            return f"{_lacking(wanted, room)} {gpu_type} more in the guarantee of queue {queue}, or a class that may borrow"
        case EntitledDemandFirst(gpu_type=gpu_type, left=left, wanted=wanted):
            return f"{_lacking(wanted, left)} {gpu_type} less in use inside other queues' guarantees"
        case Outranked() | UserShare():
            return "room beside the jobs that come before it"
        case Protected():
            return _of_protection(reason)
        case ReservedFor(holder=holder) if document := declared_name(holder):
            return f"to be let in by Reservation {document}"
        case ReservedFor(start=start):
            return f"a time limit that ends before {start}"
        case _:
            return ""


def _of_protection(reason: Protected) -> str:
    of_class = f" of class {reason.priority_class}" if reason.priority_class else ""
    match reason.by:
        case "minRuntime" | "coolDown":
            return f"a shorter {reason.by}{of_class}"
        case "preemptAfter":
            return f"a shorter preemptAfter{of_class or f' of queue {reason.queue}'}"
        case "preemptWithin" | "reclaimedFor":
            return f"another {reason.by} of queue {reason.queue}"
        case "evictionsPerDay":
            return f"more evictionsPerDay{of_class}"
        case "minGain":
            return "a lower minGain"
        case "perRound":
            return "a higher perRound"
        case "disruptionBudget":
            return (
                f"{reason.budget} to let {reason.job} go"
                if reason.budget
                else f"a PodDisruptionBudget that lets {reason.job} go"
            )


def _of_max(reason: QuotaMax | QuotaChanges) -> str:
    if isinstance(reason, QuotaChanges):
        before = f"to ask for no more than {reason.now} {reason.gpu_type} before {reason.at}"
        return before if reason.refused and reason.now else ""
    would_be = MilliGpu(reason.used + reason.wanted)
    short, queue = f"{_lacking(would_be, reason.max)} {reason.unit}", reason.queue
    if reason.kept_back is not None:
        return f"{reason.to_lend} {reason.unit} more lent by queue {queue}{_where(reason)}"
    if reason.user is not None:
        return f"{short} less held by the same user in queue {queue}"
    return f"{short} less held in queue {queue}, or its max at {would_be}"


def _where(reason: QuotaMax) -> str:
    """The change with which it helps that a queue lends more."""
    added = "GPUs are added" if reason.with_gpus else ""
    raised = f"the guarantee of queue {reason.with_guarantee} grows" if reason.with_guarantee else ""
    return f" where {' and '.join(filter(None, (added, raised)))}" if reason.is_ahead else ""


def _of_room(reason: AnyReason) -> str:
    """What more nodes, or work that ends, would bring."""
    match reason:
        case CapacityReason(gpu_type=gpu_type, free=free, wanted=wanted):
            return f"{_lacking(wanted, free)} {gpu_type} more free{among(reason.node_set, reason.nodes_allowed)}"
        case NoRoomReason():
            there = among(reason.node_set, reason.nodes_allowed)
            return f"nodes with room for {_tasks_left(reason)} of {reason.each}{there}"
        case HostResources():
            return _beside_gpus(reason)
        case Topology(level=level, wanted=wanted):
            return f"one {level} with {count(wanted.number, 'GPU')} free, or to ask for a wider level"
        case Bundles(per_bundle=per_bundle, level=level):
            return f"room for {_tasks_left(reason)}, each {per_bundle} in one {level}"
        case TooClose(level=level):
            return f"another {level} with room for {_tasks_left(reason)}"
        case GuaranteeFragmented(gpu_type=gpu_type):
            return f"{gpu_type} free in the shape that it asks for"
        case MigGeometryReason(gpu_type=gpu_type, tasks=tasks, fit_as_it_is=fit, profile=profile):
            left = tasks - fit
            return (
                f"{left} more of {reason.each} on {gpu_type}"
                if profile
                else f"room for {_more(left)} on whole {gpu_type}"
            )
        case _:
            return ""


def _beside_gpus(reason: HostResources) -> str:
    if reason.resource:
        each = in_words(reason.resource.name, reason.resource.wanted)
        return f"nodes with {each} for {_tasks_left(reason)} of group {reason.group}"
    if reason.cpu_carried is not None and reason.memory_carried is not None:
        carried = beside_gpus(reason.cpu_carried, reason.memory_carried)
        return f"to ask for no more than {carried} for each task of group {reason.group}"
    return (
        f"nodes with the CPU and memory for {_tasks_left(reason)} of group {reason.group}, or to ask for less of them"
    )


def _lacking(wanted: MilliGpu, there: MilliGpu) -> MilliGpu:
    return MilliGpu(max(0, wanted - there))


def _tasks_left(reason: NoRoomReason | HostResources | Bundles | TooClose) -> str:
    return _more(reason.tasks - reason.tasks_that_fit)


def _more(tasks: int) -> str:
    return "one more task" if tasks == 1 else f"{tasks} more tasks"
