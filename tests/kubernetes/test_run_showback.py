"""Showback of pods: a real `quorate run --kubernetes` is killed and begun again while pods of two queues run, leave and end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import ACCOUNT, GROUPS
from reconciler.access.token_file import read_token
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.control_plane import QUORATE, ControlPlane, until
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_run import gpu_nodes, running, until_bound
from tests.kubernetes.test_run_eviction import POLICY as QUEUES
from tests.kubernetes.test_run_eviction import a_gang_of, until_gone

POLICY = QUEUES
GPUS = 4
pytestmark = REAL


async def succeed(api: Api, space: str, *pods: str) -> None:
    """As a kubelet says it."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    ended: dict[str, Any] = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    container = {"name": "main", "ready": False, "restartCount": 0, "image": "x", "imageID": "x"}
    said = {"phase": "Succeeded", "containerStatuses": [{**container, "state": {"terminated": ended}}]}
    for pod in pods:
        await api.patch(PODS.path(space, pod, "status"), {"status": said})


def quorate(plane: ControlPlane, *arguments: str) -> dict[str, Any]:
    known = {"QUORATE_SERVER": plane.logged("listening")[-1]["url"], "QUORATE_TOKEN": read_token(plane.folder.token)}
    asked = [sys.executable, *QUORATE, *arguments, "-o", "json"]
    done = subprocess.run(asked, env=os.environ | known, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def adds_up(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each GPU is in one state all the time, and what was allocated is in the rows: these by name."""
    (kind,) = [row for row in found["capacity"] if Decimal(row["capacity"])]
    states = ("allocated", "idle", "reserved", "unhealthy", "partitioning")
    assert sum(Decimal(kind[state]) for state in states) == Decimal(kind["capacity"])
    assert sum(Decimal(row["allocated"]) for row in found["rows"]) == Decimal(kind["allocated"])
    assert found["overheld"] == "0"
    return {row["name"]: row for row in found["rows"]}


def test_what_pods_of_two_queues_held_adds_up(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "shown"), running(plane, shipped):
            space = await a_namespace(api)
            await a_gang_of(api, space, "borrower")
            await until_bound(api, space, 2)
            await asyncio.to_thread(plane.signal, signal.SIGKILL)
            kubeconfig = shipped.kubeconfig(ACCOUNT, GROUPS)
            await asyncio.to_thread(plane.start, "--kubernetes", "--kubeconfig", str(kubeconfig))
            await a_gang_of(api, space, "owner")
            await until_gone(api, space)
            await succeed(api, space, "owner-0", "owner-1")
            await asyncio.to_thread(told, plane, space)
            for pod in ("owner-0", "owner-1"):
                await api.delete(PODS.path(space, pod), {"gracePeriodSeconds": 0})

    asyncio.run(story())


def told(plane: ControlPlane, space: str) -> None:
    borrower, owner = f"{space}.gang.borrower", f"{space}.gang.owner"

    def states() -> dict[str, str]:
        return {each["name"]: each["state"] for each in quorate(plane, "history", "jobs")["items"]}

    until("both are on record as ended", lambda: states() == {borrower: "failed", owner: "succeeded"})
    by_queue = adds_up(quorate(plane, "showback", "--by", "queue"))
    assert by_queue.keys() == {"borrower", "owner"}
    lost = by_queue["borrower"]
    assert Decimal(lost["lostToEvictions"]) == Decimal(lost["allocated"]) > 0
    assert by_queue["owner"]["lostToEvictions"] == by_queue["owner"]["lostToFailures"] == "0"
    by_job = adds_up(quorate(plane, "showback", "--by", "job"))
    assert by_job[borrower]["allocated"] == lost["allocated"], "what is over does not change"
    assert Decimal(by_job[owner]["allocated"]) == Decimal(by_queue["owner"]["allocated"])
    with plane.client() as client:
        spans = [span for row in client.past.timeline().rows for span in row.spans]
        assert {(span.job, span.ended, span.gpus) for span in spans} == {
            (borrower, "evicted", 2_000),
            (owner, "succeeded", 2_000),
        }
        assert {span.beneficiary for span in spans if span.ended == "evicted"} == {owner}
