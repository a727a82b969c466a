"""What a leader does to one pod: under its epoch, and only to this very pod, not to another that has its name by now."""

from __future__ import annotations

from typing import Any

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import Pod, read
from solver.model.quantities import Duration, Instant


class PodWriter:
    """Each method raises KubernetesError (ConflictError, NotFoundError: the pod is gone), and NotLeaderError before it is sent."""

    def __init__(self, api: Api, leading: LeaderSource) -> None:
        self._api = api
        self._leading = leading

    async def annotate(self, pod: Pod, annotations: dict[str, str | None], version: str = "") -> Pod:
        """The pod with these; None takes one away. `version`: only if it is still that one, else ConflictError."""
        only_if = {"uid": pod.metadata.uid, **({"resourceVersion": version} if version else {})}
        body = {"metadata": {**only_if, "annotations": {**annotations, **self._leading.leadership().stamp}}}
        return await self._patched(PODS.path(*pod.key), body)

    async def nominate(self, pod: Pod, node: str) -> Pod:
        """Its status says on which node it is to be; "": it says nothing."""
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node or None}}
        return await self._patched(PODS.path(*pod.key, "status"), body)

    async def evict(self, pod: Pod, grace: Duration, *, dry: bool) -> None:
        """It is asked to end within `grace`, in whole seconds, if it is still as it was; `dry`: only whether it might be."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {
                "namespace": pod.metadata.namespace,
                "name": pod.metadata.name,
                "labels": {names.FENCED: "true"},
                "annotations": self._leading.leadership().stamp,
            },
            "deleteOptions": {
                "gracePeriodSeconds": int(grace) // 1000,
                # Without a version the server goes on trying for ten seconds where another pod has the name.
                "preconditions": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
                **({"dryRun": ["All"]} if dry else {}),
            },
        }
        await self._api.create(PODS.path(*pod.key, "eviction"), body, self._leading.leadership)

    async def delete(self, pod: Pod, grace: Duration, why: str, now: Instant) -> None:
        """It ends within `grace` in spite of PodDisruptionBudgets; `why` stands in its status, where controllers look for it.

        Stamped first, and deleted as it was then: a DELETE can't name its sender, so the fence goes by the pod.
        """
        uid = pod.metadata.uid
        # As kube-scheduler says it of pods that it preempts: failure policies of Jobs go by the type.
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": why,
            "lastTransitionTime": str(now.after(-(now % 1000))),
        }
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        await self._api.patch_entries(PODS.path(*pod.key, "status"), body, self._leading.leadership)
        stamped = await self.annotate(pod, {})
        only_if = {"uid": uid, "resourceVersion": stamped.metadata.resource_version}
        ends = {"gracePeriodSeconds": int(grace) // 1000, "preconditions": only_if}
        await self._api.delete(PODS.path(*pod.key), ends, self._leading.leadership)

    async def _patched(self, path: str, body: dict[str, Any]) -> Pod:
        return read(await self._api.patch(path, body, self._leading.leadership), Pod)
