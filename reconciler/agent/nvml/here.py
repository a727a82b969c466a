"""Which GPUs this machine has: those that NVIDIA's driver finds, or none, and then declared ones are simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from reconciler.agent.nvml.driver import Driver, DriverUnusableError
from reconciler.agent.nvml.findings import DeviceUse, Findings, ports_alone
from reconciler.agent.nvml.gpus import NvmlGpus, had_gpus
from reconciler.agent.nvml.xids import XidWatch
from reconciler.backends.local.gpus import DeclaredGpus, Gpus
from reconciler.clock import Clock
from reconciler.facts import NodeFacts
from solver.world.cluster import Node
from solver.world.quantities import Instant

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


class Looks(NamedTuple):
    """How an agent reads its node's hardware, and sees that devices are free again. Without a driver ports alone are read.

    `watch` hears of errors, until it is stopped.
    """

    read: Callable[[Instant], NodeFacts | None]
    use: DeviceUse | None = None
    watch: XidWatch | None = None


def looks_here(folder: Path, declared: Callable[[], Node | None], clock: Clock) -> Looks:
    """Of the `declared` node that this machine is, with its GPUs' numbers from `folder`. Raises DriverUnusableError."""
    driver = driver_here()
    if isinstance(driver, str):
        return Looks(lambda at: ports_alone(declared(), at))
    gpus, watch = NvmlGpus(folder, driver), XidWatch(driver, clock)
    watch.start()
    use = DeviceUse(gpus, driver, lambda: filter(None, [declared()]))
    return Looks(Findings(gpus, driver, watch, declared).read, use, watch)


def gpus_here(folder: Path) -> Gpus:
    """Real ones where the driver shows any, else simulated ones. Raises DriverUnusableError where there were real ones before."""
    driver = driver_here()
    if not isinstance(driver, str) and (driver.gpus() or had_gpus(folder)):
        return NvmlGpus(folder, driver)
    if had_gpus(folder):
        raise DriverUnusableError(
            f"this machine had GPUs of NVIDIA, and shows none now ({driver}): none are simulated in their place. Repair its driver"
        )
    return DeclaredGpus(folder)


GPUS: Final[Mapping[Literal["auto", "declared", "nvml"], Callable[[Path], Gpus]]] = {
    "auto": gpus_here,
    "declared": DeclaredGpus,
    "nvml": nvml_gpus,
}
"""Whose word counts for a machine's GPUs; each is made of a folder to keep things in."""
