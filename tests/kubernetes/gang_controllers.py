"""The controllers of others that make gangs, where they are built: JobSet, LeaderWorkerSet, Kubeflow Trainer, Ray, MPI.

Each runs as its makers ship it, with its own kinds and webhooks, beside Kubernetes' own controllers of Jobs and StatefulSets.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.kubernetes import guard
from hack.kubernetes.certificates import LOOPBACK, write_private
from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from hack.kubernetes.shipped import objects_in, path_of
from hack.ports import free_ports
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotFoundError, UnreachableError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS, Resource
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.controllers import CONTROLLERS, controllers_command
from tests.kubernetes.sessions import ADMINS, SOON_S, a_namespace, a_pod, session
from tests.kubernetes.shipping import install

JOBSET, LWS, TRAINER, RAY, MPI = "jobset", "lws", "trainer", "kuberay", "mpi-operator"
KINDS = ("job-controller", "statefulset-controller", "garbage-collector-controller")
_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/scheduling.yaml": _V1
    + "SchedulingPolicy\nmetadata: {name: cluster}\nspec: {startDeadline: 30s, evictions: {backOff: 1s}}\n",
    "policies/batch.yaml": _V1
    + "PriorityClass\nmetadata: {name: batch}\nspec: {value: 1, protection: {minRuntime: 0s}}\n",
    **{
        f"policies/{queue}.yaml": _V1 + f"Queue\nmetadata: {{name: {queue}}}\n"
        f"spec: {{quota: [{{gpuType: H100-SXM5-80GB, guaranteed: {guaranteed}}}]}}\n"
        for queue, guaranteed in (("owner", 4), ("research", 0))
    },
}
_DEFINITION = "CustomResourceDefinition"
_CONFIGURED = {
    JOBSET: "config.jobset.x-k8s.io/v1alpha1",
    LWS: "config.lws.x-k8s.io/v1alpha1",
    TRAINER: "config.trainer.kubeflow.org/v1alpha1",
}


def needs(*components: str) -> pytest.MarkDecorator:
    """For a test that wants these controllers."""
    missing = not all(place().has(name) for name in (*components, CONTROLLERS))
    return pytest.mark.skipif(
        missing, reason=f"needs python -m hack.kubernetes --with {','.join((*components, CONTROLLERS))}"
    )


@contextmanager
def beside(folder: Path, components: Sequence[str]) -> Iterator[Cluster]:
    """A cluster of its own with all that is shipped, and these controllers, which answer."""
    with running(found(place()), folder) as cluster:
        objects = {name: _objects_of(name) for name in components}
        asyncio.run(
            _with_kinds(cluster, [each for of in objects.values() for each in of if each["kind"] == _DEFINITION])
        )
        ports = dict(zip(components, free_ports(len(components)), strict=True))
        commands = {name: _command(name, cluster, folder, ports[name]) for name in components}
        guarded = guard.start(
            {CONTROLLERS: controllers_command(cluster, folder, kinds=KINDS), **commands}, folder, signal.SIGKILL
        )
        try:
            asyncio.run(_with_webhooks(cluster, objects, ports, guarded))
            yield cluster
        finally:
            guard.stop(guarded)


def _objects_of(component: str) -> list[dict[str, Any]]:
    """Its kinds and webhooks, without what tells people what fields mean: that is most of it, and costs the server much."""
    return [_undescribed(each) for each in objects_in(place().objects(component).read_text())]


def _undescribed(written: Any) -> Any:
    if isinstance(written, dict):
        kept = {key: each for key, each in written.items() if key != "description" or not isinstance(each, str)}
        return {key: _undescribed(each) for key, each in kept.items()}
    return [_undescribed(each) for each in written] if isinstance(written, list) else written


def _command(name: str, cluster: Cluster, folder: Path, port: int) -> list[str]:
    own = folder / name
    certificates = own / "k8s-webhook-server" / "serving-certs"  # where such managers look in $TMPDIR
    certificates.mkdir(parents=True)
    certificate, key = cluster.authority.server()
    write_private(certificates / "tls.crt", certificate)
    write_private(certificates / "tls.key", key)
    command = ["env", f"KUBECONFIG={cluster.kubeconfig(name, ADMINS)}", f"TMPDIR={own}", str(place().path(name))]
    if name == RAY:
        return [*command, "--metrics-addr=0", "--health-probe-bind-address=0", "--enable-leader-election=false"]
    if name == MPI:
        return [*command, "--lock-namespace=default", "--kube-api-qps=100", "--kube-api-burst=100"]
    config = own / "config.yaml"
    config.write_text(yaml.safe_dump(_config(name, port, certificates)))
    return [*command, f"--config={config}"]


def _config(name: str, port: int, certificates: Path) -> dict[str, Any]:
    management, told = (
        ("certManagement", {}) if name == TRAINER else ("internalCertManagement", {"certDir": str(certificates)})
    )
    return {
        "apiVersion": _CONFIGURED[name],
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": port, **told},
        management: {"enable": False},
    }


async def _with_kinds(cluster: Cluster, definitions: Sequence[dict[str, Any]]) -> None:
    """All that is shipped, and these kinds, once they are served: managers end where theirs are not."""
    await install(cluster, definitions)
    async with session(cluster) as api, asyncio.timeout(SOON_S):
        for definition in definitions:
            spec = definition["spec"]
            of = Resource(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["plural"])
            while not await _is_served(api, of):
                await asyncio.sleep(0.1)


async def _is_served(api: Api, of: Resource) -> bool:
    try:
        served = await api.get(f"/apis/{of.version}", dict[str, Any])
    except NotFoundError:
        return False
    return any(each["name"] == of.plural for each in served["resources"])


async def _with_webhooks(
    cluster: Cluster,
    objects: Mapping[str, Sequence[dict[str, Any]]],
    ports: Mapping[str, int],
    guarded: subprocess.Popen[bytes],
) -> None:
    """Until each is asked, and answers: an object that one refuses, or any other answer than that it can't be reached."""
    async with session(cluster) as api:
        space = await a_namespace(api)
        for name, of in objects.items():
            for each in of:
                if each["kind"] != _DEFINITION:
                    await api.create(path_of(each), _directed(name, each, cluster, ports[name]))
        pod = a_pod("asked")
        async with asyncio.timeout(SOON_S):
            while not await _is_made(api, f"{PODS.path(space)}?dryRun=All", pod):
                assert guarded.poll() is None, f"one of them has ended: {cluster.folder}"
                await asyncio.sleep(0.1)


async def _is_made(api: Api, path: str, body: Mapping[str, Any]) -> bool:
    """Whether it is; if not, a webhook that has to be asked can't be reached."""
    try:
        await api.create(path, dict(body))
    except UnreachableError:
        return False
    return True


def _directed(name: str, written: dict[str, Any], cluster: Cluster, port: int) -> dict[str, Any]:
    """Webhooks that are asked on loopback instead of by a Service."""
    authority = base64.b64encode(cluster.authority.pem).decode()
    webhooks = []
    for webhook in written["webhooks"]:
        url = f"https://{LOOPBACK}:{port}{webhook['clientConfig']['service']['path']}"
        webhooks.append({**webhook, "clientConfig": {"url": url, "caBundle": authority}})
    return {**written, "metadata": {"name": f"{name}-{written['kind'].lower()}"}, "webhooks": webhooks}


@asynccontextmanager
async def followed(api: Api, of: Resource, space: str, body: Mapping[str, Any]) -> AsyncIterator[None]:
    """An object that a controller follows, until the end of the block: then it and its pods are gone."""
    await until_made(api, of, space, body)
    try:
        yield
    finally:
        await api.delete(of.path(space, body["metadata"]["name"]), {"propagationPolicy": "Background"})
        async with asyncio.timeout(SOON_S):
            while any(pod["metadata"].get("ownerReferences") for pod in await pods_of(api, space)):
                await asyncio.sleep(0.1)


async def pods_of(api: Api, space: str) -> list[dict[str, Any]]:
    """All that are there."""
    found: list[dict[str, Any]] = (await api.get(PODS.path(space), dict[str, Any]))["items"]
    return found


async def until_made(api: Api, of: Resource, space: str, body: Mapping[str, Any]) -> None:
    """Tried until its webhooks can be reached."""
    async with asyncio.timeout(SOON_S):
        while not await _is_made(api, of.path(space), body):
            await asyncio.sleep(0.1)


def a_template(gpus: int) -> dict[str, Any]:
    """Of a pod."""
    requests = {"cpu": "1", "memory": "1Gi", **({names.GPU: str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    spec = {"schedulerName": names.SCHEDULER, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"labels": {names.QUEUE: "research", names.PRIORITY_CLASS: "batch"}}, "spec": spec}


async def until_needs(api: Api, space: str, needs: Sequence[str]) -> dict[str, str]:
    """The uids of the pods on nodes by their names, once these say with how many they were bound."""
    said: list[str] | None = None
    there: list[dict[str, Any]] = []
    async with asyncio.timeout(SOON_S):
        while said != sorted(needs):
            await asyncio.sleep(0.05)
            there = [pod for pod in await pods_of(api, space) if pod["spec"].get("nodeName")]
            there = [pod for pod in there if not pod["metadata"].get("deletionTimestamp")]
            said = sorted(pod["metadata"].get("annotations", {}).get(names.NEEDS, "") for pod in there)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in there}


async def until_on_a_node(api: Api, space: str, pod: str) -> None:
    async with asyncio.timeout(SOON_S):
        while not (await api.get(PODS.path(space, pod), dict[str, Any]))["spec"].get("nodeName"):
            await asyncio.sleep(0.1)


async def _jobs_of(plane: ControlPlane, space: str) -> dict[str, str]:
    """The state of each of its jobs, without the namespace before its name."""

    def asked() -> dict[str, str]:
        with plane.client() as client:
            return {view.name: view.state for view in client.jobs().items}

    known = await asyncio.to_thread(asked)
    return {name.removeprefix(f"{space}."): state for name, state in known.items() if name.startswith(f"{space}.")}


async def until_jobs(plane: ControlPlane, space: str, jobs: Mapping[str, str]) -> None:
    async with asyncio.timeout(SOON_S):
        while await _jobs_of(plane, space) != jobs:
            await asyncio.sleep(0.2)
