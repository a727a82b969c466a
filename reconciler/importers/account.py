"""The account of an import: what became of each field of the source, and which of them nothing has looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from reconciler.importers.source import SourceRecord
from reconciler.model.problem import Path
from solver.model.document import Document

ImportOutcome = Literal["carried", "changed", "asked", "dropped", "unknown"]
"""carried: means the same here. changed: is written, and means something else. asked: a person has to decide, an assumption is
written. dropped: has no equal, and the note says the effect. unknown: the importer does not know the field."""

Rules = Sequence[tuple[Path, ImportOutcome, str, str]]
"""What becomes of fields that need no arithmetic: a path (`*` is any key or index), the outcome, the target, the note."""

_UNKNOWN: Final = "this importer does not know the field: look up what it does"
_SHOWN_MAX: Final = 80


class ImportEntry(Document, frozen=True, omit_defaults=False):
    """One field of the source, or something that it leaves unsaid (`value` then is its default), and what became of it."""

    file: str
    line: int
    outcome: ImportOutcome
    record: str
    field: str
    value: str
    target: str
    note: str


class ImportAccount:
    """Notes what becomes of the fields of some records; what nobody notes is unknown. A field counts once, as noted first."""

    def __init__(self, records: Iterable[SourceRecord]) -> None:
        self._records = list(records)
        self._open = {id(record): dict.fromkeys(record.leaves()) for record in self._records}
        self._entries = list[ImportEntry]()

    def note(self, outcome: ImportOutcome, record: SourceRecord, path: Path, target: str = "", note: str = "") -> None:
        """A field, with all that is in it, became this. One that the source does not have, or that is noted, is passed over."""
        still = self._open[id(record)]
        taken = [leaf for leaf in still if leaf[: len(path)] == path]
        for leaf in taken:
            del still[leaf]
        if taken:
            shown = value_text(record.get(*path) if path else record.fields)
            line = record.line_of(path)
            entry = ImportEntry(record.file, line, outcome, record.label, field_name(path), shown, target, note)
            self._entries.append(entry)

    def carried(self, record: SourceRecord, path: Path, target: str = "", note: str = "") -> None:
        """It means the same here."""
        self.note("carried", record, path, target, note)

    def changed(self, record: SourceRecord, path: Path, target: str, note: str) -> None:
        """It is written as `target`, and means something else: the note says what."""
        self.note("changed", record, path, target, note)

    def asked(self, record: SourceRecord, path: Path, target: str, note: str) -> None:
        """A person has to decide; the note says what is assumed until then."""
        self.note("asked", record, path, target, note)

    def dropped(self, record: SourceRecord, path: Path, note: str) -> None:
        """It has no equal here; the note says what follows from that."""
        self.note("dropped", record, path, "", note)

    def unsaid(
        self, outcome: ImportOutcome, record: SourceRecord, path: Path, default: str, target: str, note: str
    ) -> None:
        """A field that the source leaves out has a default there, which becomes this."""
        line = record.line_of(path)
        name, value = field_name(path), f"({default})"
        self._entries.append(ImportEntry(record.file, line, outcome, record.label, name, value, target, note))

    def settle(self, record: SourceRecord, rules: Rules) -> None:
        """Note the fields that rules speak of and nobody has noted. A field of another value than text fits by path alone."""
        for pattern, outcome, target, note in rules:
            for path in _paths(record, pattern):
                self.note(outcome, record, path, target, note)

    def entries(self) -> tuple[ImportEntry, ...]:
        """All of it, by file and line; fields that nobody noted are unknown."""
        left = [
            ImportEntry(
                record.file,
                record.line_of(path),
                "unknown",
                record.label,
                field_name(path),
                value_text(record.get(*path) if path else record.fields),
                "",
                _UNKNOWN,
            )
            for record in self._records
            for path in self._open[id(record)]
        ]
        return tuple(sorted((*self._entries, *left), key=lambda entry: (entry.file, entry.line)))


def field_name(path: Path) -> str:
    """A path as people write it."""
    written = ""
    for step in path:
        written += f"[{step}]" if isinstance(step, int) else f".{step}" if written else step
    return written


def value_text(value: Any) -> str:
    """A value of the source on one line, not too long."""
    if isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {value_text(part)}" for key, part in value.items()) + "}"
    elif isinstance(value, list):
        text = "[" + ", ".join(map(value_text, value)) + "]"
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


def _paths(record: SourceRecord, pattern: Path) -> Iterable[Path]:
    """The paths of a record that a pattern fits."""
    found: list[Path] = [()]
    for step in pattern:
        found = [(*path, each) for path in found for each in _steps(record, path, step)]
    return found


def _steps(record: SourceRecord, path: Path, step: str | int) -> Iterable[str | int]:
    value = record.get(*path) if path else record.fields
    if step == "*":
        return list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return (step,) if record.has(*path, step) else ()
