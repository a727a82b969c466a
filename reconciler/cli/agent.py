"""`quorate agent`: runs the tasks of one node."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from reconciler.cli.accounts_options import accounts_of, accounts_options
from reconciler.cli.output import CommandFailedError
from reconciler.cli.params import Address, AddressParam, keep_logs_option

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from reconciler.model.clock import Clock
    from reconciler.node.agent.agent import NodeAgent
    from reconciler.node.agent.folder import AgentFolder
    from reconciler.node.agent.order_handler import OrderHandler
    from reconciler.node.local_driver import WhoseGpus
    from solver.model.cluster import Node, NodeName
    from solver.model.quantities import Duration


@click.command(short_help="Run the tasks of one node.")
@click.option(
    "--server",
    "servers",
    type=AddressParam(),
    multiple=True,
    required=True,
    help="Where a control plane listens for agents; repeatable: whichever of them leads is served.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/quorate"),
    show_default=True,
    help="The folder for what must not be lost: tasks, their logs, the newest epoch.",
)
@click.option(
    "--identity",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The node's certificate and key, as `quorate agents join` wrote them.  [default: identity.pem in --state]",
)
@click.option(
    "--address",
    default="",
    help="Where tasks on other nodes reach this one.  [default: where the control plane sees it come from]",
)
@accounts_options
@click.option(
    "--gpus",
    type=click.Choice(["auto", "declared", "nvml"]),
    default="auto",
    show_default=True,
    help="Whose word counts for this node's GPUs: that of Git alone, or of NVIDIA's driver too; auto: of a driver that has any.",
)
@keep_logs_option
def agent(
    servers: tuple[Address, ...],
    state: Path,
    identity: Path | None,
    address: str,
    gpus: WhoseGpus,
    run_as_submitter: bool,
    accounts: tuple[str, ...],
    keep_logs: Duration | None,
) -> None:
    """Serve whichever control plane leads, and keep this node's tasks running while none does.

    Stop it with Ctrl-C or SIGTERM: what runs goes on, and the next start on the same state folder finds it.
    """
    from reconciler.backends.baremetal.key_files import KeyFileError
    from reconciler.model.clock import SystemClock
    from reconciler.node.agent.agent import NodeAgent
    from reconciler.node.agent.folder import AgentFolder, AgentFolderError
    from reconciler.node.agent.identity import read_identity
    from reconciler.node.local import StateFolderError
    from reconciler.node.nvml.driver import DriverUnusableError
    from reconciler.server.logs import configure_logs, logger
    from reconciler.server.terms import IdentityError, open_to_accounts

    folder, clock, mapped = AgentFolder(state.absolute()), SystemClock(), accounts_of(run_as_submitter, accounts)
    configure_logs()
    try:
        with folder.locked():
            who = read_identity(identity.absolute() if identity else folder.identity)
            log = logger().bind(node=who.node)
            if mapped is not None:
                open_to_accounts(folder.path, folder.tasks)
            orders = _order_handler(who.node, folder, clock, gpus, mapped, log)
            if keep_logs is not None:
                _keep_logs(folder, clock, keep_logs, log)
            asyncio.run(
                _until_told(NodeAgent(orders, [(each.host, each.port) for each in servers], who, clock, log, address))
            )
    except (AgentFolderError, DriverUnusableError, IdentityError, KeyFileError, StateFolderError) as failure:
        raise CommandFailedError(str(failure)) from failure


def _keep_logs(folder: AgentFolder, clock: Clock, keep: Duration, log: FilteringBoundLogger) -> None:
    """Delete old ones for as long as this process lives."""
    from reconciler.node.local.folders import StateFolders
    from reconciler.node.local.retention import AttemptRetention

    retention = AttemptRetention(StateFolders(folder.tasks), clock, keep, log)
    Thread(target=retention.run, name="logs", daemon=True).start()


def _order_handler(
    node: NodeName,
    folder: AgentFolder,
    clock: Clock,
    whose: WhoseGpus,
    accounts: Mapping[str, str] | None,
    log: FilteringBoundLogger,
) -> OrderHandler:
    """What this machine does as a node; `accounts` None: as this user. Raises DriverUnusableError, StateFolderError."""
    from reconciler.node.agent.containers import ContainerWatch
    from reconciler.node.agent.hardware import Hardware
    from reconciler.node.agent.order_handler import OrderHandler
    from reconciler.node.local.accounts import Submitters
    from reconciler.node.local.machine import equipment_of_this_machine
    from reconciler.node.local_driver import driver_for, gpus_of, looks_of, samples_of, use_of
    from reconciler.node.use.recorder import UseRecorder

    kept = folder.tasks / "gpus"
    driver = driver_for(whose, kept)

    def own() -> tuple[Node, ...]:
        declared = folder.declared()
        return (declared,) if declared else ()

    use = use_of(driver, kept, own)
    equipment = equipment_of_this_machine(folder.tasks, use)
    log.info("runtimes", **equipment.told)
    containers = ContainerWatch(equipment.runtimes.containers)
    containers.start()
    looks = looks_of(driver, kept, folder.declared, clock)
    hardware = Hardware(containers.added_to(looks.read))
    submitters = Submitters(accounts) if accounts is not None else None

    def failed(why: str) -> None:
        log.warning("gpu-use-unreadable", message=why)

    samples = samples_of(driver, kept, own, lambda: orders.devices_at_work(), clock, failed)  # noqa: PLW0108  (there is none yet)
    recorder = UseRecorder(samples, lambda: orders.sample_every(), clock, failed)  # noqa: PLW0108
    gpus = partial(gpus_of, driver)
    orders = OrderHandler(node, folder, clock, gpus, equipment, hardware, submitters, recorder.after)
    recorder.start()
    return orders


async def _until_told(served: NodeAgent) -> None:
    """Until SIGTERM or SIGINT."""
    running = asyncio.ensure_future(served.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with suppress(asyncio.CancelledError):
        await running
