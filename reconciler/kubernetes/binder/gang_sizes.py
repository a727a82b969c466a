"""Says on the pods of a gang that was told to be smaller with how many it goes on: what comes later joins the smaller gang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.binding import Leads
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.concurrency import gather
from reconciler.kubernetes.client.refusals import ConflictError, KubernetesError, NotFoundError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.cluster import in_order
from reconciler.kubernetes.objects.jobs import MemberPod, PodGang
from reconciler.kubernetes.objects.resource import PODS
from solver.model.workload import JobName


@dataclass(frozen=True)
class GangSizes:
    """Raises NotLeaderError, and nothing of the server's: what was not written is looked at in the next pass."""

    api: Api
    leads: Leads
    log: FilteringBoundLogger

    async def lower(self, outgrown: Mapping[JobName, PodGang]) -> int:
        """Write what the pods of these gangs are to say; how many were written."""
        pods = [member for gang in in_order(outgrown) for member in gang.outgrown]
        return sum(await gather(self._written(pod) for pod in pods))

    async def _written(self, pod: MemberPod) -> bool:
        lead = self.leads()
        meta = {"uid": pod.uid, "annotations": {names.NEEDS: pod.needs, **lead.stamp}}
        try:
            await self.api.patch(PODS.path(pod.namespace, pod.name), {"metadata": meta}, self.leads)
        except (ConflictError, NotFoundError):
            return False  # it is gone, or another has its name
        except KubernetesError as error:
            self.log.warning("gang-size-refused", pod=f"{pod.namespace}/{pod.name}", error=str(error))
            return False
        return True
