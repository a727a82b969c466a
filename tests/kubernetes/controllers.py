"""Kubernetes' own controller of Jobs beside a cluster for tests, where it is built."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes import guard
from hack.kubernetes.certificates import LOOPBACK
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.components import place
from hack.ports import free_ports
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import Resource
from tests.kubernetes.sessions import ADMINS

JOBS = Resource("batch/v1", "jobs")
CONTROLLERS = "kube-controller-manager"

needs_controllers = pytest.mark.skipif(
    not place().has(CONTROLLERS), reason=f"needs python -m hack.kubernetes --with {CONTROLLERS}"
)


def controllers_command(
    cluster: Cluster, folder: Path, gates: Sequence[str] = (), kinds: Sequence[str] = ("job-controller",)
) -> list[str]:
    """It makes the pods of Jobs, and with the gate WorkloadWithJob their PodGroups. `kinds`: which controllers of it run."""
    admin = str(cluster.kubeconfig("controllers", ADMINS))
    (port,) = free_ports(1)
    return [
        str(place().path(CONTROLLERS)),
        f"--kubeconfig={admin}",
        f"--authentication-kubeconfig={admin}",
        f"--authorization-kubeconfig={admin}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--controllers={','.join(kinds)}",
        "--leader-elect=false",
        *(f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}" for _ in gates[:1]),
    ]


async def without_jobs(api: Api, space: str) -> None:
    """A Job that stays would have pods again in the next test where there is a controller of Jobs."""
    for job in (await api.get(JOBS.path(space), dict[str, Any]))["items"]:
        await api.delete(JOBS.path(space, job["metadata"]["name"]), {"propagationPolicy": "Background"})


@asynccontextmanager
async def controllers(
    cluster: Cluster, folder: Path, api: Api, space: str, gates: Sequence[str] = ()
) -> AsyncIterator[None]:
    """For as long as the block lasts, at whose end the Jobs of this namespace are deleted."""
    guarded = guard.start({CONTROLLERS: controllers_command(cluster, folder, gates)}, folder, signal.SIGKILL)
    try:
        yield
    finally:
        await without_jobs(api, space)
        await asyncio.to_thread(guard.stop, guarded)
