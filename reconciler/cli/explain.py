"""`quorate explain`: what a field means, straight from the schemas."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Literal

import click

from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.documents.fieldhelp import FieldHelp, UnknownFieldError, field_help, kinds_help
from solver.model.document import API_VERSION, Document

_WIDTH = 100


class Explanation(Document, frozen=True, omit_defaults=False):
    """What `-o json` prints: one field, or every kind."""

    fields: tuple[FieldHelp, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Explanation"] = "Explanation"


@click.command(short_help="Say what a field means.")
@click.argument("field", metavar="[FIELD.PATH]", default="")
@output_option("text", "json")
def explain(field: str, output: str) -> None:
    """Say what FIELD.PATH means, such as queue.spec.quota.guaranteed; without it, list the kinds of document."""
    try:
        fields = (field_help(field),) if field else kinds_help()
    except UnknownFieldError as error:
        raise CommandFailedError(str(error), fix=error.fix, exit_code=ExitCode.USAGE) from None
    if output == "json":
        print_json(Explanation(fields))
    else:
        click.echo("\n".join(_page(fields[0]) if field else _kinds(fields)))


def _kinds(kinds: tuple[FieldHelp, ...]) -> Iterator[str]:
    for kind in kinds:
        yield kind.path
        yield from _paragraph(kind.description, "    ")


def _page(field: FieldHelp) -> Iterator[str]:
    yield f"{field.path}  <{field.type}>{_standing(field)}"
    yield ""
    yield from _paragraph(field.description, "  ")
    if field.limits:
        yield f"  Limits: {', '.join(field.limits)}."
    if field.examples:
        yield f"  Examples: {', '.join(field.examples)}."
    if field.fields:
        yield ""
        yield "Fields:"
        yield from _entries(field.fields)


def _entries(fields: tuple[FieldHelp, ...]) -> Iterator[str]:
    for field in fields:
        yield f"  {field.path.rpartition('.')[2]}  <{field.type}>{_standing(field)}"
        yield from _paragraph(field.description, "      ")


def _standing(field: FieldHelp) -> str:
    if field.required:
        return "  required"
    return f"  default: {field.default}" if field.default else ""


def _paragraph(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
