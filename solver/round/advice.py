"""What would help: a job that waits, and one that can never run, of which the nearest that could is named."""

from __future__ import annotations

from collections.abc import Iterable

from solver.model.amounts import in_words
from solver.plan.hopes import what_would_help
from solver.plan.mig_reasons import MigHasNoPeers
from solver.plan.plan import Inadmissible, Verdict, Waits
from solver.plan.reason import count, some_of
from solver.plan.reasons import AnyReason
from solver.plan.refusals import (
    AboveMax,
    ClassNotAllowed,
    GpuTooSmall,
    NamespaceNotAllowed,
    NeverFits,
    NotDivided,
    UnknownName,
)
from solver.plan.words import with_article

OTHERWISE = "Change the job, or the policy that rules it out."


def help_for(verdict: Verdict) -> tuple[str, ...]:
    """What would help a job that does not start: one that waits, or one that can never run; () for all others."""
    match verdict:
        case Waits(reasons=reasons):
            return what_would_help(reasons)
        case Inadmissible(reasons=reasons):
            return (what_would_fit(reasons),)
        case _:
            return ()


def what_would_fit(reasons: Iterable[AnyReason]) -> str:
    """Sentences that say what to change; general advice where no nearest job is known."""
    return " ".join(dict.fromkeys(advice for reason in reasons if (advice := _advice(reason)))) or OTHERWISE


def _advice(reason: AnyReason) -> str:
    match reason:
        case AboveMax(queue=queue, gpu_type=gpu_type, max=most, per_user=True):
            return f"Up to {most} {gpu_type} of one user would fit in queue {queue}."
        case AboveMax(queue=queue, gpu_type=gpu_type, max=most, lent=True):
            return f"Up to {most} {gpu_type} would fit beside what queue {queue} keeps back."
        case AboveMax(queue=queue, gpu_type=gpu_type, max=most):
            none = f"Queue {queue} holds no {gpu_type}: choose another queue or GPU type."
            return f"Up to {most} {gpu_type} would fit in queue {queue}." if most else none
        case ClassNotAllowed(queue=queue, allowed=allowed):
            return f"Queue {queue} takes the priority class {' or '.join(allowed)}."
        case NamespaceNotAllowed():
            return _open_queue(reason)
        case NeverFits():
            return _smaller_gang(reason)
        case NotDivided() | GpuTooSmall() | MigHasNoPeers():
            return _other_part(reason)
        case UnknownName():
            return _other_name(reason)
        case _:
            return ""


def _open_queue(reason: NamespaceNotAllowed) -> str:
    """Another queue or class, or the line that would let the namespace in."""
    if reason.why == "class":
        return f"Use the priority class {' or '.join(reason.classes)} in queue {reason.queue}."
    other = f"Use queue {some_of(reason.allowed)}, or list" if reason.allowed else "List"
    return f"{other} {reason.namespace} in access.namespaces of queue {reason.queue}."


def _smaller_gang(reason: NeverFits) -> str:
    """Less CPU where no node has as much; more nodes where it is limited to some; fewer GPUs a task, likewise; else fewer tasks."""
    if reason.host:
        least = f"at most {reason.host.largest}" if reason.host.lacking else "less CPU and memory"
        more = f", or let it be on more than {count(reason.nodes_allowed, 'node')}" if reason.node_set else ""
        return f"Ask for {least} for each task of group {reason.group}{more}."
    if reason.resource:
        few = f"Ask for at most {in_words(reason.resource.name, reason.resource.largest)} for each task of group {reason.group}"
        return (
            f"{few}, or add nodes that have more."
            if reason.resource.largest
            else "Add nodes that have it, or ask for none."
        )
    if reason.node_set and reason.tasks_that_fit < reason.tasks:
        here = f"Up to {reason.tasks_that_fit} of its tasks would fit there, or let" if reason.tasks_that_fit else "Let"
        return f"{here} group {reason.group} be on more than {count(reason.nodes_allowed, 'node')}."
    if reason.profile and not reason.tasks_that_fit:
        if reason.devices > 1:
            return f"No node can have {reason.devices} {reason.profile} at once, with the CPU beside them: ask for fewer devices."
        wanted = with_article(reason.profile)
        return f"No layout that the pools of {reason.gpu_type} allow has {wanted}, or no node has the CPU beside it."
    if reason.is_task_too_large:
        if reason.devices > 1 and reason.largest_task:
            return f"A node has {reason.largest_task} {reason.gpu_type}: ask for as many devices at most."
        return (
            f"Tasks of up to {reason.largest_task} {reason.gpu_type} would fit a node." if reason.largest_task else ""
        )
    if not reason.tasks_that_fit:
        smaller = f"Ask for smaller bundles of group {reason.group}, or for a wider domain than one {reason.level}."
        return smaller if reason.per_bundle else ""
    if reason.tasks_that_fit >= reason.tasks:
        return "Each task group fits alone, but not all of them together: ask for fewer tasks."
    where = f", or ask for a wider domain than one {reason.level}" if reason.level else ""
    return f"Up to {count(reason.tasks_that_fit, 'task')} of group {reason.group} would fit{where}."


def _other_name(reason: UnknownName) -> str:
    """What there is instead of what does not exist."""
    existing = reason.children or reason.nearest
    if not existing:
        return ""
    words = {
        "queue": f"Submit to {' or '.join(existing)}.",
        "priority-class": f"Use the priority class {' or '.join(existing)}.",
        "gpu-type": f"Accept {' or '.join(existing)} too, or any: name no type.",
        "mig-profile": f"Ask for {' or '.join(existing)}.",
        "data": f"Name the data {' or '.join(existing)}.",
    }
    return words[reason.what]


def _other_part(reason: NotDivided | GpuTooSmall | MigHasNoPeers) -> str:
    """What to ask for instead of a part of a GPU that can't be had."""
    if isinstance(reason, MigHasNoPeers):
        return "Ask for whole GPUs, or for a rack."
    if isinstance(reason, NotDivided):
        if reason.by == "mig":
            return f"Ask for whole GPUs, or write a MigGeometry for a pool of {reason.gpu_type}."
        return f"Ask for whole GPUs, or let a SharingPolicy share {reason.gpu_type}: by mps, if the job is latency-critical."
    if reason.others:
        return f"Accept {' or '.join(reason.others)} too: those have as much."
    if reason.least and reason.known:
        return f"Of {with_article(reason.gpu_type)} up to {reason.has} would do."
    if not reason.known:
        other = "gpuTypes" if reason.least else "gpuFraction"
        return f"Declare gpuMemory in the NodePools of {reason.gpu_type}, or ask for {other}."
    return "Ask for less GPU memory, or for whole GPUs."
