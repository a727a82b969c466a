"""How commands print: results to stdout, errors to stderr with place, problem and fix, colour only on a terminal."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, TextIO

import click

from reconciler.analysis.reports.plain_text import printable
from reconciler.cli.exits import ExitCode

__all__ = [
    "CommandFailedError", "csv_lines", "output_option", "print_error", "print_json", "print_warning", "printable", "styled",
]  # fmt: skip


class CommandFailedError(Exception):
    """A command can't do what was asked. `place` is a file, job or server; `fix` is what to do about it."""

    def __init__(self, problem: str, *, place: str = "", fix: str = "", exit_code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem
        self.fix = fix
        self.exit_code = exit_code


def output_option(*formats: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `-o`, the same on every command; the first format is the default. Passed as `output`."""
    choice = click.Choice(formats)
    return click.option(
        "-o", "--output", type=choice, default=formats[0], show_default=True, help="How to print the result."
    )


def print_error(problem: str, place: str = "", fix: str = "") -> None:
    """One error on stderr."""
    _print_problem(styled("error:", sys.stderr, fg="red", bold=True), problem, place, fix)


def print_warning(problem: str, place: str = "", fix: str = "") -> None:
    """What is done all the same, but should be looked at, on stderr."""
    _print_problem(styled("warning:", sys.stderr, fg="yellow", bold=True), problem, place, fix)


def _print_problem(kind: str, problem: str, place: str, fix: str) -> None:
    where = f"{place}: " if place else ""
    click.echo(f"{kind} {printable(where + problem)}", err=True)
    if fix:
        click.echo(f"  {printable(fix)}", err=True)


def print_json(value: object) -> None:
    """A document, or data for programs with its apiVersion, as one line of JSON."""
    from solver.model.document import encode

    click.echo(encode(value).decode("utf-8"))


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Line by line, as RFC 4180 quotes cells; what is not known is empty."""
    for row in (columns, *([_cell(value) for value in row] for row in rows)):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(row)
        yield line.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def styled(text: str, stream: TextIO, **style: Any) -> str:
    """Text in colour, where the stream is a terminal and NO_COLOR is not set."""
    return click.style(text, **style) if stream.isatty() and not os.environ.get("NO_COLOR") else text
