"""An earlier version of Quorate is replaced by this one and comes back, on a real API server, while gangs arrive and end.

Both are what their commits have in deploy/kubernetes, applied by kubectl; the Deployment's pods are processes (deployed.py).
"""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import ComponentMissingError, found, place
from hack.kubernetes.intervals import Intervals, entries_of
from hack.kubernetes.shipped import ACCOUNT, GROUPS, NAMESPACE
from hack.release.version import version
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import LEASE
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import LEASES, PODS
from tests.e2e.first_steps import ROOT
from tests.kubernetes.deployed import LOOK_EVERY_S, Deployed, controlled
from tests.kubernetes.sessions import ADMINS, REAL, a_namespace, audited, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, gpu_nodes
from tests.reconciler.gitops.source.origin import Origin

pytestmark = [*REAL, pytest.mark.long]

POLICY = {"policies/queues.yaml": QUEUES["policies/queues.yaml"].replace("guaranteed: 8", "guaranteed: 16")}
EARLIER = "1ca9bf16"
"""Of the day before; what pods are remembered by has changed since."""
PARTS = ("quorate", "solver", "reconciler", "schemas", "policies", "cluster-state", "deploy")
IMAGE, EARLIER_IMAGE = f"quorate:{version()}", "quorate:0.0.9"
STAY = 2
"""Gangs that are there from the first version to the last."""
EACH = 8
"""Gangs that start under each leader, at least."""
PATIENCE_S = 180.0


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The program of that commit."""
    if subprocess.run(["git", "cat-file", "-e", EARLIER], cwd=ROOT, check=False, capture_output=True).returncode:
        pytest.skip(f"commit {EARLIER} is not in this clone")
    packed = subprocess.run(["git", "archive", EARLIER, *PARTS], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tmp_path / "earlier", filter="data")
    return tmp_path / "earlier"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    with running(found(place()), tmp_path / "cluster") as cluster:
        yield cluster


@dataclass
class Load:
    """Gangs of two, one after the other, each of which ends as soon as all of it runs; some stay."""

    api: Api
    space: str
    made: int = 0
    ended: set[str] = field(default_factory=set)

    async def comes(self) -> None:
        """Until cancelled; as many wait as have room."""
        while True:
            if self.made - len(self.ended) < STAY + 4:
                for index in range(2):
                    await self.api.create(PODS.path(self.space), a_worker(f"g{self.made}-{index}", f"g{self.made}", 2))
                self.made += 1
            await self._end()
            await asyncio.sleep(LOOK_EVERY_S)

    async def all_end(self) -> None:
        """Nothing more comes: what is there has room."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.ended) < self.made - STAY:
                await self._end()
                await asyncio.sleep(LOOK_EVERY_S)

    async def until_more_ended(self) -> None:
        before = len(self.ended)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.ended) < before + EACH:
                await asyncio.sleep(LOOK_EVERY_S)

    async def _end(self) -> None:
        running: dict[str, list[str]] = {}
        for pod in (await self.api.get(PODS.path(self.space), dict[str, Any]))["items"]:
            if pod["status"].get("phase") == "Running":
                running.setdefault(pod["metadata"]["annotations"][names.GANG], []).append(pod["metadata"]["name"])
        for gang, pods in running.items():
            if len(pods) == 2 and int(gang[1:]) >= STAY:
                for name in pods:
                    path = PODS.path(self.space, name, "status")
                    await self.api.patch(path, {"status": {"phase": "Succeeded"}})
                self.ended.add(gang)


@dataclass
class Site:
    cluster: Cluster
    deployed: Deployed
    kubectl: Path

    async def apply(self, folder: Path, image: str) -> None:
        """What a version has in deploy/kubernetes, with its image; returns when the rollout has ended."""
        shown = await self._kubectl("kustomize", str(folder / "deploy" / "kubernetes"))
        await self._kubectl("apply", "-f", "-", said=shown.replace(f"image: {IMAGE}", f"image: {image}"))
        await self._kubectl("-n", NAMESPACE, "rollout", "status", "deployment/quorate")

    async def leader(self) -> tuple[str, int]:
        """The pod that leads, and its epoch; waits for one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                spec = (await self.deployed.api.get(LEASES.path(NAMESPACE, LEASE), dict[str, Any]))["spec"]
                if holder := spec.get("holderIdentity"):
                    return str(holder).rpartition("-")[0], int(spec["leaseTransitions"])
                await asyncio.sleep(LOOK_EVERY_S)

    async def _kubectl(self, *arguments: str, said: str = "") -> str:
        command = [str(self.kubectl), "--kubeconfig", str(self.cluster.kubeconfig("admin", ADMINS)), *arguments]
        run = asyncio.to_thread(subprocess.run, command, input=said, capture_output=True, text=True, check=False)
        ran = await run
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def test_an_upgrade_and_the_way_back_bind_each_pod_once_and_move_none(
    empty: Cluster, earlier: Path, tmp_path: Path
) -> None:
    try:
        kubectl = found(place(), ("kubectl",)).path("kubectl")
    except ComponentMissingError as error:
        pytest.skip(str(error))
    origin = Origin(tmp_path / "policy")
    origin.commit(POLICY)
    (tmp_path / "pods").mkdir()
    kubeconfig = Path(shutil.copy(empty.kubeconfig(ACCOUNT, GROUPS), tmp_path / "account"))

    async def story() -> None:
        async with session(empty) as api, gpu_nodes(api, 4, "upgrade"):
            programs = {EARLIER_IMAGE: earlier}
            deployed = Deployed(api, NAMESPACE, tmp_path / "pods", kubeconfig, origin.folder, programs)
            site, load = Site(empty, deployed, kubectl), Load(api, await a_namespace(api))
            async with controlled(empty, deployed):
                await upgraded_and_taken_back(site, load, earlier)
                there = (await api.get(PODS.path(load.space), dict[str, Any]))["items"]
                judged(empty, load, there)

    asyncio.run(story())


async def upgraded_and_taken_back(site: Site, load: Load, earlier: Path) -> None:
    """Gangs come all the while; those that stay are where they were, as they were."""
    await site.apply(earlier, EARLIER_IMAGE)
    comes = asyncio.create_task(load.comes())
    epochs = []
    for folder, image in ((earlier, EARLIER_IMAGE), (ROOT, IMAGE), (earlier, EARLIER_IMAGE)):
        await site.apply(folder, image)
        pod, epoch = await site.leader()
        assert {each.name: each.folder for each in site.deployed.pods}[pod] == folder
        epochs.append(epoch)
        await load.until_more_ended()
    assert epochs == sorted(set(epochs))
    comes.cancel()
    await load.all_end()


def judged(cluster: Cluster, load: Load, pods: list[dict[str, Any]]) -> None:
    """By the API server's own record."""
    stays = {f"g{gang}-{index}" for gang in range(STAY) for index in range(2)}
    assert {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods} == {
        f"g{gang}-{index}": "Running" if f"g{gang}-{index}" in stays else "Succeeded"
        for gang in range(load.made)
        for index in range(2)
    }
    assert {pod["metadata"]["annotations"][names.ATTEMPT] for pod in pods} == {"1"}
    with cluster.audit_log.open() as log:
        assert Intervals().judged(entries_of(log)) == ()
    of_load = [each for each in audited(cluster) if each.get("objectRef", {}).get("namespace") == load.space]
    accepted = [each for each in of_load if each["responseStatus"].get("code", 0) < 300]
    by_quorate = [each for each in accepted if each["user"]["username"] == ACCOUNT]
    deeds = Counter((each["verb"], each["objectRef"].get("subresource", "")) for each in by_quorate)
    assert deeds["create", "binding"] == len(pods)
    assert deeds["create", "eviction"] == deeds["delete", ""] == 0
