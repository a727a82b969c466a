"""The files of Slurm as records: lines of `key=value` pairs, tables of `sacctmgr -P`, JSON, and topology.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from reconciler.documents.reader import read_yaml
from reconciler.importers.source import BYTES_MAX, SourceFile, SourceRecord
from reconciler.model.problem import START, InvalidDocumentsError, Path, Problem, problem_at, problem_of

HEADS: Final[Mapping[str, str]] = {
    "nodename": "NodeName",
    "partitionname": "PartitionName",
    "nodeset": "NodeSet",
    "downnodes": "DownNodes",
    "frontendname": "FrontendName",
    "switchname": "SwitchName",
    "blockname": "BlockName",
    "blocksizes": "BlockSizes",
    "reservationname": "ReservationName",
    "include": "Include",
}
"""First keys of lines that describe one thing; other lines are settings, each pair of its own."""

SETTING: Final = "setting"
GRES: Final = "gres.conf"
ASSOCIATION: Final = "association"
QOS: Final = "QOS"
TOPOLOGY: Final = "topology.yaml"
RESERVATION: Final = "ReservationName"

_PAIR = re.compile(r"([^\s=]+)\s*=\s*(\"[^\"]*\"|\S*)")
_NO_PARENTS: Final = (
    "sacctmgr show assoc -P tree format=cluster,account,user,parentname,partition,share,grptres,maxtres,qos,defaultqos"
)
_JSON_LISTS: Final = {"reservations": RESERVATION}


def records_of(source: SourceFile) -> list[SourceRecord]:
    """The records of a file, whichever of Slurm's it is. Raises InvalidDocumentsError."""
    text = _text(source)
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.lstrip().startswith("{"):
        return list(_json(source))
    if source.name.endswith((".yaml", ".yml")):
        return list(_topologies(source))
    if "|" in first:
        return list(_table(source.name, text))
    return list(_lines(source.name, text))


def _text(source: SourceFile) -> str:
    try:
        return source.raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Comments in older files are often in some eight-bit alphabet; what matters is ASCII.
        return source.raw.decode("latin-1")


def _lines(file: str, text: str) -> Iterator[SourceRecord]:
    is_gres = file.rsplit("/", 1)[-1] == GRES or bool(
        re.search(r"(?im)^\s*(nodename=\S+\s+)?name=gpu\b|^autodetect=", text)
    )
    pairs = list[tuple[str, str, int]]()
    for number, line in enumerate(text.splitlines(), start=1):
        # A # begins a comment, unless a backslash stands before it.
        bare = re.split(r"(?<!\\)#", line, maxsplit=1)[0].rstrip()
        goes_on = bare.endswith("\\")
        pairs += _pairs(file, bare.rstrip("\\").strip(), number)
        if not goes_on:
            yield from _line_records(file, pairs, is_gres)
            pairs = []
    yield from _line_records(file, pairs, is_gres)


def _pairs(file: str, text: str, number: int) -> Iterator[tuple[str, str, int]]:
    if text.lower().startswith("include") and "=" not in text:
        yield "Include", text[len("include") :].strip(), number
        return
    rest = text
    while rest:
        matched = _PAIR.match(rest)
        if matched is None:
            message = f"{rest[:60]!r} is no pair KEY=VALUE"
            raise InvalidDocumentsError(
                [problem_of(f"{file}:{number}", "syntax", message, "Correct it, or comment it out.")]
            )
        yield matched[1], matched[2].strip('"'), number
        rest = rest[matched.end() :].lstrip()


def _line_records(file: str, pairs: list[tuple[str, str, int]], is_gres: bool) -> Iterator[SourceRecord]:
    if not pairs:
        return
    head = HEADS.get(pairs[0][0].lower())
    line = pairs[0][2]
    if is_gres and head in (None, "NodeName"):
        yield _record(file, line, GRES, "", pairs)
    elif head is not None:
        yield _record(file, line, head, pairs[0][1], pairs)
    else:
        for key, value, at in pairs:
            yield SourceRecord(file, at, SETTING, key, {key.lower(): value}, {(key.lower(),): at})


def _record(file: str, line: int, kind: str, name: str, pairs: list[tuple[str, str, int]]) -> SourceRecord:
    """Keys are lower case in it: Slurm does not tell their cases apart. The last of a key counts."""
    fields = {key.lower(): value for key, value, _ in pairs}
    return SourceRecord(file, line, kind, name, fields, {(key.lower(),): at for key, _, at in pairs})


def _table(file: str, text: str) -> Iterator[SourceRecord]:
    """Rows of `sacctmgr show assoc|qos -P`, by their header."""
    rows = [(number, line.split("|")) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    (number, header), *rest = rows
    keys = [re.sub(r"[^a-z]", "", column.lower()) for column in header]
    if "account" in keys:
        if not {"parentname", "par"} & set(keys):
            message = "the table has no column ParentName, so that the tree of accounts is not in it"
            raise InvalidDocumentsError(
                [problem_of(f"{file}:{number}", "no-parents", message, f"Print it with: {_NO_PARENTS}")]
            )
        kind = ASSOCIATION
    elif "name" in keys and "priority" in keys:
        kind = QOS
    else:
        message = "the table is neither of associations nor of QOS: it has no column Account, nor Name and Priority"
        raise InvalidDocumentsError([problem_of(f"{file}:{number}", "table", message, f"Print it with: {_NO_PARENTS}")])
    for number, cells in rest:
        fields: dict[str, Any] = {key: cell.strip() for key, cell in zip(keys, cells, strict=False) if key}
        said = {key: value for key, value in fields.items() if value}
        name = said.get("name", "") if kind == QOS else "/".join(filter(None, (said.get("account"), said.get("user"))))
        yield SourceRecord(file, number, kind, name, said, {(key,): number for key in said})


def _json(source: SourceFile) -> Iterator[SourceRecord]:
    try:
        found = msgspec.json.decode(source.raw)
    except msgspec.DecodeError as error:
        raise InvalidDocumentsError([problem_at(source.name, START, "syntax", f"not JSON: {error}")]) from error
    lists = {key: kind for key, kind in _JSON_LISTS.items() if isinstance(found.get(key), list)}
    if not lists:
        fix = "Nodes go with --nodes, jobs with --check; of JSON files `scontrol show reservations --json` is read."
        raise InvalidDocumentsError([problem_at(source.name, START, "json", "no reservations are in it", fix)])
    for key, kind in lists.items():
        for item in found[key]:
            fields = {name: _plain(value) for name, value in item.items()}
            yield SourceRecord(source.name, 1, kind, str(item.get("name") or ""), fields, {})


def _plain(value: Any) -> Any:
    """A number without the wrapping of newer versions, which says whether it is set."""
    if isinstance(value, dict) and {"set", "number"} <= value.keys():
        return value["number"] if value["set"] else None
    return value


def _topologies(source: SourceFile) -> Iterator[SourceRecord]:
    for document in read_yaml(source.raw, source.name, BYTES_MAX):
        if not isinstance(document.value, list):
            problem: Problem = problem_at(
                source.name, document.place(()), "topology", "topology.yaml is a list of topologies"
            )
            raise InvalidDocumentsError([problem])
        for index, item in enumerate(document.value):
            base: Path = (index,)
            lines = {at[1:]: document.key_place(at).line for at in document.places if at[:1] == base and at != base}
            name = str(item.get("topology") or "") if isinstance(item, dict) else ""
            fields = item if isinstance(item, dict) else {}
            yield SourceRecord(source.name, document.place(base).line, TOPOLOGY, name, fields, lines)
