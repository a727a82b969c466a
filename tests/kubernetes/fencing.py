"""The fence in a test's cluster, and who the users are that it tells apart."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import ACCOUNT, GROUPS
from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.refusals import NotFoundError, RefusedError
from reconciler.backends.kubernetes.resource import PODS
from tests.kubernetes.sessions import SOON_S, session


def as_quorate(cluster: Cluster) -> AbstractAsyncContextManager[Api]:
    """As the service account that is shipped, with the rights it was given there and no others."""
    return session(cluster, ACCOUNT, GROUPS)


async def until_in_force(cluster: Cluster) -> None:
    """The API server looks at new policies about once a second."""
    async with session(cluster) as api, as_quorate(cluster) as quorate, asyncio.timeout(SOON_S):
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
