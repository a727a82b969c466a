"""Whose pods are jobs: Quorate's own, and where it only observes also those of others that ask for GPUs."""

from __future__ import annotations

from typing import Final, NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.wire import Pod

INCUMBENTS: Final = ("default-scheduler", "kai-scheduler", "scheduler-plugins-scheduler", "volcano", "yunikorn")
"""What `spec.schedulerName` says where another scheduler decides. Kueue admits, and leaves the rest to the default one."""


class PodOwnership(NamedTuple):
    """`schedulers`: those with pods that count as well. `queue`: of gangs for which none is named; "": they are refused."""

    schedulers: frozenset[str] = frozenset()
    queue: str = ""

    def are_jobs(self, pod: Pod) -> bool:
        """Whether this pod is a job's, and not merely use of the node where it is."""
        scheduler = pod.spec.scheduler_name
        return scheduler == names.SCHEDULER or (scheduler in self.schedulers and _asks_for_gpus(pod))


OURS: Final = PodOwnership()
"""Pods that name Quorate, and no others."""


def _asks_for_gpus(pod: Pod) -> bool:
    """By resources of the device plugin, or as a part of a GPU. By a ResourceClaim alone is not seen: claims are other objects."""
    annotations = pod.metadata.annotations
    if names.KAI_FRACTION in annotations or names.KAI_MEMORY in annotations:
        return True
    asked = (
        resource
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for resource in (*container.resources.requests, *container.resources.limits)
    )
    return any(name in (names.GPU, names.GPU_SHARED) or name.startswith(names.MIG_PREFIX) for name in asked)
