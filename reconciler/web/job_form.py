"""The form for a job of equal tasks, as the YAML document that it stands for: what is wrong with a line is wrong with a field."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from reconciler.model.problem import InvalidDocumentsError, Problem, SourceLocation, problem_at

FILE: Final = "job"
"""What messages call the document."""

FIELDS: Final = (
    *("name", "queue", "class", "kind", "gpus", "gpu-type", "tasks", "cpu", "memory", "time-limit", "image", "command"),
)
"""Of the form, in their order."""

KINDS: Final = ("gang", "service", "interactive")
_NEEDED: Final = ("name", "queue", "tasks", "command")


class FormLine(NamedTuple):
    """A line of the document, and the field that it comes from; "": from none."""

    text: str
    field: str = ""


class PlacedProblem(NamedTuple):
    """What is wrong, where, and the line as it was written. `field`: of the form; "": of none, or there is no form."""

    problem: Problem
    text: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class JobForm:
    """What was typed, field by field."""

    fields: Mapping[str, str]

    def __getitem__(self, field: str) -> str:
        """What was typed there, without blanks around it."""
        return self.fields.get(field, "").strip()

    def lines(self) -> list[FormLine]:
        """The document, a field on each line. Raises InvalidDocumentsError for what no document can say, and what is missing."""
        lines = self.draft
        missing = [
            problem_at(FILE, SourceLocation(number, 1), "missing-field", "this is missing", "Fill it in.")
            for number, line in enumerate(lines, 1)
            if line.field in _NEEDED and not self[line.field]
        ]
        if missing:
            raise InvalidDocumentsError(missing)
        return lines

    @property
    def draft(self) -> list[FormLine]:
        """The document as far as it goes, whatever is missing."""
        return list(self._lines())

    def _lines(self) -> Iterator[FormLine]:
        yield FormLine("apiVersion: quorate.dev/v1")
        yield FormLine("kind: Job")
        yield FormLine("metadata:")
        yield FormLine(f"  name: {_text(self['name'])}", "name")
        yield FormLine("spec:")
        yield FormLine(f"  queue: {_text(self['queue'])}", "queue")
        yield from self._given("  priorityClass", "class")
        if self["kind"] != KINDS[0]:
            yield from self._given("  type", "kind")
        yield from self._given("  timeLimit", "time-limit")
        yield FormLine("  taskGroups:")
        # What is said of the group as a whole is that it has nothing to run.
        yield FormLine("    - name: worker", "command")
        yield FormLine(f"      replicas: {_number(self['tasks'])}", "tasks")
        yield FormLine("      shape:")
        yield FormLine(f"        gpus: {_number(self['gpus'] or '0')}", "gpus")
        if self["gpu-type"]:
            yield FormLine(f"        gpuTypes: [{_text(self['gpu-type'])}]", "gpu-type")
        yield from self._given("        cpu", "cpu")
        yield from self._given("        memory", "memory")
        if self["image"]:
            yield FormLine("  container:")
            yield FormLine(f"    image: {_text(self['image'])}", "image")
        yield FormLine(f"  command: {self._command()}", "command")

    def _given(self, key: str, field: str) -> Iterator[FormLine]:
        if self[field]:
            yield FormLine(f"{key}: {_text(self[field])}", field)

    def _command(self) -> str:
        """Words as a shell takes them apart."""
        try:
            return json.dumps(shlex.split(self["command"]), ensure_ascii=False)
        except ValueError:
            # A quote that is not closed. It stays one text, and the schema wants a list.
            return _text(self["command"])


def placed(error: InvalidDocumentsError, lines: Sequence[FormLine]) -> list[PlacedProblem]:
    """Every problem with the line that it is about."""
    nowhere = FormLine("")
    found = (
        (problem, lines[problem.line - 1] if problem.line <= len(lines) else nowhere) for problem in error.problems
    )
    return [PlacedProblem(problem, line.text.strip(), line.field) for problem, line in found]


def _text(typed: str) -> str:
    """A text of YAML that says just this: every text of JSON is one."""
    return json.dumps(typed, ensure_ascii=False)


def _number(typed: str) -> str:
    """What is no number is a text, and told of as one."""
    return typed if typed.isascii() and typed.isdecimal() and len(typed) < 10 else _text(typed)
