"""Runs a command beside a private PostgreSQL: `python -m hack.postgresql python -m pytest -m postgresql`."""

from __future__ import annotations

import os
import subprocess
import sys

import click

from hack.postgresql.server import NoPostgresqlError, private_server

VARIABLE = "QUORATE_TEST_POSTGRESQL"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True)
def main(command: tuple[str, ...]) -> None:
    """Run COMMAND with the server's URL in QUORATE_TEST_POSTGRESQL, and end as it ends."""
    try:
        with private_server() as server:
            ended = subprocess.run(command, env=os.environ | {VARIABLE: server.url()}, check=False).returncode
    except NoPostgresqlError as error:
        click.echo(str(error), err=True)
        ended = 1
    sys.exit(ended)


if __name__ == "__main__":
    main()
