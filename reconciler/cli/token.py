"""`quorate token`: gives users tokens for the API of a control plane on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.access.token_file import TokenFileError
from reconciler.access.tokens import create_token
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError


@click.group(short_help="Give a user a token for the API.")
def token() -> None:
    """Tokens of users, for the file that `quorate run --tokens` reads. To take one back, delete its line."""


@token.command(short_help="Make a token, and print it once.")
@click.option(
    "--tokens",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The token file; made if there is none.",
)
@click.option("--user", required=True, help="Whose token it is to be.")
@click.option("--group", "groups", multiple=True, help="A group that the user is in; repeatable.")
def create(path: Path, user: str, groups: tuple[str, ...]) -> None:
    """Print a fresh token. The file gets its hash alone: it can't be shown again."""
    try:
        click.echo(create_token(path, user, groups))
    except TokenFileError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.ERROR) from error
