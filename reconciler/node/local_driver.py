"""Which GPUs this machine has: those that NVIDIA's driver finds, or none, and then declared ones are simulated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from reconciler.model.clock import Clock
from reconciler.model.facts import NodeFacts
from reconciler.node.local.gpus import DeclaredGpus, NodeGpus
from reconciler.node.nvml.driver import Driver, DriverUnusableError
from reconciler.node.nvml.findings import DeviceUse, Findings, ports_alone
from reconciler.node.nvml.gpus import NvmlGpus, had_gpus
from reconciler.node.nvml.usage import NvmlUse
from reconciler.node.nvml.xids import XidWatch
from reconciler.node.use.recorder import Read
from reconciler.node.use.simulation import SimulatedUse
from solver.model.cluster import DeviceId, Node
from solver.model.quantities import Instant

MODULE: Final = "pynvml"
"""Of the package nvidia-ml-py."""

WhoseGpus = Literal["auto", "declared", "nvml"]
"""What says which GPUs a machine has: Git alone (`declared`), or NVIDIA's driver too; `auto`: if it has any."""


def driver_here() -> Driver | str:
    """This machine's driver, or why there is none. Raises DriverUnusableError where there is one that can't be used."""
    try:
        from reconciler.node.nvml.library.nvml import find_driver
    except ModuleNotFoundError as error:
        if error.name != MODULE:
            raise
        return "nvidia-ml-py is not installed; `quorate[agent]` has it"
    return find_driver()


def driver_for(whose: WhoseGpus, folder: Path) -> Driver | None:
    """The driver to ask for the GPUs that `folder` knows of; None: they are simulated.

    Raises DriverUnusableError where there are to be real ones, or were, and no driver: none are simulated in their place.
    """
    if whose == "declared":
        return None
    driver = driver_here()
    if not isinstance(driver, str) and (whose == "nvml" or had_gpus(folder) or driver.gpus()):
        return driver
    if whose == "nvml":
        raise DriverUnusableError(
            f"this machine shows no GPU of NVIDIA: {driver}. Declared GPUs can be simulated instead"
        )
    if had_gpus(folder):
        raise DriverUnusableError(
            f"this machine had GPUs of NVIDIA, and shows none now ({driver}): none are simulated in their place. Repair its driver"
        )
    return None


def gpus_of(driver: Driver | None, folder: Path) -> NodeGpus:
    """The GPUs that tasks are given; what has to be kept of them is in `folder`."""
    return DeclaredGpus(folder) if driver is None else NvmlGpus(folder, driver)


def use_of(driver: Driver | None, folder: Path, declared: Callable[[], Iterable[Node]]) -> DeviceUse | None:
    """The driver to ask whether devices of the `declared` nodes are free again; None: they are simulated."""
    return None if driver is None else DeviceUse(NvmlGpus(folder, driver), driver, declared)


def samples_of(
    driver: Driver | None,
    folder: Path,
    declared: Callable[[], Iterable[Node]],
    in_use: Callable[[], Collection[DeviceId]],
    clock: Clock,
    failed: Callable[[str], None],
) -> Read:
    """What is asked for samples of the GPUs of the `declared` nodes.

    `in_use`: which of those tasks use, if they are simulated. `failed`: hears why one can't be asked.
    """
    if driver is None:
        return SimulatedUse(declared, in_use, clock).read
    return NvmlUse(NvmlGpus(folder, driver), driver, declared, failed).read


class Looks(NamedTuple):
    """How an agent reads its node's hardware. Of simulated GPUs there is nothing to read. `watch` hears of errors until stopped."""

    read: Callable[[Instant], NodeFacts | None]
    watch: XidWatch | None = None


def looks_of(driver: Driver | None, folder: Path, declared: Callable[[], Node | None], clock: Clock) -> Looks:
    """Of the `declared` node that this machine is, with the same GPUs as `gpus_of`."""
    if driver is None:
        return Looks(lambda at: ports_alone(declared(), at))
    gpus, watch = NvmlGpus(folder, driver), XidWatch(driver, clock)
    watch.start()
    return Looks(Findings(gpus, driver, watch, declared).read, watch)
