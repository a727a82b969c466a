"""What a leader writes to one pod: under its epoch, only to this very pod, and known until a mirror shows it."""

from __future__ import annotations

from typing import Any

from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.fencing import Leading, signature
from reconciler.backends.kubernetes.intents import Pods
from reconciler.backends.kubernetes.objects.wire import Pod, read
from reconciler.backends.kubernetes.resource import PODS
from solver.world.quantities import Duration


class PodWrites:
    """Each method raises KubernetesError (ConflictError, NotFoundError: the pod is gone), and NotLeaderError before it is sent."""

    def __init__(self, api: Api, leading: Leading) -> None:
        self._api = api
        self._leading = leading
        self._written: dict[tuple[str, str], Pod] = {}

    def unseen(self, pods: Pods) -> int:
        """On how many pods a mirror does not show yet what was written: a round would ask for the same once more."""
        self._written = {key: pod for key, pod in self._written.items() if _is_older(pods.get(key), pod)}
        return len(self._written)

    async def annotate(self, pod: Pod, annotations: dict[str, str | None], version: str = "") -> Pod:
        """The pod with these; None takes one away. `version`: only if it is still that one, else ConflictError."""
        only_if = {"uid": pod.metadata.uid, **({"resourceVersion": version} if version else {})}
        body = {"metadata": {**only_if, "annotations": {**annotations, **signature(self._leading)}}}
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
                "annotations": signature(self._leading),
            },
            "deleteOptions": {
                "gracePeriodSeconds": int(grace) // 1000,
                # Without a version the server goes on trying for ten seconds where another pod has the name.
                "preconditions": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
                **({"dryRun": ["All"]} if dry else {}),
            },
        }
        await self._api.create(PODS.path(*pod.key, "eviction"), body, self._leading.leadership)

    async def _patched(self, path: str, body: dict[str, Any]) -> Pod:
        fresh = read(await self._api.patch(path, body, self._leading.leadership), Pod)
        self._written[fresh.key] = fresh
        return fresh


def _is_older(shown: Pod | None, written: Pod) -> bool:
    """Versions are numbers, and may be compared as such since Kubernetes 1.35 (KEP-5504)."""
    if shown is None or shown.metadata.uid != written.metadata.uid:
        return False  # it is gone
    return int(shown.metadata.resource_version) < int(written.metadata.resource_version)
