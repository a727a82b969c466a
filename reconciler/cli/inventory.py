"""`quorate inventory`: the GPUs of this machine, as NVIDIA's driver shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.tables import print_table

if TYPE_CHECKING:
    from reconciler.node.nvml.inventory import GpuFound, GpuInventory

_HEADINGS: Final = ("GPU", "GPU TYPE", "UUID", "MEMORY", "MIG", "STATE")


@click.command(short_help="Show the GPUs of this machine.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/quorate"),
    show_default=True,
    help="The folder of this machine's agent, which knows what Git declares of it.",
)
@output_option("text", "json")
def inventory(state: Path, output: str) -> None:
    """Show what NVIDIA's driver finds in this machine, with the GPU types of NodePools.

    Where the machine has an agent, also what of it is otherwise than Git has it. A machine without GPUs is no error.
    """
    from reconciler.node.agent.folder import AgentFolder
    from reconciler.node.local_driver import driver_here
    from reconciler.node.nvml.driver import DriverError
    from reconciler.node.nvml.inventory import GpuInventory, differences, read_inventory

    try:
        driver = driver_here()
        found = GpuInventory(absent=driver) if isinstance(driver, str) else read_inventory(driver)
    except DriverError as error:
        raise CommandFailedError(str(error)) from error
    try:
        declared = AgentFolder(state).declared()
        if declared is not None:
            found = msgspec.structs.replace(found, differences=tuple(differences(found, declared)))
    except PermissionError as error:
        click.echo(
            f"{error.filename}: {error.strerror}, so that what Git declares is not known. Try it as root", err=True
        )
    if output == "json":
        print_json(found)
        return
    _print(found)


def _print(found: GpuInventory) -> None:
    if found.absent:
        click.echo(f"no GPU of NVIDIA: {found.absent}")
    else:
        _print_gpus(found)
    for difference in found.differences:
        click.echo(difference)


def _print_gpus(found: GpuInventory) -> None:
    click.echo(f"driver {found.driver}")
    rows = ([str(number), *_row(gpu)] for number, gpu in enumerate(found.gpus))
    print_table(_HEADINGS, rows, right=("GPU", "MEMORY"))
    for island in found.islands:
        click.echo(f"joined by NVLink: {', '.join(island)}")
    for clique in sorted({gpu.clique for gpu in found.gpus if gpu.clique}):
        click.echo(f"in the NVLink domain {clique}")
    for failure in found.failures:
        click.echo(f"does not answer: {failure}")


def _row(gpu: GpuFound) -> list[str]:
    return [gpu.gpu_type, gpu.uuid, str(gpu.memory), ", ".join(_mig(gpu)), ", ".join(_state(gpu)) or "well"]


def _mig(gpu: GpuFound) -> Iterator[str]:
    if gpu.mig is None:
        return
    yield "on" if gpu.mig.enabled else "off"
    if gpu.mig.pending != gpu.mig.enabled:
        yield f"{'on' if gpu.mig.pending else 'off'} after a reset"
    yield from (f"{one.profile}@{one.start}" for one in gpu.mig.instances)
    yield from (f"unknown {one}" for one in gpu.mig.unknown)


def _state(gpu: GpuFound) -> Iterator[str]:
    if gpu.remap_failed:
        yield "a row of memory could not be remapped"
    if gpu.remap_pending:
        yield "needs a reset to remap a row of memory"
    if gpu.uncorrectable_errors:
        yield f"{gpu.uncorrectable_errors} uncorrectable errors of memory"
    if gpu.throttle_reasons:
        yield f"slowed down: {' and '.join(gpu.throttle_reasons)}"
