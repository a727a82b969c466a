"""The options of `quorate run` for connections to its API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.params import DurationParam
from reconciler.connections.limits import USUAL_TIMEOUTS, RequestTimeouts

if TYPE_CHECKING:
    from reconciler.server.settings import ConnectionSettings

OPTIONS = (
    click.option(
        "--connections-max",
        type=click.IntRange(min=1),
        metavar="N",
        help="Connections to the API at once.  [default: what the limit of open files leaves, at most 1024]",
    ),
    click.option(
        "--connections-per-peer-max",
        type=click.IntRange(min=1),
        metavar="N",
        help="Connections to the API from one address at once (IPv6: from one /64).  [default: half of --connections-max]",
    ),
    click.option(
        "--header-timeout",
        type=DurationParam(),
        default=f"{USUAL_TIMEOUTS.header_s:g}s",
        show_default=True,
        help="The longest that the header of a request may take.",
    ),
    click.option(
        "--body-timeout",
        type=DurationParam(),
        default=f"{USUAL_TIMEOUTS.body_s:g}s",
        show_default=True,
        help="The longest that its body may take, and a second more for each KiB that has come.",
    ),
    click.option(
        "--idle-timeout",
        type=DurationParam(),
        default=f"{USUAL_TIMEOUTS.idle_s:g}s",
        show_default=True,
        help="How long a connection stays open between two requests.",
    ),
)


def connections_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def connection_settings(given: dict[str, Any]) -> ConnectionSettings:
    """Takes these options out of `given`."""
    from reconciler.server.settings import ConnectionSettings

    return ConnectionSettings(
        connections_max=given.pop("connections_max"),
        per_peer_max=given.pop("connections_per_peer_max"),
        timeouts=RequestTimeouts(*(given.pop(f"{name}_timeout").seconds for name in ("header", "body", "idle"))),
    )
