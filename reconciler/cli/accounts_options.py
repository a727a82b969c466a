"""The options that say as which account tasks run, of whatever runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

OPTIONS = (
    click.option(
        "--run-as-submitter",
        is_flag=True,
        help="Run each job as its submitter's account, and no job of a user without one. Needs root.",
    ),
    click.option(
        "--account",
        "accounts",
        multiple=True,
        metavar="USER=ACCOUNT",
        help="The account of a user that has another name than the user. With --run-as-submitter.",
    ),
)


def accounts_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Both, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def accounts_of(run_as_submitter: bool, pairs: tuple[str, ...]) -> dict[str, str] | None:
    """Users and their accounts; None where every job runs as the user of the process. Raises click.UsageError."""
    if not run_as_submitter and pairs:
        raise click.UsageError("--account has an effect only with --run-as-submitter. Add it, or leave both out.")
    found: dict[str, str] = {}
    for pair in pairs:
        user, _, account = pair.rpartition("=")
        if not user or not account or user in found:
            raise click.UsageError(f"--account {pair}: expected USER=ACCOUNT, once for each user.")
        found[user] = account
    return found if run_as_submitter else None
