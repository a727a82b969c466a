"""Snapshot files: JSON that outside programs write, compressed or not, read into a snapshot or into problems with places."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator

import msgspec

from reconciler.documents.declared import path_of
from reconciler.documents.problem import START, InvalidDocumentsError, Place, Problem, problem_at
from reconciler.documents.reader import read_yaml
from reconciler.documents.text import BYTES_MAX, place_of
from solver.world.document import decode
from solver.world.snapshot import Snapshot, normalised

UNPACKED_BYTES_MAX = 256 * 1024 * 1024
"""What a compressed snapshot may hold: that of a cluster of 100,000 GPUs has some tens of MB."""

_GZIP = b"\x1f\x8b"
_BYTE = re.compile(r"\(byte (\d+)\)")


class _Kind(msgspec.Struct):
    kind: str = ""


def read_snapshot(raw: bytes, file: str) -> Snapshot:
    """A snapshot in sorted order, from JSON or from JSON that gzip has compressed; raises InvalidDocumentsError."""
    raw = unpacked(raw, file)
    try:
        return normalised(decode(raw, Snapshot))
    except msgspec.ValidationError as error:
        message, _, inside = str(error).partition(" - at `$")
        place = _place_in(raw, file, inside.rstrip("`"))
        problem = problem_at(file, place, "snapshot", message, "`quorate explain snapshot` lists the fields.")
    except msgspec.DecodeError as error:
        byte = _BYTE.search(str(error))
        place = place_of(raw.decode("utf-8", "replace"), int(byte[1])) if byte else START
        problem = problem_at(file, place, "syntax", f"not JSON: {error}", "Correct the JSON here.")
    except (ValueError, RecursionError) as error:
        problem = problem_at(file, START, "snapshot", str(error))
    raise InvalidDocumentsError([problem])


def unpacked(raw: bytes, file: str) -> bytes:
    """What gzip has compressed, as the content says and not the name; anything else as it is. Raises InvalidDocumentsError."""
    if not raw.startswith(_GZIP):
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
            content = packed.read(UNPACKED_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        problem = problem_at(file, START, "syntax", f"not gzip: {error}", "Compress the snapshot again.")
        raise InvalidDocumentsError([problem]) from error
    if len(content) > UNPACKED_BYTES_MAX:
        message = f"unpacked it has more than {UNPACKED_BYTES_MAX} bytes"
        raise InvalidDocumentsError([problem_at(file, START, "too-large", message, "Is this a snapshot?")])
    return content


def snapshot_file_problems(raw: bytes, file: str) -> Iterator[Problem]:
    """What is wrong with a file that may be an example snapshot; JSON of any other kind is nobody's business here."""
    try:
        raw = unpacked(raw, file)
    except InvalidDocumentsError as error:
        yield from error.problems
        return
    try:
        kind = msgspec.json.decode(raw, type=_Kind).kind
    except msgspec.ValidationError:
        return
    except msgspec.DecodeError:
        kind = "Snapshot"
    if kind == "Snapshot":
        try:
            read_snapshot(raw, file)
        except InvalidDocumentsError as error:
            yield from error.problems


def _place_in(raw: bytes, file: str, inside: str) -> Place:
    """JSON is YAML but for tabs, so the YAML reader finds the place; a file too large or too odd for it has none."""
    try:
        documents = read_yaml(raw, file, BYTES_MAX)
    except InvalidDocumentsError:
        return START
    return documents[0].place(path_of(inside)) if documents else START
