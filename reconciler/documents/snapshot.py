"""Snapshot files: JSON that outside programs write, compressed or not, read into a snapshot or into problems with places."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator

import msgspec

from reconciler.documents.declarations import path_of
from reconciler.documents.reader import read_yaml
from reconciler.documents.text import BYTES_MAX, place_of
from reconciler.model.problem import START, InvalidDocumentsError, Path, Problem, SourceLocation, problem_at
from solver.model.document import decode
from solver.model.node_sets import NodeSetError
from solver.model.snapshot import Snapshot, normalised

UNPACKED_BYTES_MAX = 256 * 1024 * 1024
"""What a compressed snapshot may hold: that of a cluster of 100,000 GPUs has some tens of MB."""

_GZIP = b"\x1f\x8b"
_BYTE = re.compile(r"\(byte (\d+)\)")


class _Kind(msgspec.Struct):
    kind: str = ""


def read_snapshot(raw: bytes, file: str) -> Snapshot:
    """A snapshot in sorted order, from JSON or from JSON that gzip has compressed; raises InvalidDocumentsError."""
    raw = decompress(raw, file)
    try:
        return _settled(decode(raw, Snapshot), raw, file)
    except msgspec.ValidationError as error:
        message, _, inside = str(error).partition(" - at `$")
        place = _place_in(raw, file, path_of(inside.rstrip("`")))
        problem = problem_at(file, place, "snapshot", message, "`quorate explain snapshot` lists the fields.")
    except msgspec.DecodeError as error:
        byte = _BYTE.search(str(error))
        place = place_of(raw.decode("utf-8", "replace"), int(byte[1])) if byte else START
        problem = problem_at(file, place, "syntax", f"not JSON: {error}", "Correct the JSON here.")
    except (ValueError, RecursionError) as error:
        problem = problem_at(file, START, "snapshot", str(error))
    raise InvalidDocumentsError([problem])


def _settled(snapshot: Snapshot, raw: bytes, file: str) -> Snapshot:
    """In sorted order; raises ValueError, and InvalidDocumentsError where a set of nodes is not what it is taken for."""
    try:
        return normalised(snapshot)
    except NodeSetError as error:
        place = _place_in(raw, file, _path_to(error, snapshot))
        problem = problem_at(file, place, "node-set", error.problem, f"{error.fix[0].upper()}{error.fix[1:]}.")
        raise InvalidDocumentsError([problem]) from error


def _path_to(error: NodeSetError, snapshot: Snapshot) -> Path:
    """Where the file says what is wrong."""
    for place, job in enumerate(snapshot.jobs):
        for number, group in enumerate(job.spec.task_groups):
            if (job.name, group.name) == (error.job, error.group):
                return ("jobs", place, "spec", "taskGroups", number, "nodes")
    return next((("nodeSets", n) for n, known in enumerate(snapshot.node_sets) if known.name == error.node_set), ())


def decompress(raw: bytes, file: str) -> bytes:
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
    """What is wrong with a file that may be an example snapshot; JSON of any other kind does not matter here."""
    try:
        raw = decompress(raw, file)
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


def _place_in(raw: bytes, file: str, inside: Path) -> SourceLocation:
    """JSON is YAML but for tabs, so the YAML reader finds the place; a file too large or too odd for it has none."""
    try:
        documents = read_yaml(raw, file, BYTES_MAX)
    except InvalidDocumentsError:
        return START
    return documents[0].place(inside) if documents else START
