"""`quorate agents`: which machines may speak for nodes; said to the control plane, on the node, or beside its authority."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from reconciler.api.agent_payloads import AgentView
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.params import Address, AddressParam
from reconciler.cli.tables import print_table
from reconciler.cli.times import local, span
from reconciler.model.clock import SystemClock
from solver.model.quantities import Instant

if TYPE_CHECKING:
    from reconciler.backends.baremetal.join_token import JoinToken


@click.group(short_help="Say which machines may speak for nodes.")
def agents() -> None:
    """Agents of nodes: which machines may join, have joined, and may not any more."""


@agents.command("list", short_help="List the agents and their certificates.")
@output_option("text", "json")
@server_option
def list_(output: str, server: str | None) -> None:
    """List the nodes that have, had or may get an agent."""
    with api_client(server) as client:
        found = client.agents.all()
    if output == "json":
        print_json(found)
    elif found.items:
        now = SystemClock().now()
        print_table(
            ("NODE", "STATE", "JOINED", "RENEWED", "CERTIFICATE UNTIL", "SAID"),
            (_row(each, now) for each in found.items),
        )
    else:
        click.echo("no agents: `quorate agents token NODE` lets one join")


@agents.command(short_help="Make a token with which a node joins, and print it once.")
@click.argument("node")
@click.option(
    "--for", "until", default="", metavar="SPAN|TIME", help="For how long it is good; 1h unless stated, 168h at most."
)
@output_option("text", "json")
@server_option
def token(node: str, until: str, output: str, server: str | None) -> None:
    """Print a token with which one agent may join as NODE, once, in place of the one made before. It can't be shown again."""
    with api_client(server) as client:
        made = client.agents.token(node, until)
    if output == "json":
        print_json(made)
    else:
        click.echo(made.token)


@agents.command(short_help="Take back what a node was given.")
@click.argument("node")
@output_option("text", "json")
@server_option
def revoke(node: str, output: str, server: str | None) -> None:
    """Let no certificate and no token of NODE count any more. What runs there goes on; nothing is heard of it or told to it."""
    with api_client(server) as client:
        found = client.agents.revoke(node)
    if output == "json":
        print_json(found)
    else:
        click.echo(f"{node}: revoked. A new token lets it join again")


@agents.command(short_help="On the node: get its certificate, by a token.")
@click.option(
    "--server",
    type=AddressParam(),
    required=True,
    metavar="HOST:PORT",
    help="Where the control plane listens for agents.",
)
@click.option(
    "--token-file",
    "token_file",
    type=click.File("r", errors="replace"),
    metavar="FILE",
    help="Where the token is; - for standard input; else QUORATE_JOIN_TOKEN.",
)
@click.option(
    "--identity",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Where the node's key and certificate are kept from then on.",
)
def join(server: Address, token_file: TextIO | None, identity: Path) -> None:
    """Become the agent of the node that the token is for. Run again after a failure, it goes on where it was."""
    from reconciler.backends.baremetal.key_files import KeyFileError
    from reconciler.node.agent.join import ControlPlaneUnreachableError, JoinRefusedError
    from reconciler.node.agent.join import join as join_as

    try:
        joined = join_as(server.host, server.port, _token(token_file), identity)
    except ControlPlaneUnreachableError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.SERVER_UNREACHABLE) from error
    except JoinRefusedError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.NOT_AUTHORISED) from error
    except KeyFileError as error:
        raise CommandFailedError(str(error)) from error
    click.echo(f"joined as {joined.node}; the certificate is good until {local(joined.says.until)} and renewed before")


@agents.command(short_help="Beside the control plane: let another authority follow.")
@click.option(
    "--authority",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The control plane's authority of agents: agents/authority.pem of its state folder.",
)
def rotate(authority: Path) -> None:
    """Add another authority, which agents learn of within a day; from then on it signs, and a day later it is the only one."""
    from reconciler.backends.baremetal.authority_file import AuthorityFile
    from reconciler.backends.baremetal.certificates import LIFE, fingerprint
    from reconciler.backends.baremetal.key_files import KeyFileError

    now = SystemClock().now()
    try:
        roots = AuthorityFile(authority).rotate(now)
    except KeyFileError as error:
        raise CommandFailedError(str(error)) from error
    name = fingerprint(roots[-1].certificate)
    click.echo(
        f"{name} signs from {local(now.after(LIFE))} on. Copy {authority} to every other control plane before then"
    )


def _token(file: TextIO | None) -> JoinToken:
    from reconciler.backends.baremetal.join_token import JoinTokenError, read_token

    # Never an argument: those are seen by every user of the machine.
    written = str(file.read() if file is not None else os.environ.get("QUORATE_JOIN_TOKEN", ""))
    if not written.strip():
        where = "--token-file is empty" if file is not None else "neither --token-file nor QUORATE_JOIN_TOKEN is given"
        raise CommandFailedError(f"there is no token: {where}", fix="Make one with `quorate agents token NODE`.")
    try:
        return read_token(written)
    except JoinTokenError as error:
        raise CommandFailedError(str(error)) from error


def _row(agent: AgentView, now: Instant) -> list[str]:
    said = f"revoked by {agent.revoked_by} {_ago(agent.revoked_at, now)}" if agent.revoked_at is not None else ""
    invited = f"a token is good until {local(agent.invited_until)}" if agent.invited_until is not None else ""
    return [
        agent.node,
        agent.state,
        _ago(agent.joined_at, now),
        _ago(agent.renewed_at, now),
        local(agent.until) if agent.until is not None else "",
        "; ".join(filter(None, (said, invited))),
    ]


def _ago(then: Instant | None, now: Instant) -> str:
    return f"{span(now - then)} ago" if then is not None else ""
