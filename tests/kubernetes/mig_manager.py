"""What the GPU operator's MIG manager and device plugin do to a node, done by a test."""

from __future__ import annotations

import asyncio
from typing import Any

from reconciler.kubernetes.binder.records import read_record
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import ConflictError
from reconciler.kubernetes.mig.change import MigChange
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES
from tests.kubernetes.sessions import CONFIG_MAPS, NAMESPACES, SOON_S

OPERATOR = "gpu-operator"
CONFIGS = "default-mig-parted-config"
WHOLE = "all-disabled"
FILE = """version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
  first-1g.10gb:
    - {devices: [0], mig-enabled: true, mig-devices: {"1g.10gb": 7}}
    - {devices: [1, 2, 3], mig-enabled: false}
  first-3g.40gb:
    - {devices: [0], mig-enabled: true, mig-devices: {"3g.40gb": 2}}
    - {devices: [1, 2, 3], mig-enabled: false}
"""


async def with_configs(api: Api) -> None:
    """The operator's ConfigMap is there."""
    try:
        await api.create(NAMESPACES.path(), {"metadata": {"name": OPERATOR}})
        body = {"metadata": {"name": CONFIGS}, "data": {"config.yaml": FILE}}
        await api.create(CONFIG_MAPS.path(OPERATOR), body)
    except ConflictError:
        return  # of a test before


async def manage(api: Api, node: str) -> None:
    """From now on the MIG manager looks after the node, whose GPUs are whole."""
    labels = {names.MIG_CONFIG: WHOLE, names.MIG_STATE: "success", names.GPU_COUNT: "4"}
    await api.patch(NODES.path("", node), {"metadata": {"labels": labels}})


async def label(api: Api, node: str, **labels: str) -> None:
    said = {"config": names.MIG_CONFIG, "state": names.MIG_STATE}
    await api.patch(NODES.path("", node), {"metadata": {"labels": {said[key]: value for key, value in labels.items()}}})


async def offer(api: Api, node: str, **counts: str | None) -> None:
    """The device plugin says so: `gpu`, and profiles as `mig-1g.10gb`."""
    resources = {f"nvidia.com/{name}": count for name, count in counts.items()}
    status = {"capacity": resources, "allocatable": resources}
    await api.patch(NODES.path("", node, "status"), {"status": status})


async def labels_of(api: Api, node: str) -> dict[str, str]:
    found: dict[str, str] = (await api.get(NODES.path("", node), dict[str, Any]))["metadata"]["labels"]
    return found


async def until_labelled(api: Api, node: str, config: str) -> MigChange:
    """Somebody asks for that config; what is written of it."""
    async with asyncio.timeout(SOON_S):
        while True:
            meta = (await api.get(NODES.path("", node), dict[str, Any]))["metadata"]
            if meta["labels"].get(names.MIG_CONFIG) == config:
                return read_record(meta["annotations"][names.MIG], MigChange)
            await asyncio.sleep(0.05)


async def until_ended(api: Api, node: str) -> MigChange:
    """It is written what became of the newest change."""
    async with asyncio.timeout(SOON_S):
        while True:
            meta = (await api.get(NODES.path("", node), dict[str, Any]))["metadata"]
            change = read_record(meta["annotations"][names.MIG], MigChange)
            if change.fate is not None:
                return change
            await asyncio.sleep(0.05)
