"""Keeps a copy of the policy in force in the cluster, for people and programs to read; the policy itself stays in Git."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.status.policy_parts import INDEX, MIRROR, REVISION, Copy

CONFIG_MAPS = Resource("v1", "configmaps")


class _Meta(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] = {}


class _List(msgspec.Struct, frozen=True):
    items: tuple[_ConfigMap, ...]


class PolicyMirror:
    """Writes copies into one namespace; one call at a time, and by the leader alone."""

    def __init__(self, api: Api, namespace: str, leading: LeaderSource) -> None:
        self._api = api
        self._namespace = namespace
        self._leading = leading

    async def show(self, copy: Copy) -> int:
        """Make the copy be there, and no older one; how many writes that took: 0 where it was there already.

        Killed anywhere, the next call goes on: parts first, then the index, then what is older goes. Raises NotLeaderError, and
        KubernetesError.
        """
        found = {each.metadata.name: each for each in await self._found()}
        wanted = {part["metadata"]["name"]: part for part in copy.parts}
        missing = sorted(wanted.keys() - found.keys())
        older = sorted(found.keys() - wanted.keys() - {INDEX})
        for name in missing:
            await self._create(wanted[name])
        pointed = await self._point(copy, found.get(INDEX))
        for name in older:
            await self._delete(name)
        return len(missing) + pointed + len(older)

    async def _found(self) -> tuple[_ConfigMap, ...]:
        path = CONFIG_MAPS.path(self._namespace)
        return (await self._api.get(path, _List, {"labelSelector": MIRROR})).items

    async def _create(self, part: dict[str, Any]) -> None:
        try:
            await self._api.create(CONFIG_MAPS.path(self._namespace), self._signed(part))
        except ConflictError:  # the one before us wrote it after we looked; its name says its content
            return

    async def _point(self, copy: Copy, there: _ConfigMap | None) -> int:
        """Write the index, if it says something else."""
        listing = copy.listing
        label = listing["metadata"]["labels"][REVISION]
        if there and there.data == listing["data"] and there.metadata.labels.get(REVISION) == label:
            return 0
        if there:
            await self._api.patch(CONFIG_MAPS.path(self._namespace, INDEX), self._signed(listing))
        else:
            await self._api.create(CONFIG_MAPS.path(self._namespace), self._signed(listing))
        return 1

    async def _delete(self, name: str) -> None:
        self._leading.leadership()
        try:
            await self._api.delete(CONFIG_MAPS.path(self._namespace, name))
        except NotFoundError:  # another process has done it
            return

    def _signed(self, written: dict[str, Any]) -> dict[str, Any]:
        """With the leader, to be sent at once. Raises NotLeaderError."""
        metadata = {**written["metadata"], "annotations": self._leading.leadership().stamp}
        return {**written, "metadata": metadata}
