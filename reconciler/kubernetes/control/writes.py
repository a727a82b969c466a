"""A session that knows the newest of its own writes to pods, so that nothing is decided on an older view."""

from __future__ import annotations

from typing import Any

from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.objects.resource import PODS


class PodWrites(Api):
    """An Api; `newest` is the highest resourceVersion that a patch of a pod was answered with.

    resourceVersions of one kind may be compared as numbers (KEP-5504), and a watch tells changes in their order.
    """

    newest = 0

    async def patch(self, path: str, body: object, check: Check | None = None, **more: Any) -> dict[str, Any]:
        """As Api does."""
        answer = await super().patch(path, body, check, **more)
        if f"/{PODS.plural}/" in path:
            self.newest = max(self.newest, int(answer["metadata"]["resourceVersion"]))
        return answer
