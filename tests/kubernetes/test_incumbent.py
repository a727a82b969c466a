"""Beside a scheduler that decides: what would have been done is said, what happened is recorded, and nothing is written."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.kubernetes.cluster import Cluster
from reconciler.analysis.backtest.past import read_recorded
from reconciler.cli.exits import ExitCode
from reconciler.cli.main import run
from reconciler.documents.snapshot import read_snapshot
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.installing import DEPLOY, granted
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, audited, session
from tests.kubernetes.test_run import gpu_nodes

pytestmark = REAL

HEAD = "apiVersion: quorate.dev/v1\nkind: {}\nmetadata: {{name: {}}}\nspec: {}\n"
QUOTA = "{{quota: [{{gpuType: H100-SXM5-80GB, guaranteed: {}}}]}}"
POLICY = {
    "policies/owner.yaml": HEAD.format("Queue", "owner", QUOTA.format(4)),
    "policies/guest.yaml": HEAD.format("Queue", "guest", QUOTA.format(0)),
    # So that a job may be evicted as soon as it runs.
    "policies/brief.yaml": HEAD.format("PriorityClass", "brief", "{value: 0, protection: {minRuntime: 0s}}"),
    "policies/scheduling.yaml": HEAD.format("SchedulingPolicy", "scheduling", "{defaultPriorityClass: brief}"),
}
USER = "observer"
OURS = {"tests": "incumbent"}
"""The label of the node that these jobs may be on."""
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@asynccontextmanager
async def observing(plane: ControlPlane, cluster: Cluster, api: Api) -> AsyncIterator[None]:
    """With the rights that are shipped for it."""
    role, _ = yaml.safe_load_all((DEPLOY / "rights-read.yaml").read_text())
    await granted(api, USER, role["rules"])
    kubeconfig = str(cluster.kubeconfig(USER))
    options = ("--kubernetes", "--observe", "--observed-queue", "guest", "--kubeconfig", kubeconfig)
    await asyncio.to_thread(plane.start, *options)
    yield
    assert await asyncio.to_thread(plane.signal, signal.SIGTERM) == 0


class Incumbent:
    """Starts pods where it is told to, and preempts them, as kube-scheduler does."""

    def __init__(self, api: Api, space: str, plane: ControlPlane) -> None:
        self.api, self.space, self.plane = api, space, plane

    def job(self, name: str) -> JobName:
        return JobName(f"{self.space}.pod.{name}")

    async def submit(self, name: str, gpus: int, queue: str = "") -> None:
        requests = {names.GPU: str(gpus), "cpu": "1", "memory": "1Gi"}
        container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
        labels = {names.KUEUE_QUEUE: queue} if queue else {}
        # Other tests of this server leave nodes with GPUs behind.
        spec = {"containers": [container], "nodeSelector": OURS}
        await self.api.create(PODS.path(self.space), {"metadata": {"name": name, "labels": labels}, "spec": spec})

    async def start(self, name: str, node: str) -> None:
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        await self.api.create(PODS.path(self.space, name, "binding"), target)
        await self.until(name, "running")

    async def preempt(self, name: str) -> None:
        pod = await self.api.get(PODS.path(self.space, name), dict[str, Any])
        conditions = [*pod["status"]["conditions"], PREEMPTED]
        await self.api.patch(PODS.path(self.space, name, "status"), {"status": {"conditions": conditions}})
        # Once what came later is known, a look has shown the condition too.
        await self.submit("later", 64)
        await self.until("later", "queued")
        await self.api.delete(PODS.path(self.space, name), {"gracePeriodSeconds": 0})

    async def succeed(self, name: str) -> None:
        await self.api.patch(PODS.path(self.space, name, "status"), {"status": {"phase": "Succeeded"}})

    async def until(self, name: str, state: str) -> None:
        async with asyncio.timeout(SOON_S):
            while (await asyncio.to_thread(self._states)).get(self.job(name)) != state:
                await asyncio.sleep(0.05)

    async def until_said(self, event: str, name: str) -> None:
        try:
            async with asyncio.timeout(SOON_S):
                while self.job(name) not in {line["subject"] for line in self.plane.logged(event)}:
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise AssertionError(f"{event} of {name} was not said; {await asyncio.to_thread(self._told)}") from error

    def _told(self) -> str:
        """What is said of all jobs, where a test ends without what it waits for."""
        with self.plane.client() as client:
            said = [f"{view.name} {view.state}: {client.why(view.name).words}" for view in client.jobs().items]
        return "\n".join(said)

    def _states(self) -> dict[JobName, str]:
        with self.plane.client() as client:
            return {view.name: view.state for view in client.jobs().items}


def test_beside_an_incumbent(
    cluster: Cluster, plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "observed") as (node,), observing(plane, cluster, api):
            await api.patch(NODES.path("", node), {"metadata": {"labels": OURS}})
            there = Incumbent(api, await a_namespace(api), plane)
            await there.submit("guest", 4)
            await there.until_said("would-start", "guest")
            await there.start("guest", node)
            await there.submit("owner", 4, "owner")
            await there.until_said("would-evict", "guest")
            await asyncio.to_thread(_can_be_asked, there)
            await there.preempt("guest")
            await there.start("owner", node)
            await there.succeed("owner")
            async with asyncio.timeout(SOON_S):
                while there.job("owner") in await asyncio.to_thread(there._states):
                    await asyncio.sleep(0.05)
            said = [event.kind for event in plane.events(there.job("guest"))]
            assert said == ["would-start", "would-evict"]

    asyncio.run(story())
    _was_recorded(plane)
    _wrote_nothing(cluster)
    _can_be_compared(plane, tmp_path, capsys)


def _can_be_asked(there: Incumbent) -> None:
    with there.plane.client() as client:
        assert client.why(there.job("owner")).words
        assert client.rounds().items


def _was_recorded(plane: ControlPlane) -> None:
    _, jobs = read_recorded(plane.folder.observed)
    of = {job.name.rpartition(".")[2]: job for job in jobs}
    assert (of["guest"].spec.queue, of["owner"].spec.queue) == ("guest", "owner")
    assert [attempt.stopped_for for attempt in of["guest"].attempts] == ["evict"]
    (attempt,) = of["owner"].attempts
    assert attempt.ended_at == of["owner"].ended_at
    assert of["owner"].ended_as == "succeeded"
    assert (of["later"].attempts, of["later"].ended_at) == ((), None)
    snapshot = read_snapshot(plane.folder.observed_nodes.read_bytes(), "observed-snapshot.json")
    assert ("observed0", 4) in [(node.name, len(node.gpus)) for node in snapshot.nodes]


def _wrote_nothing(cluster: Cluster) -> None:
    asked = [event for event in audited(cluster) if event["user"].get("username") == USER]
    assert {event["verb"] for event in asked} == {"list", "watch"}
    assert "leases" not in {event["objectRef"]["resource"] for event in asked}


def _can_be_compared(plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--history", str(plane.folder.observed), "--snapshot", str(plane.folder.observed_nodes)]
    policy = ["--repo", str(plane.folder.mirror), "--revision", "refs/quorate/applied", "--greedy"]
    policy += ["--html", str(tmp_path / "day.html")]
    assert run(["simulate", *files, *policy, "--as-it-was"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "as it was" in out
    (evictions,) = [line.split() for line in out.splitlines() if line.startswith("guest, recorded: evictions")]
    assert evictions[3:] == ["1", "0", "(-1)"]
    assert "as it was" in (tmp_path / "day.html").read_text()
