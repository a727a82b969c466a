"""Keeps what the policy in force says of namespaces where the API server's admission policy reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.client.pace import Sleep
from reconciler.kubernetes.client.refusals import KubernetesError, NotFoundError
from reconciler.kubernetes.objects.queue_names import LocalQueue
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.status.namespace_parameters import TooManyNamespacesError, parameters_of
from reconciler.protocols.ledger import NotLeaderError

CONFIG_MAPS: Final = Resource("v1", "configmaps")
NAME: Final = "quorate-policy-namespaces"
"""Named by the binding in deploy/kubernetes/namespaces.yaml."""
LOOK_EVERY_S: Final = 2.0
"""How long a change of the policy, or of what others wrote there, may be unseen."""

Data = dict[str, str]


class _ConfigMap(msgspec.Struct, frozen=True):
    data: Data = {}


class NamespacePublication:
    """Writes one ConfigMap of Quorate's own namespace, by the leader alone. `local_queues`: those that there are, sorted."""

    def __init__(
        self,
        policies: PolicySource,
        local_queues: Callable[[], tuple[LocalQueue, ...]],
        namespace: str,
        log: FilteringBoundLogger,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._policies = policies
        self._local_queues = local_queues
        self._namespace = namespace
        self._log = log
        self._sleep = sleep
        self._rendered: tuple[str, tuple[LocalQueue, ...], Data | None] | None = None
        self._gone_in: dict[str, str] = {}
        """In which leadership there is none, and is to be none."""
        self._said = ""

    async def run(self, api: Api, leading: LeaderSource) -> None:
        """For ever. What can't be read or written is told once, and tried again: rounds keep the same rules themselves."""
        while True:
            try:
                await self._look(api, leading)
            except (NoPolicyError, NotLeaderError):
                pass  # nothing to keep yet, or another process keeps it
            except KubernetesError as error:
                self._tell(str(error))
            await self._sleep(LOOK_EVERY_S)

    async def _look(self, api: Api, leading: LeaderSource) -> None:
        stamp, wanted = leading.leadership().stamp, self._wanted()
        if wanted is None and self._gone_in == stamp:
            return
        self._gone_in = {}
        path = CONFIG_MAPS.path(self._namespace, NAME)
        try:
            found = (await api.get(path, _ConfigMap)).data
        except NotFoundError:
            found = None
        if wanted is None:
            if found is not None:
                leading.leadership()
                await api.delete(path)
            self._gone_in = stamp
        elif found is None:
            await api.create(CONFIG_MAPS.path(self._namespace), _written(wanted, leading.leadership().stamp))
        elif found != wanted:
            gone: dict[str, Any] = dict.fromkeys(found.keys() - wanted.keys())
            await api.patch(path, _written(gone | wanted, leading.leadership().stamp))

    def _wanted(self) -> Data | None:
        """Of what does not fit nothing is written: to the admission policy namespaces are all alike then."""
        in_force, local = self._policies.current(), self._local_queues()
        if self._rendered is None or self._rendered[:2] != (in_force.revision, local):
            try:
                data, message = parameters_of(in_force.policy, local), ""
            except TooManyNamespacesError as error:
                data, message = None, f"{error}: only rounds keep these rules"
            self._rendered = in_force.revision, local, data
            self._tell(message)
        return self._rendered[2]

    def _tell(self, message: str) -> None:
        if message != self._said:
            self._said = message
            if message:
                self._log.warning("namespaces-not-shown", message=message)


def _written(data: dict[str, Any], stamp: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": NAME, "labels": {"app.kubernetes.io/name": "quorate"}, "annotations": stamp}
    return {"metadata": metadata, "data": data}
