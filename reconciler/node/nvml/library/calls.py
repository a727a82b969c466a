"""Calls of NVML, NVIDIA's management library, and which of our errors each of its errors is.

`pynvml` comes from the package nvidia-ml-py. The package that is itself called pynvml is another one, and deprecated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pynvml

from reconciler.node.nvml.driver import (
    DriverError,
    DriverUnusableError,
    GpuLostError,
    GpuUuid,
    InUseError,
    ResetNeededError,
)

T = TypeVar("T")

_ABSENT: Final = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_LACKING: Final = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    # Drivers older than a function don't have it, so neither can they do what it is for.
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_DATA,
)
_KINDS: Final[dict[int, tuple[type[DriverError], str]]] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: (GpuLostError, "it no longer answers its driver. Restart the node"),
    pynvml.NVML_ERROR_GPU_NOT_FOUND: (GpuLostError, "the driver doesn't know it any more. Restart the node"),
    pynvml.NVML_ERROR_NOT_FOUND: (DriverError, "it is not there any more: another program changes this GPU too"),
    pynvml.NVML_ERROR_IN_USE: (InUseError, "something uses it. End what does, then it can be asked for again"),
    pynvml.NVML_ERROR_RESET_REQUIRED: (
        ResetNeededError,
        "it has to be reset first: `nvidia-smi --gpu-reset`, or a restart of the node",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (DriverError, "that needs rights: run the agent as root"),
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: (DriverError, "there is no room for it where it was asked for"),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        DriverUnusableError,
        "library and kernel module are of two versions, as after an update. Restart the node",
    ),
}


def open_library() -> str:
    """Open NVML, once for each call; "" or, where this machine has no GPU of NVIDIA, why. Raises DriverUnusableError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in _ABSENT:
            return str(error)
        kind = _KINDS.get(error.value)
        raise DriverUnusableError(f"NVIDIA's driver: {error}{f': {kind[1]}' if kind else ''}") from error
    return ""


@contextmanager
def sorted_errors(subject: str) -> Iterator[None]:
    """Let NVML's errors about a subject (a device, mostly) through as ours."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise as_ours(subject, error) from error


def as_ours(subject: str, error: pynvml.NVMLError) -> DriverError:
    """NVML's error as ours."""
    kind, advice = _KINDS.get(error.value, (DriverError, "see the kernel's log"))
    return kind(f"{subject}: {error}: {advice}")


def ask(call: Callable[..., T], *arguments: object) -> T | None:
    """What NVML answers; None: there is no such thing here. Raises NVMLError."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _LACKING:
            return None
        raise


def name_of(handle: Any) -> GpuUuid:
    """The UUID behind a handle."""
    return GpuUuid(str(pynvml.nvmlDeviceGetUUID(handle)))
