"""Documents as they were declared: the value in code together with its place, for checks that look across documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from reconciler.documents.reader import Located
from reconciler.model.problem import InvalidDocumentsError, Path, Problem, Severity, SourceLocation, problem_at
from solver.model.document import from_builtins

T = TypeVar("T")
_ELEMENT = re.compile(r"\[(\d+)\]|\.([^.\[]+)")


@dataclass(frozen=True)
class Declaration(Generic[T]):
    """One document of one file, as `value` of its kind's type."""

    file: str
    name: str
    document: Located
    value: T

    @property
    def origin(self) -> str:
        """`file:line` of the document, as messages cite it."""
        return self.origin_of(("metadata", "name"))

    def origin_of(self, path: Path) -> str:
        """`file:line` of the value at a path."""
        return f"{self.file}:{self.place(path).line}"

    def holding(self, value: T) -> Declaration[T]:
        """The same document with another value."""
        return Declaration(self.file, self.name, self.document, value)

    def place(self, path: Path) -> SourceLocation:
        """Line and column of the value at a path."""
        return self.document.place(path)

    def problem(self, path: Path, code: str, message: str, fix: str = "", severity: Severity = "error") -> Problem:
        """A problem with the value at a path."""
        return problem_at(self.file, self.place(path), code, message, fix, severity)


def declare(document: Located, file: str, fields: object, kind: type[T], at: Path = ("spec",)) -> Declaration[T]:
    """Turn checked fields into a value; raises InvalidDocumentsError where a schema is laxer than the type.

    `at` is where in the document the fields stand.
    """
    try:
        value = from_builtins(fields, kind)
    except msgspec.ValidationError as error:
        problem, _, inside = str(error).partition(" - at `$")
        path = at + path_of(inside.rstrip("`"))
        raise InvalidDocumentsError(
            [problem_at(file, document.place(path), "malformed", problem.rstrip("."))]
        ) from None
    metadata = document.value.get("metadata", {}) if isinstance(document.value, dict) else {}
    return Declaration(file, str(metadata.get("name", "")), document, value)


def path_of(written: str) -> Path:
    """The path that msgspec writes as `.nodes[0].cpu`."""
    return tuple(int(index) if index else key for index, key in _ELEMENT.findall(written))
