"""The options of `quorate run` for a cluster of machines with agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.params import Address, AddressParam, DurationParam
from solver.model.quantities import Duration

if TYPE_CHECKING:
    from reconciler.server.settings import AgentsSettings

OPTIONS = (
    click.option(
        "--agents-listen",
        type=AddressParam(),
        help="Jobs run on machines with `quorate agent`, which connects here; port 0: any.",
    ),
    click.option(
        "--agents-authority",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The authority that signs the agents' certificates; the same for all control planes of one --store.  [default: "
        "agents/authority.pem in --state, made if need be]",
    ),
    click.option(
        "--node-lost-after",
        type=DurationParam(),
        help="Jobs begin again elsewhere when their node's agent is not heard of for so long; a HealthPolicy comes first.  "
        "[default: 5m]",
    ),
)


def agents_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def agents_settings(given: dict[str, Any]) -> AgentsSettings | None:
    """Takes these options out of `given`. None: jobs run elsewhere. Raises click.UsageError."""
    from reconciler.backends.baremetal.merge import LOST_AFTER
    from reconciler.server.settings import AgentsSettings

    listen: Address | None = given.pop("agents_listen")
    authority: Path | None = given.pop("agents_authority")
    node_lost_after: Duration | None = given.pop("node_lost_after")
    if listen is None:
        if authority is not None or node_lost_after is not None:
            raise click.UsageError(
                "--agents-authority and --node-lost-after are for --agents-listen. Add it, or leave them out."
            )
        return None
    return AgentsSettings(listen.host, listen.port, authority, node_lost_after or LOST_AFTER)


def refuse_beside_agents(given: dict[str, object]) -> None:
    """`given`: options that say how tasks of this machine run, or that they run somewhere else. Raises click.UsageError."""
    for option, value in given.items():
        if value:
            raise click.UsageError(
                f"With --agents-listen jobs run on machines with agents, and {option} is not for those. Leave one of them out."
            )
