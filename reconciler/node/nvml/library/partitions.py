"""MIG through NVML: modes, GPU instances and the compute instances in them.

Profiles are listed by NVML's enum (`NVML_GPU_INSTANCE_PROFILE_*`) and made by their id, another number, which the driver gives
(NVML API reference, "Multi Instance GPU Management"): the id of 1 of 7 slices is 19, and its enum 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import pynvml

from reconciler.node.nvml.driver import Instance, InstancePlacement, Mig, OfferedProfile
from reconciler.node.nvml.library.calls import ask

_PLAIN: Final = frozenset(
    {
        pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE,
        pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2,
        pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE,
        pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE,
        pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE,
        pynvml.NVML_GPU_INSTANCE_PROFILE_6_SLICE,
        pynvml.NVML_GPU_INSTANCE_PROFILE_7_SLICE,
        pynvml.NVML_GPU_INSTANCE_PROFILE_8_SLICE,
    }
)
_WITH_MEDIA: Final = frozenset(
    {pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1, pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1}
)

_SLICES_MAX: Final = 16
"""More than any GPU has, so that lists of its instances fit; NVML wants room for `instanceCount` of a profile, at most 7 so far."""


def read_mig(handle: Any) -> Mig | None:
    """Mode and instances. Raises NVMLError, as all here."""
    modes = ask(pynvml.nvmlDeviceGetMigMode, handle)
    if modes is None:
        return None
    enabled, pending = (mode == pynvml.NVML_DEVICE_MIG_ENABLE for mode in modes)
    if not enabled:
        return Mig(enabled, pending)
    devices = _devices(handle)
    found = (
        _read_instance(instance, devices)
        for profile in _profile_ids(handle)
        for instance in _instances(handle, profile)
    )
    return Mig(enabled, pending, tuple(sorted(found, key=lambda one: (one.place.start, one.id))))


def read_profiles(handle: Any) -> tuple[OfferedProfile, ...]:
    """What it offers, by id; each with the starts that the driver itself lists."""
    return tuple(
        OfferedProfile(info.id, info.sliceCount, places[0].slices, tuple(place.start for place in places), kind)
        for info, kind in _infos_by_kind(handle)
        if (places := _places(handle, info.id))
    )


def switch(handle: Any, on: bool) -> None:
    """Switch the mode. The call succeeds where it is written down only; whether it is so now stands in its answer and the mode."""
    wanted = pynvml.NVML_DEVICE_MIG_ENABLE if on else pynvml.NVML_DEVICE_MIG_DISABLE
    came_of_it = pynvml.nvmlDeviceSetMigMode(handle, wanted)
    if came_of_it != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(came_of_it)
    if pynvml.nvmlDeviceGetMigMode(handle)[0] != wanted:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_RESET_REQUIRED)


def make(handle: Any, place: InstancePlacement) -> None:
    """A GPU instance. Without a placement of ours the driver would choose the start, and the plan would not hold."""
    where = pynvml.c_nvmlGpuInstancePlacement_t(place.start, place.slices)
    pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, place.profile, ctypes.byref(where))


def make_compute(handle: Any, instance_id: int) -> None:
    """A compute instance with all slices of its GPU instance."""
    instance = pynvml.nvmlDeviceGetGpuInstanceById(handle, instance_id)
    # The most slices are all slices; of equals, which differ in their engines, the first is what nvidia-smi makes unasked.
    whole = max(_compute_infos(instance), key=lambda info: info.sliceCount)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, whole.id)


def unmake_compute(handle: Any, instance_id: int, compute_id: int) -> None:
    """Destroy a compute instance."""
    instance = pynvml.nvmlDeviceGetGpuInstanceById(handle, instance_id)
    pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, compute_id))


def unmake(handle: Any, instance_id: int) -> None:
    """Destroy a GPU instance."""
    pynvml.nvmlGpuInstanceDestroy(pynvml.nvmlDeviceGetGpuInstanceById(handle, instance_id))


def _infos_by_kind(handle: Any) -> Iterator[tuple[Any, Literal["plain", "me", "other"]]]:
    for enum in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = _unless_invalid(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, enum)
        if info is not None:
            yield info, "plain" if enum in _PLAIN else "me" if enum in _WITH_MEDIA else "other"


def _profile_ids(handle: Any) -> dict[int, None]:
    """Each once, in order: newer drivers may give one id to two enums."""
    return dict.fromkeys(info.id for info, _ in _infos_by_kind(handle))


def _places(handle: Any, profile: int) -> list[InstancePlacement]:
    count = ctypes.c_uint(0)
    if ask(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, profile, None, ctypes.byref(count)) is None:
        return []
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile, found, ctypes.byref(count))
    places = (InstancePlacement(profile, each.start, each.size) for each in found[: count.value])
    return sorted(places, key=lambda place: place.start)


def _instances(handle: Any, profile: int) -> list[Any]:
    """Instances of a profile; the driver never has more of one than a GPU has slices."""
    count = ctypes.c_uint(0)
    found = (pynvml.c_nvmlGpuInstance_t * _SLICES_MAX)()
    pynvml.nvmlDeviceGetGpuInstances(handle, profile, found, ctypes.byref(count))
    return list(found[: count.value])


class _Device(NamedTuple):
    """A MIG device: a compute instance as programs see it. `whole`: it has all slices of its GPU instance."""

    compute: int
    whole: bool
    uuid: str


def _read_instance(instance: Any, devices: dict[int, list[_Device]]) -> Instance:
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    place = InstancePlacement(info.profileId, info.placement.start, info.placement.size)
    inside = sorted(devices.get(info.id, ()))
    uuid = inside[0].uuid if len(inside) == 1 and inside[0].whole else ""
    return Instance(info.id, place, tuple(device.compute for device in inside), uuid)


def _devices(handle: Any) -> dict[int, list[_Device]]:
    """The MIG devices, by the id of their GPU instance. Their own numbers have gaps."""
    found: dict[int, list[_Device]] = {}
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            continue
        has = pynvml.nvmlDeviceGetAttributes(device)
        whole = has.computeInstanceSliceCount == has.gpuInstanceSliceCount
        one = _Device(pynvml.nvmlDeviceGetComputeInstanceId(device), whole, str(pynvml.nvmlDeviceGetUUID(device)))
        found.setdefault(pynvml.nvmlDeviceGetGpuInstanceId(device), []).append(one)
    return found


def _compute_infos(instance: Any) -> Iterator[Any]:
    for enum in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = _unless_invalid(
            pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo,
            instance,
            enum,
            pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
        )
        if info is not None:
            yield info


def _unless_invalid(call: Any, *arguments: object) -> Any:
    """None where a GPU, or an older driver, has no such profile: it answers that the enum is invalid, or not supported."""
    try:
        return ask(call, *arguments)
    except pynvml.NVMLError_InvalidArgument:
        return None
