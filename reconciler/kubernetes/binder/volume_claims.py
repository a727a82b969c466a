"""Has volumes made for pods before they are bound: says on each claim on which node its pod will be, and waits until it is bound.

As kube-scheduler does it (pkg/scheduler/framework/plugins/volumebinding): a volume that is made for another node than its pod's
can't be mounted there. What was said stands on the claim, so that each leader goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.intents import Pods
from reconciler.kubernetes.binder.journal import GangBinding
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.concurrency import gather
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.client.refusals import ConflictError, KubernetesError, NotFoundError
from reconciler.kubernetes.objects.pod_volumes import PodVolumes
from reconciler.kubernetes.objects.resource import VOLUME_CLAIMS
from reconciler.kubernetes.objects.storage import ONE_POD, SELECTED_NODE, PersistentVolumeClaim
from solver.model.cluster import NodeName
from solver.model.workload import JobName

Note = Callable[[str, JobName, str], object]
"""Is told what has happened to a job, and why."""


@dataclass
class VolumeClaims:
    """Raises NotLeaderError, and nothing of the server's: a gang whose volumes are not bound is looked at in the next pass."""

    api: Api
    leading: LeaderSource
    seen: PodVolumes
    note: Note
    log: FilteringBoundLogger
    _noted: dict[JobName, str] = field(default_factory=dict)
    """What was said last of jobs that wait: passes come often."""

    async def ready(self, gangs: Sequence[GangBinding], pods: Pods) -> tuple[GangBinding, ...]:
        """The gangs all of whose volumes are bound."""
        self._noted = {gang.job: self._noted[gang.job] for gang in gangs if gang.job in self._noted}
        unbound = {gang.job: self._unbound(gang, pods) for gang in gangs}
        await gather(self._select(gang.job, *one) for gang in gangs for one in unbound[gang.job])
        for gang in gangs:
            if waits := unbound[gang.job]:
                named = ", ".join(claim.metadata.name for claim, _ in waits[:3])
                more = f" and {len(waits) - 3} more" if len(waits) > 3 else ""
                self._note_once(gang.job, f"claims {named}{more} are to be bound on the nodes that its pods will have")
        return self._each_once([gang for gang in gangs if not unbound[gang.job]], pods)

    def _each_once(self, gangs: Sequence[GangBinding], pods: Pods) -> tuple[GangBinding, ...]:
        """Without those that would have what one pod of the cluster may mount, and one before them starts with."""
        kept: list[GangBinding] = []
        taken: set[tuple[str, str]] = set()
        for gang in gangs:
            once = {claim for binding in gang.pods for claim in self.seen.of_one_pod(pods[binding.key])}
            if both := sorted(once & taken):
                self._note_once(gang.job, f"claim {both[0][1]} ({ONE_POD}) is mounted by a pod that starts before it")
            else:
                taken |= once
                kept.append(gang)
        return tuple(kept)

    def _unbound(self, gang: GangBinding, pods: Pods) -> list[tuple[PersistentVolumeClaim, NodeName]]:
        """Each claim with the node on which it is to be mounted; one that several pods mount is made for the first."""
        nodes: dict[tuple[str, str], tuple[PersistentVolumeClaim, NodeName]] = {}
        for binding in gang.pods:
            for claim in self.seen.unbound(pods[binding.key]):
                nodes.setdefault(claim.key, (claim, binding.node))
        return list(nodes.values())

    async def _select(self, job: JobName, claim: PersistentVolumeClaim, node: NodeName) -> None:
        if SELECTED_NODE in claim.metadata.annotations:
            return  # it is being made
        meta = claim.metadata
        only_if = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        said = {SELECTED_NODE: node, **self.leading.leadership().stamp}
        try:
            body = {"metadata": {**only_if, "annotations": said}}
            await self.api.patch(VOLUME_CLAIMS.path(*claim.key), body, self.leading.leadership)
        except (ConflictError, NotFoundError):
            return  # it is not as it was seen, and looked at again
        except KubernetesError as error:
            self.log.warning("volume-claim-refused", job=job, claim="/".join(claim.key), error=str(error))

    def _note_once(self, job: JobName, why: str) -> None:
        if self._noted.get(job) != why:
            self._noted[job] = why
            self.note("volumes-awaited", job, why)
