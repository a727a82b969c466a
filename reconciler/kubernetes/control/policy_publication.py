"""Shows the policy in force in its cluster: once for each revision, and for each time that this process begins to lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.documents.clusters import chosen, clusters_of
from reconciler.gitops.source.errors import GitSourceError
from reconciler.gitops.source.tree import Revision
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.client.pace import Sleep
from reconciler.kubernetes.client.refusals import KubernetesError
from reconciler.kubernetes.status.policy_mirror import PolicyMirror
from reconciler.kubernetes.status.policy_parts import Copy, PolicyRevision, copy_of
from reconciler.protocols.ledger import NotLeaderError

LOOK_EVERY_S = 2.0
"""How often it is looked whether there is another revision, or an attempt that failed is made again."""


class PolicyPublication:
    """`read`: what a revision says, from Git; called off the event loop. `cluster`: whose policy, where there are several."""

    def __init__(
        self,
        policies: PolicySource,
        read: Callable[[str], Revision],
        cluster: str | None,
        namespace: str,
        log: FilteringBoundLogger,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._policies = policies
        self._read = read
        self._cluster = cluster
        self._namespace = namespace
        self._log = log
        self._sleep = sleep
        self._shown: tuple[dict[str, str], str] | None = None
        self._said = ""

    async def run(self, api: Api, leading: LeaderSource) -> None:
        """For ever. What can't be read or written is told once, and tried again: rounds do not depend on it."""
        mirror = PolicyMirror(api, self._namespace, leading)
        while True:
            try:
                await self._look(mirror, leading)
            except (NoPolicyError, NotLeaderError):
                pass  # nothing to show yet, or another process shows it
            except (KubernetesError, GitSourceError) as error:
                self._tell(str(error))
            await self._sleep(LOOK_EVERY_S)

    async def _look(self, mirror: PolicyMirror, leading: LeaderSource) -> None:
        revision = self._policies.current().revision
        showing = leading.leadership().stamp, revision
        if showing != self._shown:
            await mirror.show(await asyncio.to_thread(self._copy, revision))
            self._shown, self._said = showing, ""

    def _copy(self, revision: str) -> Copy:
        found = self._read(revision)
        return copy_of(PolicyRevision(found.commit, chosen(clusters_of(found.files), self._cluster), found.files))

    def _tell(self, message: str) -> None:
        if message != self._said:
            self._said = message
            self._log.warning("policy-not-shown", message=message)
