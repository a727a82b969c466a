"""Hostile input by the thousand, and what came of it: `python -m hack.hostile`. Exits with 1 where something got through."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hack.hostile.documents import try_documents
from hack.hostile.repositories import try_repositories
from hack.hostile.reverts import try_reverts
from hack.hostile.signatures import try_signatures

_MUST_BE_ZERO = ("tracebacks", "signals", "escapes", "commands_run", "overdue", "unsigned_accepted")
_MUST_BE_EQUAL = (
    ("reverts", "identical", "tried"),
    ("signatures", "last_good_kept", "tried"),
    ("signatures", "followed", "countable"),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--documents", type=click.IntRange(min=1), default=20_000, show_default=True, help="Documents to read.")
@click.option("--reverts", type=click.IntRange(min=1), default=200, show_default=True, help="Edits to take back.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(documents: int, reverts: int, seed: int, output: str) -> None:
    """Malformed documents, hostile repositories, signatures that do not count, and edits that are taken back."""
    with tempfile.TemporaryDirectory(prefix="quorate-hostile-", ignore_cleanup_errors=True) as folder:
        found = {
            "documents": msgspec.to_builtins(try_documents(seed, documents)),
            "repositories": msgspec.to_builtins(try_repositories(Path(folder))),
            "signatures": msgspec.to_builtins(try_signatures(Path(folder))),
            "reverts": msgspec.to_builtins(try_reverts(Path(folder), seed, reverts)),
        }
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)
    sys.stdout.flush()
    # A reader that never ends would keep the process; it has been counted.
    os._exit(int(got_through(found)))


def got_through(found: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether anything did that must not, or a check refused what is good."""
    bad = any(figures.get(name) for figures in found.values() for name in _MUST_BE_ZERO)
    return bad or any(found[what][one] != found[what][other] for what, one, other in _MUST_BE_EQUAL)


def _print(found: dict[str, dict[str, float]]) -> None:
    console = Console()
    for name, figures in found.items():
        table = Table("figure", "value", title=name)
        for figure, value in figures.items():
            table.add_row(figure.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else str(value))
        console.print(table)


if __name__ == "__main__":
    main()
