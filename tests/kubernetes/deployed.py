"""Quorate's own Deployment without containers: its pods are processes, started, replaced and ended as a rolling update does.

Imitated are the controllers of Deployments, Jobs and namespaces, and the kubelet of the pods, with `kubectl exec`. Real are the
objects, the API server that takes them, and the program with the arguments and the environment that its pod has.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from hack.kubernetes.cluster import Cluster
from hack.ports import HOST, free_ports
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects.resource import NODES, PODS, Resource
from tests.e2e.first_steps import ROOT
from tests.kubernetes.executed import Door, executing
from tests.kubernetes.sessions import NAMESPACES

DEPLOYMENTS = Resource("apps/v1", "deployments")
JOBS = Resource("batch/v1", "jobs")
LOOK_EVERY_S = 0.1
NODE = "system"
"""Where the pods of the Deployment are: a node without GPUs."""
GOES_ON_S = 120.0


@dataclass
class ProcessPod:
    """`arguments`: of quorate; `url`: where it listens."""

    name: str
    arguments: list[str]
    environment: dict[str, str]
    folder: Path
    """Where its version of the program is."""
    url: str
    log: Path
    process: Process | None = None

    async def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = await self.run(self.arguments, stdout=log, stderr=log)

    async def run(self, arguments: list[str], **streams: Any) -> Process:
        """A command of its own in the container: `quorate`, whatever else it is called with."""
        program = (sys.executable, "-m", "reconciler.cli.main")
        return await create_subprocess_exec(*program, *arguments, cwd=self.folder, env=self.environment, **streams)

    async def until_ready(self) -> None:
        """As its readiness probe says."""
        async with asyncio.timeout(GOES_ON_S), aiohttp.ClientSession() as session:
            while True:
                assert self.process
                assert self.process.returncode is None, self.log.read_text()
                with suppress(aiohttp.ClientError):
                    async with session.get(f"{self.url}/readyz") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(LOOK_EVERY_S)

    async def end(self) -> None:
        """As a kubelet ends it; it has to go by itself."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(GOES_ON_S):
            assert await self.process.wait() == 0, self.log.read_text()


@dataclass
class Deployed:
    """`kubeconfig`: what its pods are given in place of their account's token. `repository`: what they follow in place of an
    address on the web; None: what they are told. `programs`: where each image's version of the program is; else it is this one.
    """

    api: Api
    namespace: str
    folder: Path
    kubeconfig: Path
    repository: Path | None = None
    programs: Mapping[str, Path] = field(default_factory=dict)
    pods: list[ProcessPod] = field(default_factory=list)
    _template: Any = None
    _made: int = 0

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Make the processes what the Deployment says, one after the other, and say so in its status."""
        found = (await self.api.get(DEPLOYMENTS.path(self.namespace), dict[str, Any]))["items"]
        if not found:
            self._template = None
            while self.pods:
                await self._end(self.pods[0])
            return
        (deployment,) = found
        wanted, template = deployment["spec"]["replicas"], deployment["spec"]["template"]
        before = [] if template == self._template else list(self.pods)
        self._template = template
        while before or len(self.pods) < wanted:
            await self._start(deployment["metadata"]["name"], template)
            if before:
                await self._end(before.pop(0))
        while len(self.pods) > wanted:
            await self._end(self.pods[0])
        count = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), wanted)
        status = {"observedGeneration": deployment["metadata"]["generation"], **count}
        if any(deployment["status"].get(key) != value for key, value in status.items()):
            path = DEPLOYMENTS.path(self.namespace, deployment["metadata"]["name"], "status")
            await self.api.patch(path, {"status": status})

    async def end(self) -> None:
        """After a test: no process stays behind."""
        for pod in self.pods:
            if pod.process and pod.process.returncode is None:
                pod.process.kill()
                await pod.process.wait()

    async def _start(self, deployment: str, template: dict[str, Any]) -> None:
        self._made += 1
        pod = self._pod_of(f"{deployment}-{self._made}", template["spec"]["containers"][0])
        body = {**template, "metadata": {**template["metadata"], "name": pod.name}}
        body["spec"] = {**template["spec"], "nodeName": NODE}
        await self.api.create(PODS.path(self.namespace), body)
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.api.patch(PODS.path(self.namespace, pod.name, "status"), {"status": running})
        self.pods.append(pod)
        await pod.start()
        await pod.until_ready()

    async def _end(self, pod: ProcessPod) -> None:
        await pod.end()
        self.pods.remove(pod)
        await self.api.delete(PODS.path(self.namespace, pod.name), {"gracePeriodSeconds": 0})

    def _pod_of(self, name: str, container: dict[str, Any]) -> ProcessPod:
        home = self.folder / name
        home.mkdir()
        said = {each["name"]: each.get("value", "") for each in container["env"]}
        if self.repository:
            said["POLICIES_REPO"] = str(self.repository)
        said |= {"QUORATE_STATE": str(home / "state"), "HOME": str(home), "KUBECONFIG": str(self.kubeconfig)}
        (port,) = free_ports(1)
        arguments = [written(argument, said) for argument in container["args"] if not argument.startswith("--listen=")]
        arguments += [f"--listen={HOST}:{port}", f"--identity={name}-1"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("QUORATE_")} | said
        program, url = self.programs.get(container["image"], ROOT), f"http://{HOST}:{port}"
        environment["QUORATE_SERVER"] = url  # what is run inside asks there: every pod has the usual port for itself
        return ProcessPod(name, arguments, environment, program, url, self.folder / f"{name}.log")


def written(argument: str, environment: Mapping[str, str]) -> str:
    """With the variables that it refers to."""
    for name, value in environment.items():
        argument = argument.replace(f"$({name})", value)
    return argument


class Inside(Door):
    """`kubectl exec POD -- quorate ...` is run with the environment of that pod's process."""

    def __init__(self, deployed: Deployed) -> None:
        super().__init__()
        self._deployed = deployed

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        channels = await self.opened(request)
        (pod,) = (each for each in self._deployed.pods if each.name == request.match_info["pod"])
        program, *arguments = request.query.getall("command")
        assert program == "quorate"
        run = await pod.run(arguments, stdout=PIPE, stderr=STDOUT)
        said, _ = await run.communicate()
        await channels.send_bytes(b"\x01" + said)
        causes = {"causes": [{"reason": "ExitCode", "message": str(run.returncode)}]}
        failed = {"status": "Failure", "reason": "NonZeroExitCode", "message": "it failed", "details": causes}
        await channels.send_bytes(b"\x03" + json.dumps(failed if run.returncode else {"status": "Success"}).encode())
        await channels.close()
        return channels


async def jobs_pods(api: Api, namespace: str) -> None:
    """Each Job of the namespace gets its pods, as its controller makes them; until cancelled."""
    while True:
        for job in (await api.get(JOBS.path(namespace), dict[str, Any]))["items"]:
            known = job["metadata"]
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": known["name"], "uid": known["uid"]}
            template = job["spec"]["template"]
            for index in range(job["spec"]["parallelism"]):
                labels = {
                    **template["metadata"]["labels"],
                    "batch.kubernetes.io/job-name": known["name"],
                    "batch.kubernetes.io/job-completion-index": str(index),
                }
                metadata = {
                    "name": f"{known['name']}-{index}",
                    "labels": labels,
                    "ownerReferences": [{**owner, "controller": True}],
                }
                with suppress(ConflictError):
                    await api.create(PODS.path(namespace), {**template, "metadata": metadata})
        await asyncio.sleep(LOOK_EVERY_S)


async def namespaces_end(api: Api) -> None:
    """Namespaces that are deleted go, once their pods have; until cancelled."""
    while True:
        for space in (await api.get(NAMESPACES.path(), dict[str, Any]))["items"]:
            name = space["metadata"]["name"]
            if "deletionTimestamp" in space["metadata"]:
                pods = (await api.get(PODS.path(name), dict[str, Any]))["items"]
                if not pods:
                    with suppress(NotFoundError, ConflictError):
                        emptied = {**space, "spec": {"finalizers": []}}
                        await api.replace(NAMESPACES.path("", name, "finalize"), emptied)
        await asyncio.sleep(LOOK_EVERY_S)


@asynccontextmanager
async def controlled(cluster: Cluster, deployed: Deployed) -> AsyncIterator[None]:
    """All of it goes on within the block."""
    api = deployed.api
    await api.create(NODES.path(), {"metadata": {"name": NODE}})
    try:
        async with executing(cluster, api, NODE, Inside(deployed)), asyncio.TaskGroup() as work:
            loops = (deployed.keep(), jobs_pods(api, "default"), namespaces_end(api))
            tasks = [work.create_task(loop) for loop in loops]
            yield
            for task in tasks:
                task.cancel()
    finally:
        await deployed.end()
