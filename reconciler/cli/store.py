"""`quorate store`: copies, restores and examines the database of a control plane, and takes it back by one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.store_options import audit_key_file, audit_keys_option, store_options

if TYPE_CHECKING:
    from reconciler.store.store import SqlStore
from reconciler.cli.status_line import busy


@click.group(short_help="Back up, restore, check or take back the store.")
def store() -> None:
    """The database of a control plane: SQLite in its state folder, or PostgreSQL. These commands speak to no server."""


def of_a_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which store."""
    state = click.option(
        "--state",
        type=click.Path(file_okay=False, path_type=Path),
        help="The state folder that has it.  [default: $QUORATE_STATE, else quorate in the user's state folder]",
    )
    return state(store_options(command))


@store.command(short_help="Write a copy of everything into one file.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@of_a_store
def backup(file: Path, state: Path | None, store: str | None, store_password_file: Path | None) -> None:
    """Write a copy of the store as it is at one moment into FILE; control planes may go on meanwhile."""
    from reconciler.model.clock import SystemClock
    from reconciler.store.backup import back_up

    with opened_store(state, store, store_password_file, is_new=False) as found, busy("copying the store"):
        tail = back_up(found.database, file, SystemClock().now())
    click.echo(f"{tail.rows} rows are in {file}", err=True)


@store.command(short_help="Fill a new database from such a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@of_a_store
@audit_keys_option
def restore(
    file: Path, state: Path | None, store: str | None, store_password_file: Path | None, audit_keys: Path | None
) -> None:
    """Fill a new database, of either kind, from a copy of either kind. No control plane may run on it.

    Jobs that were started after the copy was made are unknown to it: docs/store-copies.md says what follows. With the audit keys,
    the audit chain says that it was restored.
    """
    from reconciler.store.audit import AuditChain
    from reconciler.store.backup import restore as fill
    from reconciler.store.backup import verify

    with _said():
        verify(file)  # before anything is made
    with opened_store(state, store, store_password_file, is_alone=True) as found, busy("filling the store"):
        keys = audit_key_file(state, store, audit_keys)
        chain = AuditChain(keys.keys) if keys is not None and keys.path.exists() else None
        head = fill(found.database, file, chain)
    click.echo(f"the store is as it was at {head.at}", err=True)


@store.command(short_help="Look for damage and contradictions.")
@of_a_store
@output_option("text", "json")
@click.pass_context
def check(
    ctx: click.Context, output: str, state: Path | None, store: str | None, store_password_file: Path | None
) -> None:
    """Read all of the store and say what is wrong with it; exit with 1 if something is."""
    from rich.console import Console

    from reconciler.store.integrity import problems_of

    with (
        opened_store(state, store, store_password_file, is_new=False) as found,
        Console(stderr=True).status("") as status,
    ):
        problems = list(problems_of(found.database, lambda part: status.update(f"Checking {part}")))
    if output == "json":
        print_json({"apiVersion": "quorate.dev/v1", "kind": "StoreCheck", "problems": problems})
    else:
        click.echo("\n".join(problems) or "nothing is wrong")
    ctx.exit(ExitCode.ERROR if problems else ExitCode.OK)


@store.command(short_help="Take the schema back by one version.")
@of_a_store
def downgrade(state: Path | None, store: str | None, store_password_file: Path | None) -> None:
    """Take the schema of the store back to that of the release before, which can then run on it. No control plane may run on it.

    What only this release keeps is lost; jobs go on.
    """
    from reconciler.store.migrations import downgrade as take_back

    with opened_store(state, store, store_password_file, is_new=False, is_alone=True) as found:
        with found.database.changing_schema() as connection:
            version = take_back(connection)
        place = found.database.place
    click.echo(f"{place} has schema version {version}", err=True)


@contextmanager
def opened_store(
    state: Path | None, url: str | None, password_file: Path | None, *, is_new: bool = True, is_alone: bool = False
) -> Iterator[SqlStore]:
    """The store, closed afterwards. `is_new`: it may have to be made or brought up to date; `is_alone`: none may lead it.

    Raises CommandFailedError, also for what goes wrong in the block.
    """
    from reconciler.access.token_file import default_state_folder
    from reconciler.server.folder import StateFolder
    from reconciler.store.store import open_store

    folder = StateFolder((state or default_state_folder()).absolute())
    if url is not None and state is not None:
        raise click.UsageError("--store and --state name two stores. Leave one of them out.")
    with _said(), ExitStack() as closing:
        if url is None and not is_new and not folder.has_store():
            fix = "Name the folder that `quorate run` was given as --state, or its database with --store."
            raise CommandFailedError("there is no store here", place=str(folder.path), fix=fix)
        if url is None and is_alone:
            closing.enter_context(folder.locked())
        found = open_store(url or folder.database, password_file, as_found=not is_new)
        closing.callback(found.close)
        if url is not None and is_alone:
            _refuse_while_led(found)
        yield found


@contextmanager
def _said() -> Iterator[None]:
    """Whatever a person can do something about, as a command says it."""
    from reconciler.access.audit_keys import AuditKeyError
    from reconciler.access.token_file import TokenFileError
    from reconciler.protocols.store_errors import StoreUnusableError
    from reconciler.server.folder import FolderUnusableError
    from reconciler.store.backup import CopyError
    from reconciler.store.migrations import DowngradeRefusedError

    try:
        yield
    except (
        *(AuditKeyError, CopyError, DowngradeRefusedError, FolderUnusableError, StoreUnusableError),
        TokenFileError,
    ) as error:
        raise CommandFailedError(str(error)) from error


def _refuse_while_led(found: SqlStore) -> None:
    leader = found.ledger.leader()
    if leader:
        raise CommandFailedError(
            f"{leader} leads it",
            place=found.database.place,
            fix="Stop every control plane on it; one that was killed leads on for 10s.",
        )
