"""What a rare call costs by our client and by the official one's generated API: `python -m hack.kubernetes.bench_calls`.

Both patch the same ConfigMap of a real API server, one request after the other, in turn, so that what else the machine does meets
both. What is reported is this process's CPU time.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import click
from kubernetes.aio.client import ApiClient, Configuration, CoreV1Api
from kubernetes.aio.config import load_kube_config

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.objects.resource import Resource
from reconciler.model.clock import SystemClock

CONFIG_MAPS = Resource("v1", "configmaps")
CLOCK = SystemClock()


@click.command()
@click.option("--calls", default=500, show_default=True, help="Of each client in each turn.")
@click.option("--turns", default=5, show_default=True)
def main(calls: int, turns: int) -> None:
    """Milliseconds of CPU for each call, the median and range of all turns."""
    with tempfile.TemporaryDirectory() as folder, running(found(place()), Path(folder), audited=False) as cluster:
        for name, each_ms in asyncio.run(measured(cluster, calls, turns)).items():
            median, low, high = statistics.median(each_ms), min(each_ms), max(each_ms)
            click.echo(f"{name}: {median:.2f} ms ({low:.2f} to {high:.2f})")


async def measured(cluster: Cluster, calls: int, turns: int) -> dict[str, list[float]]:
    """CPU milliseconds of each client's calls, a number for each turn."""
    kubeconfig = cluster.kubeconfig("admin", ("system:masters",))
    configuration = Configuration()
    await load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)
    credentials = from_kubeconfig(kubeconfig, CLOCK)
    async with (
        ApiClient(configuration) as generated,  # first: our sessions remove the files that its certificates lie in
        Api(credentials, RateLimiter(1_000_000, 1_000_000, CLOCK), Random(1)) as api,
    ):
        await api.create(CONFIG_MAPS.path("default"), {"metadata": {"name": "one"}, "data": {"value": "a"}})
        there, core = CONFIG_MAPS.path("default", "one"), CoreV1Api(generated)
        clients: dict[str, Callable[[str], Awaitable[object]]] = {
            "own": lambda value: api.patch(there, {"data": {"value": value}}),
            "generated": lambda value: core.patch_namespaced_config_map("one", "default", {"data": {"value": value}}),
        }
        spent: dict[str, list[float]] = {name: [] for name in clients}
        for patch in clients.values():
            await _ms(patch, calls)
        for turn in range(turns):
            for name in sorted(clients, reverse=bool(turn % 2)):
                spent[name].append(await _ms(clients[name], calls))
    return spent


async def _ms(patch: Callable[[str], Awaitable[object]], calls: int) -> float:
    began_s = time.process_time()
    for number in range(calls):
        await patch(str(number))
    return 1000 * (time.process_time() - began_s) / calls


if __name__ == "__main__":
    main()
