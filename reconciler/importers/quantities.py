"""Numbers as sources write them, with the place where one can't be read."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from reconciler.importers.source import SourceRecord
from reconciler.kubernetes.objects.amounts import amount
from reconciler.model.problem import InvalidDocumentsError, Path, problem_of

T = TypeVar("T")


def quantity(record: SourceRecord, path: Path) -> Fraction:
    """A quantity of Kubernetes (`8`, `500m`, `64Gi`); 0 where the field is left out. Raises InvalidDocumentsError."""
    written = record.text(*path)
    return Fraction(0) if not written else parsed(record, path, amount, written)


def parsed(record: SourceRecord, path: Path, parse: Callable[[str], T], written: str) -> T:
    """What a parser makes of a value; what it raises as ValueError becomes a problem with its place."""
    try:
        return parse(written)
    except ValueError as error:
        place = f"{record.file}:{record.line_of(path)}"
        raise InvalidDocumentsError(
            [problem_of(place, "quantity", f"{record.label}: {error}", "Correct it.")]
        ) from error
