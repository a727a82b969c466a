"""A batch script on the command line of `quorate submit`: read, and what is passed over said on stderr."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import folder_here, unreadable
from reconciler.cli.output import CommandFailedError, printable
from reconciler.documents.slurm.directives import IgnoredDirective, ScriptError, has_directives
from reconciler.documents.slurm.job import Submitter, job_of
from reconciler.documents.slurm.names import KnownNames


def is_script(path: str) -> bool:
    """The file is there, begins with `#!`, and has lines for sbatch."""
    try:
        return Path(path).is_file() and has_directives(_text(path))
    except (OSError, UnicodeDecodeError):
        # It is no text that can be read; it was named as a command on purpose.
        return False


def why_no_script(path: str) -> str:
    """Why a file that looks like a batch script is none; "": it does not look like one, or may be a command that tasks find."""
    try:
        text = _text(path) if not os.path.isabs(path) and Path(path).is_file() else ""
    except (OSError, UnicodeDecodeError):
        return ""
    if "\n#SBATCH" in f"\n{text}":
        return (
            "its #SBATCH lines are not before the first command"
            if text.startswith("#!")
            else "it does not begin with #!"
        )
    return "it has no #SBATCH lines" if text.startswith("#!") else ""


def document_of(
    path: str, arguments: Sequence[str], strict: bool, known: Callable[[], KnownNames] | None = None
) -> dict[str, Any]:
    """The Job document that a script asks for; with `strict`, nothing of it may be passed over.

    `known`: asks for the names of the policy, where it takes them to know the queue and class; None: the queue is said elsewhere.
    """
    try:
        batch = job_of(_text(path), path, arguments, Submitter(folder_here(), os.environ))
    except ScriptError as error:
        raise CommandFailedError(str(error), place=f"{path}:{error.line}", fix=error.fix) from error
    except OSError as error:
        raise unreadable(error, Path(path)) from error
    if not batch.is_plain:
        batch = batch.placed(known() if known else None)
    if batch.passed_over and strict:
        told = "; ".join(_said(path, each) for each in batch.passed_over)
        fix = "Take it out of the script, or leave --strict out."
        raise CommandFailedError(f"not followed: {told}", fix=fix, exit_code=ExitCode.USAGE)
    for each in batch.passed_over:
        kind = "ignored" if each.flag.startswith("-") else "note"
        click.echo(f"{kind}: {_said(path, each)}", err=True)
    return batch.document


def _said(path: str, each: IgnoredDirective) -> str:
    return printable(f"{path}:{each.line}: {each.flag}: {each.why}")


def _text(path: str) -> str:
    return Path(path).read_bytes().decode()
