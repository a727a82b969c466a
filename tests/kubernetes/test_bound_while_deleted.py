"""A real API server accepts a Binding of a pod that it takes away at the same moment: its audit log is not held against anybody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.intervals import Intervals, entries_of
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import KubernetesError, NotFoundError
from reconciler.kubernetes.objects.resource import NODES, PODS
from tests.kubernetes.sessions import REAL, a_namespace, a_pod, gone_afterwards, session

pytestmark = REAL

NODE = "bound-while-deleted"
TRIES = 100
"""About half of them are bound and gone, or a few where the server takes longer over one of the two."""
TRIES_MAX = 1_000
ENOUGH = 5
APART_S = 0.001
"""A request of these takes several times as long."""


def test_a_pod_that_is_deleted_while_it_is_bound_holds_nothing(cluster: Cluster) -> None:
    async def story() -> tuple[str, int]:
        async with session(cluster) as api:
            space, chance = await a_namespace(api), Random(1)
            await api.create(NODES.path(), {"metadata": {"name": NODE}})
            async with gone_afterwards(api, NODES.path("", NODE)):
                gone = tried = 0
                while tried < TRIES or (gone < ENOUGH and tried < TRIES_MAX):
                    gone += await _is_bound_and_gone(api, space, f"p{tried}", chance)
                    tried += 1
            return space, gone

    space, gone = asyncio.run(story())
    assert gone >= ENOUGH, "too seldom to show anything"
    assert _judged(cluster.audit_log, space) == []


async def _is_bound_and_gone(api: Api, space: str, name: str, chance: Random) -> bool:
    """One pod on the same GPU as all others; it is gone in the end, at once or because it was asked once more."""
    path = PODS.path(space, name)
    made = (await api.create(PODS.path(space), a_pod(name)))["metadata"]

    async def bound() -> None:
        await asyncio.sleep(chance.random() * APART_S)
        await api.create(f"{path}/binding", _binding(made))

    async def deleted() -> None:
        await asyncio.sleep(chance.random() * APART_S)
        await api.delete(path)

    binding, deletion = await asyncio.gather(bound(), deleted(), return_exceptions=True)
    assert deletion is None
    try:
        await api.delete(path, {"gracePeriodSeconds": 0})
    except NotFoundError:
        return not isinstance(binding, KubernetesError)
    return False


def _binding(pod: dict[str, Any]) -> dict[str, Any]:
    known = {key: pod[key] for key in ("name", "uid", "resourceVersion")}
    notes = {"quorate.dev/devices": f"{NODE}/0", "quorate.dev/epoch": "1"}
    return {"metadata": {**known, "annotations": notes}, "target": {"kind": "Node", "name": NODE}}


def _judged(log: Path, space: str) -> list[str]:
    """Of what was done in this namespace, and to nodes."""
    with log.open() as lines:
        entries = [entry for entry in entries_of(lines) if entry["objectRef"].get("namespace", space) == space]
    return [one.what for one in Intervals().judged(entries)]
