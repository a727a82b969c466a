"""Observe mode needs the rights to read that are shipped for it, and no others."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

from hack.kubernetes.audited import compared, rights_of, used_by
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import base_objects
from reconciler.kubernetes.objects.resource import PODS, Resource
from tests.e2e.control_plane import ControlPlane, until
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, gpu_nodes

POLICY = QUEUES

pytestmark = REAL

OBSERVER = "observer"
BINDINGS = Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings")


def test_it_decides_rounds_and_writes_nothing(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "seen"):
            await api.create(BINDINGS.path(), _binding())
            space = await a_namespace(api)
            await api.create(PODS.path(space), a_worker("one", "single", 1))
            kubeconfig = shipped.kubeconfig(OBSERVER)
            await asyncio.to_thread(plane.start, "--kubernetes", "--observe", "--kubeconfig", str(kubeconfig))
            await asyncio.to_thread(_has_planned, plane)
            assert await asyncio.to_thread(plane.signal, signal.SIGTERM) == 0
            assert "nodeName" not in (await api.get(PODS.path(space, "one"), dict[str, Any]))["spec"]
            await api.delete(PODS.path(space, "one"))

    asyncio.run(story())
    log = shipped.audit_log.read_text().splitlines()
    used = used_by(log, OBSERVER)
    assert {right.verb for right in used} <= {"get", "list", "watch"}
    assert compared(rights_of([*base_objects(), _binding()], OBSERVER), used).missing == ()
    asked = [event for event in map(json.loads, log) if event["user"]["username"] == OBSERVER]
    assert [event["requestURI"] for event in asked if event["responseStatus"]["code"] in (401, 403)] == []


def _binding() -> dict[str, Any]:
    """What the observe overlay leaves: the role to read. For somebody else here, so that the log tells the two apart."""
    group = "rbac.authorization.k8s.io"
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": OBSERVER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "quorate-read"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": OBSERVER}],
    }


def _has_planned(plane: ControlPlane) -> None:
    with plane.client() as client:
        until("a round was decided", lambda: len(client.rounds().items) > 0)
