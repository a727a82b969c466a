"""What the audit chain leaves outside the database: anchors in a file to which lines are only appended, and exports."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from reconciler.model.audit import AuditAnchor, AuditEntry
from solver.model.document import API_VERSION, Document, decode, encode
from solver.model.quantities import Instant

EXPORT: Final = "AuditExport"


class AuditFileError(Exception):
    """An anchor file or an export can't be read or written, or is none. The message has place, problem and fix."""


class ExportHead(Document, frozen=True, omit_defaults=False):
    """The first line of an export."""

    at: Instant
    api_version: str = API_VERSION
    kind: str = EXPORT


class ExportTail(Document, frozen=True, omit_defaults=False):
    """The last line of an export: how many entries stand before it, and how far the chains were when it was begun."""

    entries: int
    anchor: AuditAnchor


def append_anchor(path: Path, anchor: AuditAnchor) -> bool:
    """Add a line, on the disk when this returns; not where the last one says the same. Raises AuditFileError."""
    known = read_anchors(path) if path.exists() else ()
    if anchor.is_empty or (known and msgspec.structs.replace(known[-1], at=anchor.at) == anchor):
        return False
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(encode(anchor) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise AuditFileError(
            f"{path}: can't be written ({error.strerror}). Name a file that you can append to"
        ) from error
    return True


def read_anchors(path: Path) -> tuple[AuditAnchor, ...]:
    """Every whole line; a crash may have cut the last one. Raises AuditFileError."""
    try:
        *lines, _ = path.read_bytes().split(b"\n")
        return tuple(decode(line, AuditAnchor) for line in lines if line)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AuditFileError(
            f"{path}: anchors can't be read ({error}). Name a file that `quorate audit anchor` or the server wrote"
        ) from error


def write_export(path: Path, at: Instant, entries: Iterable[AuditEntry], anchor: AuditAnchor) -> int:
    """Write entries to a file, readable by its owner alone, compressed where its name ends in .gz; returns how many."""
    number = 0
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as plain:
            file = gzip.GzipFile(fileobj=plain, mode="wb", mtime=0) if path.suffix == ".gz" else plain
            file.write(encode(ExportHead(at)) + b"\n")
            for entry in entries:
                file.write(encode(entry) + b"\n")
                number += 1
            file.write(encode(ExportTail(number, anchor)) + b"\n")
            if file is not plain:
                file.close()
    except OSError as error:
        raise AuditFileError(f"{path}: can't be written ({error.strerror}). Name a file that you can write") from error
    return number


def read_export(path: Path) -> Iterator[AuditEntry]:
    """The entries of an export, one after the other. Raises AuditFileError, also for one that is not whole."""
    opened = gzip.open if path.suffix == ".gz" else open
    number, before = 0, b""
    try:
        with opened(path, "rb") as file:
            if decode(file.readline(), ExportHead).kind != EXPORT:
                raise msgspec.ValidationError("its first line says that it is something else")
            for line in file:
                if before:
                    yield decode(before, AuditEntry)
                    number += 1
                before = line
            tail = decode(before, ExportTail)
    except (OSError, EOFError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AuditFileError(f"{path}: it is no whole export of an audit chain ({error}). Export it again") from error
    if tail.entries != number:
        raise AuditFileError(f"{path}: {number} of its {tail.entries} entries are there. Export it again")
