"""GPUs that NVIDIA's driver publishes, as a round knows GPUs: one for each chip, with the MIG instances that are in use on it.

Attributes and names are those of dra-driver-nvidia-gpu (cmd/gpu-kubelet-plugin: deviceinfo.go, partitions.go).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from reconciler.backends.kubernetes.dra.pools import Device, DeviceId
from reconciler.backends.kubernetes.objects.products import type_of_product
from solver.world.cluster import DeviceId as GpuId
from solver.world.cluster import Gpu, GpuType, MigInstance
from solver.world.quantities import Memory

DRIVER = "gpu.nvidia.com"
_MEMORY = f"{DRIVER}/memory"
_SLICE = re.compile(r"memory-?[sS]lice-?(\d+)")
"""A counter of a device that is cut out when it is allocated, or a capacity of one that was cut out beforehand."""


class Published(NamedTuple):
    """A device of the driver. `gpu`: the UUID of the chip; `instance` None: the chip as a whole."""

    gpu_type: GpuType
    gpu: GpuId
    instance: MigInstance | None

    @property
    def id(self) -> GpuId:
        """As rounds call it."""
        return self.instance.id_on(self.gpu) if self.instance else self.gpu


class NodeGpus(NamedTuple):
    """What a node has. `gpu_type` "": GPUs of several types, or none. `devices`: by the id that rounds use."""

    gpu_type: GpuType
    gpus: tuple[Gpu, ...]
    devices: dict[GpuId, DeviceId]


def published(device: Device) -> Published | None:
    """The device as a GPU or an instance of one; None: it is neither, or does not say what it is."""
    said = device.look.attributes.get(DRIVER, {})
    gpu_type = type_of_product(str(said.get("productName", "")).replace(" ", "-"))
    if device.id.driver != DRIVER or not gpu_type:
        return None
    if said.get("type") == "gpu" and "uuid" in said:
        return Published(gpu_type, GpuId(said["uuid"]), None)
    start = _start(device)
    if said.get("type") == "mig" and {"parentUUID", "profile"} <= said.keys() and start is not None:
        return Published(gpu_type, GpuId(said["parentUUID"]), MigInstance(said["profile"], start))
    return None


def gpus_of(devices: Iterable[Device], is_used: Callable[[Device], bool]) -> NodeGpus:
    """A node's GPUs, in the order they are published.

    A chip that is published as a whole and of which instances are used has these; one that is published in instances alone was
    partitioned beforehand, and has all of them. One with a hard taint, which says that it is not well, is not healthy.
    """
    gpus: dict[GpuId, Gpu] = {}
    types: dict[GpuType, None] = {}
    instances: dict[GpuId, list[tuple[MigInstance, bool]]] = {}
    known: dict[GpuId, DeviceId] = {}
    for device in devices:
        found = published(device)
        if found is None:
            continue
        types[found.gpu_type] = None
        known[found.id] = device.id
        if found.instance:
            instances.setdefault(found.gpu, []).append((found.instance, is_used(device)))
        else:
            memory = Memory(int(device.capacity.get(_MEMORY, 0)))
            well = not any(taint.effect in ("NoSchedule", "NoExecute") for taint in device.taints)
            gpus[found.gpu] = Gpu(found.gpu, len(gpus), healthy=well, memory=memory)
    for name, parts in instances.items():
        there = sorted(
            (one for one, used in parts if used or name not in gpus), key=lambda one: (one.start, one.profile)
        )
        gpu = gpus.get(name, Gpu(name, len(gpus)))
        gpus[name] = msgspec.structs.replace(gpu, instances=tuple(there)) if there else gpu
    return NodeGpus(next(iter(types)) if len(types) == 1 else GpuType(""), tuple(gpus.values()), known)


def _start(device: Device) -> int | None:
    """The first memory slice of an instance."""
    names = [counter.counter for counter, _ in device.consumes]
    names += device.look.capacity.get(DRIVER, {})
    return min((int(found[1]) for name in names if (found := _SLICE.fullmatch(name))), default=None)
