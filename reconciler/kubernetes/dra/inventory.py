"""GPUs that NVIDIA's driver publishes, as a round knows GPUs: one for each chip, with the MIG instances that are in use on it.

Attributes and names are those of dra-driver-nvidia-gpu (cmd/gpu-kubelet-plugin: deviceinfo.go, partitions.go).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import msgspec

from reconciler.kubernetes.dra.pools import Device
from reconciler.kubernetes.objects.nodes import PublishedGpus
from reconciler.model.gpu_products import type_of_product
from solver.model.cluster import DeviceId as GpuId
from solver.model.cluster import Gpu, GpuType, MigInstance
from solver.model.quantities import Memory

DRIVER = "gpu.nvidia.com"
_MEMORY = f"{DRIVER}/memory"
_SLICE = re.compile(r"memory-?[sS]lice-?(\d+)")
"""A counter of a device that is cut out when it is allocated, or a capacity of one that was cut out beforehand."""


class GpuDevice(NamedTuple):
    """A device of the driver. `gpu`: the UUID of the chip; `instance` None: the chip as a whole."""

    gpu_type: GpuType
    gpu: GpuId
    instance: MigInstance | None

    @property
    def id(self) -> GpuId:
        """As rounds call it."""
        return self.instance.id_on(self.gpu) if self.instance else self.gpu


Use = Literal["ours", "others", ""]
"""What uses a device: claims that Quorate gave it to, others, or none."""


def gpu_device(device: Device) -> GpuDevice | None:
    """The device as a GPU or an instance of one; None: it is neither, or does not say what it is."""
    said = device.look.attributes.get(DRIVER, {})
    gpu_type = type_of_product(str(said.get("productName", "")))
    if device.id.driver != DRIVER or not gpu_type:
        return None
    if said.get("type") == "gpu" and "uuid" in said:
        return GpuDevice(gpu_type, GpuId(said["uuid"]), None)
    start = _start(device)
    if said.get("type") == "mig" and {"parentUUID", "profile"} <= said.keys() and start is not None:
        return GpuDevice(gpu_type, GpuId(said["parentUUID"]), MigInstance(said["profile"], start))
    return None


def gpus_of(devices: Iterable[Device], use: Callable[[Device], Use]) -> PublishedGpus:
    """A node's GPUs, in the order they are published.

    A chip that is published as a whole and of which instances are used has these; one that is published in instances alone was
    partitioned beforehand, and has all of them. One with a hard taint, which says that it is not well, is not healthy. One that
    others use, or instances of it, is left out.
    """
    gpus: dict[GpuId, Gpu] = {}
    types: dict[GpuType, None] = {}
    instances: dict[GpuId, list[tuple[MigInstance, bool]]] = {}
    of_others: set[GpuId] = set()
    for device in devices:
        found = gpu_device(device)
        if found is None:
            continue
        types[found.gpu_type] = None
        used = use(device)
        if used == "others":
            of_others.add(found.gpu)
        if found.instance:
            instances.setdefault(found.gpu, []).append((found.instance, used == "ours"))
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
    left = tuple(gpu for gpu in gpus.values() if gpu.id not in of_others)
    return PublishedGpus(next(iter(types)) if len(types) == 1 else GpuType(""), left, len(gpus) - len(left))


def _start(device: Device) -> int | None:
    """The first memory slice of an instance."""
    names = [counter.counter for counter, _ in device.consumes]
    names += device.look.capacity.get(DRIVER, {})
    return min((int(found[1]) for name in names if (found := _SLICE.fullmatch(name))), default=None)
