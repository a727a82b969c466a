"""The fence in a test's cluster, and who the users are that it tells apart."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from hack.kubernetes.cluster import Cluster
from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.leader import NAMESPACE
from reconciler.backends.kubernetes.refusals import NotFoundError, RefusedError
from reconciler.backends.kubernetes.resource import LEASES, PODS
from tests.kubernetes.sessions import ADMINS, NAMESPACES, SOON_S, session

FENCE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "fence.yaml"
QUORATE = "system:serviceaccount:quorate-system:quorate"
"""With an administrator's rights: what is tested here is the fence, not RBAC."""


def as_quorate(cluster: Cluster) -> AbstractAsyncContextManager[Api]:
    return session(cluster, QUORATE, ADMINS)


def policies() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FENCE.read_text()))


async def install(cluster: Cluster) -> None:
    """Returns when all of it is in force: the API server looks at new policies about once a second."""
    async with session(cluster) as api:
        await api.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
        for policy in policies():
            plural = re.sub(r"y$", "ie", policy["kind"].lower()) + "s"
            await api.create(f"/apis/{policy['apiVersion']}/{plural}", policy)
        async with asyncio.timeout(SOON_S), as_quorate(cluster) as quorate:
            while not await _is_in_force(api, quorate):
                await asyncio.sleep(0.1)


async def _is_in_force(api: Api, quorate: Api) -> bool:
    """Each of the policies refuses something; nothing of that exists."""
    binding = {"metadata": {"name": "none"}, "target": {"kind": "Node", "name": "n1"}}
    pod = {
        "metadata": {"name": "none"},
        "spec": {"schedulerName": "quorate", "nodeName": "n", "containers": [CONTAINER]},
    }
    fenced = {**binding, "metadata": {"name": "none", "labels": {"quorate.dev/fenced": "true"}}}
    tries = (quorate, "none/binding", fenced), (quorate, "none/binding", binding), (api, "", pod)
    for who, what, body in tries:
        try:
            await who.create(f"{PODS.path('default', what.partition('/')[0])}{'/binding' if what else ''}", body)
        except NotFoundError:
            return False
        except RefusedError:
            continue
        return False
    return True


CONTAINER = {"name": "main", "image": "none"}
