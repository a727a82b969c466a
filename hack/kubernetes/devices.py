"""Devices as a driver publishes them for MIG: each GPU whole and in every place of every profile, kept apart by shared counters.

After dra-driver-nvidia-gpu with dynamic MIG (cmd/gpu-kubelet-plugin: partitions.go, deviceinfo.go), and after what an API server
takes: at most 8 counter sets in a slice, at most 64 devices in one with counters, and never both in the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from solver.model.mig import mig_model
from solver.model.mig_table import MigModel, MigProfile

DRIVER = "gpu.nvidia.com"
MIG_CLASS = "mig.nvidia.com"
SETS_MAX = 8
DEVICES_MAX = 64

_PRODUCT = {"H100-80GB": "NVIDIA H100 80GB HBM3", "A30-24GB": "NVIDIA A30"}


def mig_slices(node: str, gpus: int = 8, model: str = "H100-80GB", *, with_media: bool = False) -> list[dict[str, Any]]:
    """The slices of one node's pool. `with_media`: the profiles too that have the media engines (`+me`)."""
    known = mig_model(model)
    devices = [device for index in range(gpus) for device in _devices(node, index, known, with_media)]
    sets = [_counter_set(index, known) for index in range(gpus)]
    parts: list[dict[str, Any]] = [{"sharedCounters": sets[at : at + SETS_MAX]} for at in range(0, gpus, SETS_MAX)]
    parts += [{"devices": devices[at : at + DEVICES_MAX]} for at in range(0, len(devices), DEVICES_MAX)]
    return [slice_of(node, number, len(parts), part) for number, part in enumerate(parts)]


def plain_slices(node: str, gpus: int = 8, model: str = "H100-80GB") -> list[dict[str, Any]]:
    """The slice of a node whose GPUs are given whole."""
    devices = [_gpu(node, index, mig_model(model), counters=False) for index in range(gpus)]
    return [slice_of(node, 0, 1, {"devices": devices})]


def slice_of(node: str, number: int, of: int, part: dict[str, Any], generation: int = 1) -> dict[str, Any]:
    """One slice of the pool that is called after its node."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": of}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, **part}
    return {"metadata": {"name": f"{node}-{DRIVER}-{number}"}, "spec": spec}


def classes() -> list[dict[str, Any]]:
    """The device classes that the driver comes with: whole GPUs and instances."""
    return [
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        for name, expression in (
            (DRIVER, f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"),
            (MIG_CLASS, f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'"),
        )
    ]  # fmt: skip


def an_instance(name: str, profile: str = "1g.10gb") -> dict[str, Any]:
    """A claim of that name to an instance."""
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].profile == '{profile}'"}}
    asked = {"deviceClassName": MIG_CLASS, "selectors": [selector]}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "mig", "exactly": asked}]}}}


def _devices(node: str, index: int, model: MigModel, with_media: bool) -> Iterator[dict[str, Any]]:
    yield _gpu(node, index, model, counters=True)
    for profile in model.profiles:
        if with_media or not profile.attributes:
            for start in profile.starts:
                yield _instance(node, index, model, profile, start)


def _gpu(node: str, index: int, model: MigModel, *, counters: bool) -> dict[str, Any]:
    whole = _whole(model)
    gpu: dict[str, Any] = {
        "name": f"gpu-{index}",
        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": _uuid(node, index)}, **_alike(model, index)},
        "capacity": {"memory": {"value": _memory(whole)}},
    }
    if counters:
        everything = {**_engines(whole, media=True), **_slices(range(model.memory_slices))}
        gpu["consumesCounters"] = [{"counterSet": _set_name(index), "counters": everything}]
    return gpu


def _instance(node: str, index: int, model: MigModel, profile: MigProfile, start: int) -> dict[str, Any]:
    slug = profile.name.replace(".", "").replace("+", "-")
    used = {
        **_engines(profile, media="me" in profile.attributes or profile == _whole(model)),
        **_slices(range(start, start + profile.memory_slices)),
    }
    return {
        "name": f"gpu-{index}-mig-{slug}-{profile.profile_id}-{start}",
        "attributes": {
            "type": {"string": "mig"},
            "parentUUID": {"string": _uuid(node, index)},
            "profile": {"string": profile.name},
            **_alike(model, index),
        },
        "capacity": {
            "memory": {"value": _memory(profile)},
            "multiprocessors": {"value": str(profile.sms)},
        },
        "consumesCounters": [{"counterSet": _set_name(index), "counters": used}],
    }


def _alike(model: MigModel, index: int) -> dict[str, Any]:
    return {
        "productName": {"string": _PRODUCT[model.name]},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "570.124.6"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index // 2:02x}"},
    }


def _counter_set(index: int, model: MigModel) -> dict[str, Any]:
    counters = {**_engines(_whole(model), media=True), **_slices(range(model.memory_slices))}
    return {"name": _set_name(index), "counters": counters}


def _whole(model: MigModel) -> MigProfile:
    return max(model.profiles, key=lambda profile: profile.memory_slices)


def _engines(profile: MigProfile, *, media: bool) -> dict[str, Any]:
    used = {"multiprocessors": str(profile.sms), "memory": _memory(profile), **({"ofa-engines": "1"} if media else {})}
    return {name: {"value": value} for name, value in used.items()}


def _slices(slices: range) -> dict[str, Any]:
    return {f"memory-slice-{number}": {"value": "1"} for number in slices}


def _memory(profile: MigProfile) -> str:
    return f"{profile.memory_mib or 1024 * profile.memory_slices}Mi"


def _set_name(index: int) -> str:
    return f"gpu-{index}-counter-set"


def _uuid(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"
