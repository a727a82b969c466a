"""The options that name the database of a control plane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
