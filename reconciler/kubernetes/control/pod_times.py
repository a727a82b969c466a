"""From when to when a pod held what it has, and why no longer, by the API server's own times. Pure.

Fields and meanings: k8s.io/api 0.36 (core/v1). The condition PodScheduled turns true in the transaction that binds a pod, by the
API server's clock; containers' `finishedAt` are times of the node's clock. All are whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.kubernetes.binder.records import eviction_record_on
from reconciler.kubernetes.control.signs import is_evicted
from reconciler.kubernetes.objects.wire import Pod
from reconciler.protocols.placements import PlacementEnd
from reconciler.protocols.pod_placements import GangEnding, PodRelease
from solver.model.inflight import Intent
from solver.model.quantities import Instant


def held_since(pod: Pod, seen_at: Instant) -> Instant:
    """Since when it has its node: since it was bound; where that is not said, since its kubelet began it; else as it was seen."""
    bound = _turned(pod, "PodScheduled", "True")
    began = Instant.parse(pod.status.start_time) if pod.status.start_time else None
    return next(_known((bound, began)), seen_at)


def held_until(pod: Pod, seen_at: Instant) -> Instant:
    """Until when, of one that is over or gone: until its last container ended, where they say so; no later than it was seen.

    One of which nothing is said was gone at its deletionTimestamp at the latest: its grace is over then.
    """
    ended = _containers_ended(pod)
    if ended is not None:
        return min(ended, seen_at)
    said: list[Instant | None] = []
    if pod.is_over:
        said = [_turned(pod, "Ready", "False"), _turned(pod, "DisruptionTarget", "True")]
    deleted = pod.metadata.deletion_timestamp
    by_grace = Instant.parse(deleted) if deleted else seen_at
    return min(max(_known(said), default=by_grace), seen_at)


def release_of(pod: Pod, seen_at: Instant, asked: Intent | None, saved_at: Instant | None) -> PodRelease:
    """Why it holds nothing any more, and since when. `asked`: what was asked of its gang, as far as this process knows."""
    record = eviction_record_on(pod)
    ended, whom = _ended(pod, record.intent if record else asked)
    return PodRelease(held_until(pod, seen_at), ended, whom, saved_at, _containers_ended(pod) is None)


def gang_ending(pods: Iterable[Pod]) -> GangEnding:
    """How a gang ended whose last pods are these; of none it is that they were deleted before they had begun."""
    ends = {release_of(pod, Instant(0), None, None).ended for pod in pods}
    if not ends.isdisjoint(("evicted", "requeued", "failed")):
        return "failed"
    return "succeeded" if "succeeded" in ends else "cancelled"


def _ended(pod: Pod, asked: Intent | None) -> tuple[PlacementEnd, str]:
    is_sent_away = is_evicted(pod) or (asked is not None and pod.metadata.deletion_timestamp is not None)
    if is_sent_away and asked is not None and asked.purpose == "requeue":
        return "requeued", ""
    if is_sent_away and (asked is None or asked.purpose == "evict" or asked.beneficiary):
        return "evicted", (asked.beneficiary or "") if asked else ""
    if is_sent_away:
        return "cancelled", ""  # its time limit was over, or it was not ready in time
    if pod.status.phase == "Failed":
        return "failed", ""
    return ("succeeded" if pod.status.phase == "Succeeded" else "cancelled"), ""


def _containers_ended(pod: Pod) -> Instant | None:
    """When the last of them did; None: not all say so."""
    terminated = [one.state.terminated for one in pod.status.container_statuses]
    ended = [Instant.parse(one.finished_at) for one in terminated if one and one.finished_at]
    return max(ended) if ended and len(ended) == len(terminated) else None


def _turned(pod: Pod, condition: str, status: str) -> Instant | None:
    found = (
        Instant.parse(known.last_transition_time)
        for known in pod.status.conditions
        if (known.type, known.status) == (condition, status) and known.last_transition_time
    )
    return next(found, None)


def _known(times: Iterable[Instant | None]) -> Iterator[Instant]:
    return (time for time in times if time is not None)
