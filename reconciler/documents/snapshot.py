"""Snapshot files: JSON that outside programs write, read into a snapshot or into problems with places."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from reconciler.documents.declared import path_of
from reconciler.documents.problem import START, InvalidDocumentsError, Place, Problem, problem_at
from reconciler.documents.reader import read_yaml
from reconciler.documents.text import BYTES_MAX, place_of
from solver.world.document import decode
from solver.world.snapshot import Snapshot, normalised

_BYTE = re.compile(r"\(byte (\d+)\)")


class _Kind(msgspec.Struct):
    kind: str = ""


def read_snapshot(raw: bytes, file: str) -> Snapshot:
    """A snapshot in sorted order; raises InvalidDocumentsError."""
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


def snapshot_file_problems(raw: bytes, file: str) -> Iterator[Problem]:
    """What is wrong with a file that may be an example snapshot; JSON of any other kind is nobody's business here."""
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
