"""`quorate replay`: solves a recorded round again; it must come out the same, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.cli.store_options import store_options
from reconciler.protocols.rounds import RoundRecord

if TYPE_CHECKING:
    from solver.milp.optimiser import Optimiser


@click.command(short_help="Decide a recorded round again and compare.")
@click.argument("number", metavar="ROUND", type=click.IntRange(min=1))
@server_option
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="Read the round from a control plane's state folder; no server needs to run.",
)
@store_options
@click.option(
    "--pulp",
    is_flag=True,
    help="State each program in PuLP instead of arrays: the plan has to be the same all the same.",
)
@output_option("text", "json")
@click.pass_context
def replay(
    ctx: click.Context,
    number: int,
    server: str | None,
    state: Path | None,
    store: str | None,
    store_password_file: Path | None,
    pulp: bool,
    output: str,
) -> None:
    """Solve round ROUND again from its recorded snapshot and policy, and compare the plans byte for byte.

    Exits with 1 where they differ.
    """
    if sum(map(bool, (server, state, store))) > 1:
        told = "--server, --state and --store exclude each other: the round comes from one of them"
        raise click.UsageError(told, ctx)
    if store_password_file and not store:
        raise click.UsageError("--store-password-file is for --store. Add that, or leave it out.", ctx)
    from reconciler.control.recording import BadRecordingError
    from reconciler.control.replay import replay as replay_round

    if store:
        record = _from_store(store, store_password_file, number)
    else:
        record = _from_folder(state, number) if state else _from_server(server, number)
    try:
        replayed = replay_round(record, _optimiser(by_pulp=pulp))
    except BadRecordingError as error:
        raise CommandFailedError(str(error), place=f"round {number}") from error
    if output == "json":
        print_json(replayed)
    elif replayed.identical:
        how = ", from the optimiser's recorded answer: a clock had cut it" * replayed.from_recorded_answer
        click.echo(f"round {number}: identical, {replayed.replayed_plan}{how}")
    else:
        click.echo(f"round {number}: different. {printable(replayed.difference)}")
    ctx.exit(ExitCode.OK if replayed.identical else ExitCode.ERROR)


def _optimiser(*, by_pulp: bool) -> Optimiser:
    if by_pulp:
        from solver.milp.pulp_model import optimise_by_pulp

        return optimise_by_pulp
    from solver.milp.highs import optimise

    return optimise


def _from_server(server: str | None, number: int) -> RoundRecord:
    with api_client(server) as client:
        return client.round(number)


def _from_folder(state: Path, number: int) -> RoundRecord:
    from reconciler.server.folder import FolderUnusableError, StateFolder

    folder = StateFolder(state)
    try:
        is_there = folder.has_store()
    except FolderUnusableError as error:
        raise CommandFailedError(str(error)) from error
    if not is_there:
        fix = "Name the folder that `quorate run` was given as --state."
        raise CommandFailedError("no control plane's state here", place=str(state), fix=fix)
    return _from_store(folder.database, None, number)


def _from_store(where: Path | str, password_file: Path | None, number: int) -> RoundRecord:
    from reconciler.protocols.store_errors import StoreUnusableError
    from reconciler.store.store import open_store

    try:
        found = open_store(where, password_file, as_found=True)
        try:
            return found.history.round(number)
        except KeyError:
            raise CommandFailedError(f"there is no round {number}", place=found.database.place) from None
        finally:
            found.close()
    except StoreUnusableError as error:
        raise CommandFailedError(str(error)) from error
