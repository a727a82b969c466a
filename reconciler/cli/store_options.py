"""The options that name the database of a control plane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click


class StoreParam(click.ParamType[str]):
    """The URL of a PostgreSQL database, without a password."""

    name = "url"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it; a usage error for another kind of URL, and for one with a password."""
        from reconciler.protocols.store_errors import StoreUnusableError
        from reconciler.store.engines import postgresql_url

        try:
            url = postgresql_url(str(value))
        except StoreUnusableError as error:
            self.fail(str(error), param, ctx)
        if url.password or "password" in url.query:
            self.fail(
                "it has a password, which every user of this machine can read off the list of processes. Put it into a file "
                "(--store-password-file), or into that of PGPASSFILE",
                param,
                ctx,
            )
        return str(value)


if TYPE_CHECKING:
    from reconciler.access.audit_keys import AuditKeyFile

OPTIONS = (
    click.option(
        "--store",
        type=StoreParam(),
        metavar="URL",
        help="The PostgreSQL database of the control plane: postgresql://USER@HOST/DATABASE.  [default: SQLite in --state]",
    ),
    click.option(
        "--store-password-file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The password for --store (mode 0600).  [default: as libpq finds it: PGPASSFILE, else ~/.pgpass]",
    ),
)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Both of them."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


audit_keys_option = click.option(
    "--audit-keys",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The keys of the audit chain, one a line, the newest last (mode 0600).  [default: audit-keys in --state]",
)
"""The option that names the file with the keys of the audit chain. Passed as `audit_keys`."""


def audit_key_file(state: Path | None, store: str | None, audit_keys: Path | None) -> AuditKeyFile | None:
    """The file that is meant; None: with `--store` alone none is."""
    from reconciler.access.audit_keys import AuditKeyFile

    if audit_keys is None and store is not None and state is None:
        return None
    return AuditKeyFile(audit_keys or key_file_of(state))


def key_file_of(state: Path | None) -> Path:
    """The keys of a state folder; None: of the usual one."""
    from reconciler.access.token_file import default_state_folder
    from reconciler.server.folder import StateFolder

    return StateFolder((state or default_state_folder()).absolute()).audit_keys


def audit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those of `quorate run`: keys, and the file to which anchors are added."""
    anchors = click.option(
        "--audit-anchors",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Where it is noted how far the audit chain is, every ten minutes.  [default: audit-anchors in --state]",
    )
    return audit_keys_option(anchors(command))


def audit_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Taken out of the options of `quorate run`, as Settings has them."""
    return {name: options.pop(name) for name in ("audit_keys", "audit_anchors")}
