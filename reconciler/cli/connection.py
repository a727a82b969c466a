"""How a command reaches its server, and how what goes wrong on the way becomes one clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from reconciler.access.token_file import TokenFileError
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError
from reconciler.client import (
    DEFAULT_SERVER,
    ApiError,
    Client,
    NotAuthorisedError,
    ServerUnreachableError,
    connect,
)


def server_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--server`, the same on every command that speaks to one. Passed as `server`."""
    told = f"The server's URL; else QUORATE_SERVER, else {DEFAULT_SERVER}."
    return click.option("--server", metavar="URL", help=told)(command)


@contextmanager
def api_client(server: str | None) -> Iterator[Client]:
    """A client; whatever it raises comes out as CommandFailedError with the exit code for it."""
    try:
        with connect(server) as client:
            yield client
    except ServerUnreachableError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.SERVER_UNREACHABLE) from error
    except TokenFileError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.NOT_AUTHORISED) from error
    except NotAuthorisedError as error:
        raise _refused(error, ExitCode.NOT_AUTHORISED) from error
    except ApiError as error:
        raise _refused(error, ExitCode.STALE_PLAN if error.problem.code == "stale-plan" else ExitCode.ERROR) from error


def _refused(error: ApiError, exit_code: ExitCode) -> CommandFailedError:
    """What the server said: its message, which has the first problem of a document, and the others below it."""
    problem = error.problem
    others = (str(other) for other in problem.problems[1:])
    return CommandFailedError("\n  ".join([problem.detail, *others]), fix=problem.fix, exit_code=exit_code)
