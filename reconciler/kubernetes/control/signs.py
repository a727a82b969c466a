"""What pods say of how they were stopped and how they ended. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from reconciler.analysis.backtest.history_file import Ended
from reconciler.kubernetes.objects.wire import Pod
from solver.model.quantities import Instant

EVICTED: Final = frozenset(
    {
        # Kubernetes (core/v1): kube-scheduler's preemption, and clients of the Eviction API, as Quorate and `kubectl drain` do.
        ("DisruptionTarget", "True", "PreemptionByScheduler"),
        ("DisruptionTarget", "True", "EvictionByEvictionAPI"),
        # Volcano (pkg/scheduler/cache, the default evictor), before it deletes the pod.
        ("Ready", "False", "Evict"),
    }
)
"""Conditions of a pod that others sent away: type, status and reason. Nodes that fail say others, and are no evictions."""


def is_evicted(pod: Pod) -> bool:
    """Whether it was sent away for others."""
    return any((known.type, known.status, known.reason) in EVICTED for known in pod.status.conditions)


def ended_as(pods: Collection[Pod | None]) -> Ended:
    """How a gang ended whose last pods are these; None: one that was deleted before it said how it ended."""
    phases = {pod.status.phase for pod in pods if pod}
    if "Failed" in phases:
        return "failed"
    # Launchers succeed, and their workers are deleted then.
    return "succeeded" if "Succeeded" in phases else "cancelled"


def ended_at(pods: Iterable[Pod | None], now: Instant) -> Instant:
    """When the last of them ended: since when it is not ready; where it is not said, now."""
    said = [
        Instant.parse(known.last_transition_time)
        for pod in pods
        if pod and pod.is_over
        for known in pod.status.conditions
        if known.type == "Ready" and known.status == "False" and known.last_transition_time
    ]
    return min(max(said, default=now), now)


def ran_from(pods: Collection[Pod | None]) -> Instant | None:
    """Since when all of these, which are over, ran together; None where one is gone, or never had begun."""
    started = [pod.status.start_time for pod in pods if pod and pod.is_over and pod.status.start_time]
    return max(map(Instant.parse, started)) if started and len(started) == len(pods) else None


def all_run_since(pods: Iterable[Pod]) -> Instant | None:
    """When the last of those that are on nodes was started; None: it is not said."""
    started = (pod.status.start_time for pod in pods if pod.holds)
    return max((Instant.parse(time) for time in started if time), default=None)


def controllers_of(pods: Iterable[Pod]) -> frozenset[str]:
    """What made them and will make them anew, by uid."""
    return frozenset(owner.uid for pod in pods for owner in pod.metadata.owner_references if owner.controller)
