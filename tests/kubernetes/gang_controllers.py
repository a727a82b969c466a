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
from reconciler.kubernetes.objects.resource import PODS, Resource
from tests.kubernetes.controllers import CONTROLLERS, controllers_command
from tests.kubernetes.sessions import ADMINS, SOON_S, a_namespace, a_pod, session
from tests.kubernetes.shipping import install

JOBSET, LWS, TRAINER, RAY, MPI = "jobset", "lws", "trainer", "kuberay", "mpi-operator"
KINDS = ("job-controller", "statefulset-controller", "garbage-collector-controller")
_DEFINITION = "CustomResourceDefinition"
_CONFIGURED = {
    JOBSET: "config.jobset.x-k8s.io/v1alpha1",
    LWS: "config.lws.x-k8s.io/v1alpha1",
    TRAINER: "config.trainer.kubeflow.org/v1alpha1",
}


def needs(*names: str) -> pytest.MarkDecorator:
    """For a test that wants these controllers."""
    missing = not all(place().has(name) for name in (*names, CONTROLLERS))
    return pytest.mark.skipif(missing, reason=f"needs python -m hack.kubernetes --with {','.join((*names, CONTROLLERS))}")


@contextmanager
def beside(folder: Path, names: Sequence[str]) -> Iterator[Cluster]:
    """A cluster of its own with all that is shipped, and these controllers, which answer."""
    with running(found(place()), folder) as cluster:
        objects = {name: objects_in(place().objects(name).read_text()) for name in names}
        asyncio.run(_with_kinds(cluster, [each for of in objects.values() for each in of if each["kind"] == _DEFINITION]))
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        commands = {name: _command(name, cluster, folder, ports[name]) for name in names}
        guarded = guard.start(
            {CONTROLLERS: controllers_command(cluster, folder, kinds=KINDS), **commands}, folder, signal.SIGKILL
        )
        try:
            asyncio.run(_with_webhooks(cluster, objects, ports, guarded))
            yield cluster
        finally:
            guard.stop(guarded)


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
    management, told = ("certManagement", {}) if name == TRAINER else ("internalCertManagement", {"certDir": str(certificates)})
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
            while True:
                assert guarded.poll() is None, f"one of them has ended: {cluster.folder}"
                try:
                    await api.create(f"{PODS.path(space)}?dryRun=All", pod)
                    return
                except UnreachableError:
                    await asyncio.sleep(0.1)


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
        while True:
            try:
                await api.create(of.path(space), dict(body))
                return
            except UnreachableError:
                await asyncio.sleep(0.1)
