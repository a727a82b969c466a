"""Which GPUs this machine has: those that NVIDIA's driver finds, or none, and then declared ones are simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reconciler.agent.nvml.driver import Driver, DriverUnusableError
from reconciler.agent.nvml.gpus import NvmlGpus

MODULE: Final = "pynvml"
"""Of the package nvidia-ml-py."""


def driver_here() -> Driver | str:
    """This machine's driver, or why there is none. Raises DriverUnusableError where there is one that can't be used."""
    try:
        from reconciler.agent.nvml.library.nvml import find_driver
    except ModuleNotFoundError as error:
        if error.name != MODULE:
            raise
        return "nvidia-ml-py is not installed; `quorate[agent]` has it"
    return find_driver()


def nvml_gpus(folder: Path) -> NvmlGpus:
    """The GPUs of this machine, for LocalBackend. Raises DriverUnusableError where there are none."""
    driver = driver_here()
    if isinstance(driver, str):
        raise DriverUnusableError(
            f"this machine shows no GPU of NVIDIA: {driver}. Declared GPUs can be simulated instead"
        )
    return NvmlGpus(folder, driver)
