"""What another scheduler's configuration says, record by record, with the line of each field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from reconciler.documents.reader import Located, read_yaml
from reconciler.model.problem import START, InvalidDocumentsError, Path, problem_at

BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one file. The associations of 50,000 users take about 5 MB."""


class SourceFile(NamedTuple):
    """A file of the source, as it was named and as it is."""

    name: str
    raw: bytes


@dataclass(frozen=True, eq=False)
class SourceRecord:
    """One object, line or row: its kind and name as the source calls them, its fields, and where each stands.

    `fields` may nest. `lines`: the line of each field by its path, counted from 1; a field without one stands at `line`.
    """

    file: str
    line: int
    kind: str
    name: str
    fields: Mapping[str, Any]
    lines: Mapping[Path, int]

    @property
    def label(self) -> str:
        """How messages and comments call it."""
        return f"{self.kind} {self.name}" if self.name else self.kind

    @property
    def origin(self) -> str:
        """Where it begins."""
        return f"{self.file}:{self.line}"

    def get(self, *path: str | int) -> Any:
        """The value at a path; None where there is none."""
        value: Any = self.fields
        for step in path:
            if isinstance(value, dict) and isinstance(step, str):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                return None
        return value

    def has(self, *path: str | int) -> bool:
        """Whether the source says something there, if only that it is empty."""
        around = self.get(*path[:-1]) if path[:-1] else self.fields
        step = path[-1]
        return step in around if isinstance(around, dict) else isinstance(around, list) and step in range(len(around))

    def mapping(self, *path: str | int) -> dict[str, Any]:
        """The mapping at a path; empty where there is none."""
        value = self.get(*path)
        return value if isinstance(value, dict) else {}

    def items(self, *path: str | int) -> list[Any]:
        """The list at a path; empty where there is none."""
        value = self.get(*path)
        return value if isinstance(value, list) else []

    def text(self, *path: str | int) -> str:
        """The scalar at a path as text; "" where there is none."""
        value = self.get(*path)
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None or isinstance(value, dict | list) else str(value)

    def line_of(self, path: Path) -> int:
        """The line of a field, or of what is nearest around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)

    def leaves(self, path: Path = ()) -> Iterator[Path]:
        """The paths of all scalars, and of what is empty, at or below a path."""
        value = self.get(*path) if path else self.fields
        if isinstance(value, Mapping) and value:
            for key in value:
                yield from self.leaves((*path, key))
        elif isinstance(value, list) and value:
            for index in range(len(value)):
                yield from self.leaves((*path, index))
        else:
            yield path


def yaml_records(source: SourceFile) -> list[SourceRecord]:
    """The Kubernetes objects of a YAML or JSON file, those of a List one by one. Raises InvalidDocumentsError."""
    found = list[SourceRecord]()
    for document in read_yaml(source.raw, source.name, BYTES_MAX):
        found += _objects(document, source.name)
    return found


def nested_records(record: SourceRecord, path: Path, kind: str) -> list[SourceRecord]:
    """The YAML documents in a string of a record, such as a key of a ConfigMap, as records of a kind."""
    text = record.text(*path)
    first = record.line_of(path)
    found = list[SourceRecord]()
    for document in read_yaml(text.encode(), record.file, BYTES_MAX):
        # The string is a block: its first line stands below its key.
        lines = {at: place.line + first for at, place in document.key_places.items()}
        if isinstance(document.value, dict):
            found.append(SourceRecord(record.file, first + 1, kind, "", document.value, lines))
    return found


def _objects(document: Located, file: str) -> Iterator[SourceRecord]:
    value = document.value
    if not isinstance(value, dict):
        message = "the document is no mapping: an object of Kubernetes has apiVersion, kind and metadata"
        raise InvalidDocumentsError([problem_at(file, document.place(()), "not-a-document", message)])
    if isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            if isinstance(item, dict):
                yield _object(document, item, ("items", index), file)
    else:
        yield _object(document, value, (), file)


def _object(document: Located, value: dict[str, Any], base: Path, file: str) -> SourceRecord:
    lines = {
        at[len(base) :]: document.key_place(at).line for at in document.places if at[: len(base)] == base and at != base
    }
    line = min(lines.values(), default=START.line)
    metadata = value.get("metadata")
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    return SourceRecord(file, line, str(value.get("kind") or "document"), name, value, lines)
