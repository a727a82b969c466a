"""The functions of NVML about MIG, over made-up cards."""

# ruff: noqa: N802  (functions are named as NVML names them)
from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from tests.reconciler.node.nvml.card import Part, RefusalError
from tests.reconciler.node.nvml.library import Library, function, put


@function
def nvmlDeviceGetMigMode(library: Library, device: Any, current: Any, pending: Any) -> None:
    card = library.card(device)
    card.model  # noqa: B018  (raises where there is no MIG)
    put(current, int(card.enabled))
    put(pending, int(card.pending))


@function
def nvmlDeviceSetMigMode(library: Library, device: Any, mode: int, came_of_it: Any) -> None:
    put(came_of_it, library.card(device).switch(bool(mode)))


@function
def nvmlDeviceGetGpuInstanceProfileInfoV(library: Library, device: Any, enum: int, found: Any) -> None:
    profile, said = library.card(device).profile_of_enum(enum), found._obj
    said.id, said.sliceCount = profile.profile_id, profile.compute_slices
    said.instanceCount, said.multiprocessorCount = profile.instances_max, profile.sms
    # The name is the board's: this one calls nothing as the table does.
    said.name = f"MIG {profile.compute_slices}g.0gb".encode()
    said.memorySizeMB = (profile.memory_mib or 0) + 128


@function
def nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    library: Library, device: Any, profile_id: int, found: Any, size: Any
) -> None:
    profile = library.card(device).profile(profile_id)
    for slot, start in zip(found or (), profile.starts, strict=False):
        slot.start, slot.size = start, profile.memory_slices
    size._obj.value = len(profile.starts)


@function
def nvmlDeviceGetGpuInstances(library: Library, device: Any, profile_id: int, found: Any, size: Any) -> None:
    card = library.card(device)
    card.in_mig_mode()
    parts = [part for part in card.parts if part.profile == card.profile(profile_id)]
    for slot, part in enumerate(parts):
        found[slot] = _pointer(library.handle((card, part)), found._type_)
    size._obj.value = len(parts)


@function
def nvmlDeviceGetGpuInstanceById(library: Library, device: Any, part_id: int, found: Any) -> None:
    card = library.card(device)
    put(found, library.handle((card, card.part(part_id))))


@function
def nvmlGpuInstanceGetInfo(library: Library, instance: Any, found: Any) -> None:
    card, part = library.part(instance)
    said = found._obj
    said.device = _pointer(library.handle(card), type(said.device))
    said.id, said.profileId = part.id, part.profile.profile_id
    said.placement.start, said.placement.size = part.start, part.profile.memory_slices


@function
def nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    library: Library, instance: Any, enum: int, engines: int, found: Any
) -> None:
    _, part = library.part(instance)
    slices = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 7: 1}.get(enum, 99)
    if slices > part.profile.compute_slices or engines != 0:
        raise RefusalError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    # Ids of compute profiles are another numbering still.
    found._obj.id, found._obj.sliceCount = 40 + enum, slices


@function
def nvmlGpuInstanceGetComputeInstanceById(library: Library, instance: Any, compute: int, found: Any) -> None:
    card, part = library.part(instance)
    if compute not in part.compute:
        raise RefusalError(pynvml.NVML_ERROR_NOT_FOUND)
    put(found, library.handle(("compute", card, part, compute)))


@function
def nvmlDeviceCreateGpuInstanceWithPlacement(
    library: Library, device: Any, profile_id: int, place: Any, found: Any
) -> None:
    card = library.card(device)
    part = card.create(profile_id, place._obj.start, place._obj.size)
    put(found, library.handle((card, part)))


@function
def nvmlGpuInstanceCreateComputeInstance(library: Library, instance: Any, profile_id: int, found: Any) -> None:
    card, part = library.part(instance)
    slices = {40: 1, 41: 2, 42: 3, 43: 4, 44: 7, 47: 1}.get(profile_id)
    if slices is None:
        raise RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    put(found, library.handle(("compute", card, part, card.create_compute(part, slices))))


@function
def nvmlComputeInstanceDestroy(library: Library, compute: Any) -> None:
    _, card, part, number = library.behind(compute)
    card.destroy_compute(part, number)


@function
def nvmlGpuInstanceDestroy(library: Library, instance: Any) -> None:
    card, part = library.part(instance)
    card.destroy(part)


@function
def nvmlDeviceGetMaxMigDeviceCount(library: Library, device: Any, found: Any) -> None:
    put(found, library.card(device).model.compute_slices)


@function
def nvmlDeviceGetMigDeviceHandleByIndex(library: Library, device: Any, index: Any, found: Any) -> None:
    # Every other number is a gap, as after instances were destroyed, where there is room for gaps.
    card = library.card(device)
    devices, wanted = library.devices(card), index.value
    if 2 * len(devices) <= card.model.compute_slices:
        wanted, gap = divmod(wanted, 2)
        wanted = len(devices) if gap else wanted
    if wanted >= len(devices):
        raise RefusalError(pynvml.NVML_ERROR_NOT_FOUND)
    put(found, library.handle(devices[wanted]))


@function
def nvmlDeviceGetGpuInstanceId(library: Library, device: Any, found: Any) -> None:
    part: Part = library.behind(device)[1]
    put(found, part.id)


@function
def nvmlDeviceGetComputeInstanceId(library: Library, device: Any, found: Any) -> None:
    put(found, library.behind(device)[2])


@function
def nvmlDeviceGetAttributes_v2(library: Library, device: Any, found: Any) -> None:
    _, part, compute = library.behind(device)
    found._obj.gpuInstanceSliceCount = part.profile.compute_slices
    found._obj.computeInstanceSliceCount = part.compute[compute]


def _pointer(handle: int, kind: Any) -> Any:
    return ctypes.cast(ctypes.c_void_p(handle), kind)
