"""Malformed documents by the thousand: what was made to break readers of YAML, and good documents with something wrong in them."""

from __future__ import annotations

import multiprocessing
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from time import perf_counter

import msgspec

from reconciler.documents.files import Files, read_folder
from reconciler.documents.repository import read_repository
from reconciler.documents.schemas import data_folder

BATCH = 200
MEGABYTE = 1_000_000
_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

MADE: dict[str, bytes] = {
    "empty": b"",
    "tabs": b"a:\n\tb: 1\n",
    "NUL": b"a: \0\n",
    "UTF-16": "kind: Queue\n".encode("utf-16"),
    "UTF-32": "kind: Queue\n".encode("utf-32"),
    "byte order mark": b"\xef\xbb\xbfkind: Queue\n",
    "not UTF-8": b"a: \xff\xfe\xfd\n",
    "lone surrogate": b"a: \xed\xa0\x80\n",
    "duplicate keys": b"kind: Queue\nkind: NodePool\n",
    "merge keys": b"a: {<<: {b: 1}}\n",
    "alias bomb": _BOMB.encode(),
    "anchor in itself": b"a: &a [1, *a]\n",
    "a million levels": b"[" * MEGABYTE,
    "a million levels of mappings": b"{a: " * 250_000,
    "a million dashes": b"- " * 500_000,
    "a million documents": b"---\n" * 250_000,
    "tag that runs a command": b"a: !!python/object/apply:os.system ['touch ran']\n",
    "tag that builds an object": b"a: !!python/object/new:type {}\n",
    "date that is none": b"a: 2001-99-99\n",
    "huge integer": b"a: " + b"9" * 100_000 + b"\n",
    "huge exponent": b"a: 1e999999999\n",
    "not a number": b"a: .nan\nb: .inf\n",
    "base sixty": b"a: 190:20:30\n",
    "one line of ten megabytes": b"a: " + b"x" * 10 * MEGABYTE + b"\n",
    "a hundred megabytes": b"a: 1\n" * 20 * MEGABYTE,
    "keys of every type": b"? [a]\n: 1\n? {b: 1}\n: 2\n1: 3\nnull: 4\n",
    "terminal escapes": b'kind: "\\e[2J\\e]0;owned\\a"\n',
    "right to left": "kind: \u202eeueuQ\n".encode(),
    "template": b"kind: Queue\nmetadata: {name: '{{ 7*7 }}${IFS}$(touch ran)`touch ran`'}\n",
}


class Figures(msgspec.Struct, kw_only=True):
    """What came of reading. `placed`: refusals of which every problem has its file and a line that the file has."""

    tried: int = 0
    refused: int = 0
    accepted: int = 0
    placed: int = 0
    tracebacks: int = 0
    signals: int = 0
    p99_s: float = 0.0
    first_fault: str = ""


class Outcome(msgspec.Struct):
    """Of one document."""

    refused: bool
    placed: bool
    fault: str
    took_s: float


def corpus(seed: int, count: int) -> Iterator[bytes]:
    """What was made on purpose, then seeded changes of the shipped documents, `count` in all."""
    yield from islice(MADE.values(), count)
    drawn = random.Random(seed)
    good = [
        content
        for path, content in sorted(read_folder(data_folder("policies").parent).contents.items())
        if "yaml" in path
    ]
    for _ in range(count - len(MADE)):
        content = drawn.choice(good)
        for _ in range(drawn.randint(1, 4)):
            content = drawn.choice(_CHANGES)(content, drawn)
        yield content


def _flip(content: bytes, drawn: random.Random) -> bytes:
    at = drawn.randrange(len(content) + 1)
    return content[:at] + bytes([drawn.randrange(256)]) + content[at + 1 :]


def _cut(content: bytes, drawn: random.Random) -> bytes:
    at = drawn.randrange(len(content) + 1)
    return content[:at] + content[at + drawn.randint(1, 40) :]


def _insert(content: bytes, drawn: random.Random) -> bytes:
    at = drawn.randrange(len(content) + 1)
    return content[:at] + drawn.choice(_PIECES) + content[at:]


def _repeat_line(content: bytes, drawn: random.Random) -> bytes:
    lines = content.splitlines(keepends=True) or [b"\n"]
    line = drawn.choice(lines)
    lines.insert(drawn.randrange(len(lines) + 1), line)
    return b"".join(lines)


def _indent(content: bytes, drawn: random.Random) -> bytes:
    lines = content.splitlines(keepends=True) or [b"\n"]
    at = drawn.randrange(len(lines))
    lines[at] = drawn.choice([b" ", b"\t", b"  ", b"- "]) + lines[at]
    return b"".join(lines)


_CHANGES: Sequence[Callable[[bytes, random.Random], bytes]] = (_flip, _cut, _insert, _repeat_line, _indent)
_PIECES = (
    b"\t", b"\0", b": ", b"- ", b"[", b"{", b"}", b"&a ", b"*a", b"!!str ", b"\n---\n", b"'", b'"', b"|", b"#", b"%",
    b"~", b"null", b"-1", b"9" * 400, b"1e400", b".nan", b"\xff", "\u202e".encode(), b"<<: ", b"\r", b"\x1b[2J",
)  # fmt: skip


def try_documents(seed: int, count: int) -> Figures:
    """Read a corpus in processes of their own, so that one that is killed is counted and does not end the rest."""
    figures, times = Figures(), []
    documents = corpus(seed, count)
    while batch := list(islice(documents, BATCH)):
        for outcome in _outcomes(batch):
            figures.tried += 1
            if outcome is None:
                figures.signals += 1
                continue
            times.append(outcome.took_s)
            figures.refused += outcome.refused
            figures.accepted += not outcome.refused and not outcome.fault
            figures.placed += outcome.refused and outcome.placed
            figures.tracebacks += bool(outcome.fault)
            figures.first_fault = figures.first_fault or outcome.fault
    figures.p99_s = sorted(times)[len(times) * 99 // 100] if times else 0.0
    return figures


def _outcomes(batch: Sequence[bytes]) -> Iterator[Outcome | None]:
    """None for a document that killed its process."""
    try:
        yield from _in_child(batch)
    except BrokenProcessPool:
        # One of them did: each once more, alone.
        for content in batch:
            try:
                yield from _in_child([content])
            except BrokenProcessPool:
                yield None


def _in_child(batch: Sequence[bytes]) -> list[Outcome]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_read_all, list(batch)).result()


def _read_all(batch: Sequence[bytes]) -> list[Outcome]:
    return [_read(content) for content in batch]


def _read(content: bytes) -> Outcome:
    path = "policies/hostile.yaml"
    began = perf_counter()
    try:
        reading = read_repository(Files({path: content}))
    except Exception:  # noqa: BLE001 - whatever is raised is what is looked for
        return Outcome(False, False, traceback.format_exc(limit=-3), perf_counter() - began)
    lines = content.count(b"\n") + content.count(b"\r") + 1
    errors = [problem for problem in reading.problems if problem.severity == "error"]
    placed = all(problem.file == path and 1 <= problem.line <= lines + 1 for problem in errors)
    return Outcome(bool(errors), placed, "", perf_counter() - began)
