"""Whether a change keeps within the guardrails of the revision that it would replace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from reconciler.documents.repository import Compiled
from reconciler.model.review_findings import Breach, Entitlement, QueueChange, Review
from solver.model.cluster import GpuType, Node
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import QueueName
from solver.plan.reason import count
from solver.policy.guardrails import Guardrails
from solver.policy.policy import Policy
from solver.policy.windows import moments, quota_in

Nodes = tuple[Node, ...]


def breaches_of(
    base: Compiled, head: Compiled, found: Review, there: tuple[Nodes, Nodes] | None = None
) -> tuple[Breach, ...]:
    """What the change would do beyond the guardrails of the base, which alone count; the head's say nothing here.

    `there`: the nodes that the cluster has, as each of both declares them; None: those that they declare.
    """
    guardrails = base.policy.scheduling.guardrails
    origin = base.policy.scheduling.origin
    return (
        *_too_many_evicted(guardrails, origin, found),
        *_cut_too_far(guardrails, head.policy, found.queues),
        *_guaranteed_twice(guardrails, base, head, there),
        *_too_soon(guardrails, head.policy, found),
    )


def _too_many_evicted(guardrails: Guardrails, origin: str, found: Review) -> Iterator[Breach]:
    evicted = found.evicted_by_change
    lost_h = sum(job.loss.lost_gpu_h for job in evicted if job.loss)
    most, most_h = guardrails.max_evicted_jobs, guardrails.max_evicted_gpu_hours
    fix = "Change less at once, or give running jobs more time (convergence)."
    if most is not None and len(evicted) > most:
        yield Breach("maxEvictedJobs", f"{count(len(evicted), 'job')} would be evicted, at most {most}", fix, origin)
    if most_h is not None and lost_h > most_h:
        message = f"{lost_h:.1f} GPU-hours of work would be lost, at most {most_h:g}"
        yield Breach("maxEvictedGpuHours", message, fix, origin)


def _cut_too_far(guardrails: Guardrails, head: Policy, queues: Iterable[QueueChange]) -> Iterator[Breach]:
    """A queue that is gone has lost all that it had."""
    most = guardrails.max_quota_cut_percent
    for change in queues if most is not None else ():
        for field, before, after in _quotas(change):
            percent = 100 * (before - after) / before if before else 0
            if most is not None and percent > most:
                message = (
                    f"queue {change.queue}: {field} {before} → {after} {change.gpu_type} "
                    f"is a cut by {percent:.0f} %, at most {most} %"
                )
                origin = _origin(head, change.queue, change.gpu_type)
                yield Breach("maxQuotaCutPercent", message, "Cut it in steps, each a change of its own.", origin)


def _quotas(change: QueueChange) -> Iterator[tuple[str, MilliGpu, MilliGpu]]:
    """What is stated in numbers on both sides, before and after."""
    if change.before is None:
        return
    after = change.after or Entitlement(MilliGpu(0), MilliGpu(0), MilliGpu(0), MilliGpu(0))
    yield "guaranteed", change.before.guaranteed, after.guaranteed
    if change.before.max is not None and after.max is not None:
        yield "max", change.before.max, after.max


def _guaranteed_twice(
    guardrails: Guardrails, base: Compiled, head: Compiled, there: tuple[Nodes, Nodes] | None
) -> Iterator[Breach]:
    if not guardrails.guaranteed_within_capacity:
        return
    nodes_before, nodes_after = there or (base.nodes, head.nodes)
    before, after = _excess(base.policy, nodes_before), _excess(head.policy, nodes_after)
    for gpu_type, excess in sorted(after.items()):
        if excess > max(0, before.get(gpu_type, 0)):
            promised = [
                entry
                for queue in head.policy.queues
                if queue.parent is None and (entry := queue.quota_for(gpu_type)) and entry.guaranteed
            ]
            known, fix = ("are there", "add nodes first") if there else ("are declared", "declare the nodes first")
            message = f"{MilliGpu(excess)} more {gpu_type} would be guaranteed than {known}"
            origin = max(promised, key=lambda entry: entry.guaranteed or 0).origin if promised else ""
            yield Breach("guaranteedWithinCapacity", message, f"Guarantee less, or {fix}.", origin)


def _excess(policy: Policy, nodes: Nodes) -> dict[GpuType, int]:
    """By how many milli-GPU the guarantees of the roots exceed what nodes have, at the moment at which they do so most; negative:
    what is left of it.
    """
    roots = [queue for queue in policy.queues if queue.parent is None]
    then = ([quota_in(root, open_.get(root.name, ())) for root in roots] for _, open_ in moments(roots))
    promised = Counter[GpuType]()
    for rows in ([root.quota for root in roots], *then):
        together = Counter[GpuType]()
        for quota in rows:
            for entry in quota:
                together[entry.gpu_type] += entry.guaranteed or 0
        promised |= together
    for node in nodes:
        promised[node.gpu_type] -= MilliGpu.gpus(len(node.gpus))
    return dict(promised)


def _too_soon(guardrails: Guardrails, head: Policy, found: Review) -> Iterator[Breach]:
    """Limits that the change itself sets below what is held, and that evict before jobs had their time."""
    least = guardrails.min_convergence
    for broken in found.newly_broken if least is not None else ():
        if least is None or broken.deadline is None:
            continue
        given = Duration(max(0, broken.deadline - found.time))
        if given < least:
            message = (
                f"queue {broken.queue} holds {broken.over} {broken.gpu_type} above its new max of {broken.max}, "
                f"and jobs would be evicted after {given}; they must have at least {least}"
            )
            origin = _origin(head, broken.queue, broken.gpu_type)
            yield Breach("minConvergence", message, f"Set convergence.within to {least} or more.", origin)


def _origin(policy: Policy, name: QueueName, gpu_type: GpuType) -> str:
    """The line that says it: the quota's, else the queue's."""
    queue = policy.queue(name)
    entry = queue.quota_for(gpu_type) if queue else None
    return entry.origin if entry else queue.origin if queue else ""
