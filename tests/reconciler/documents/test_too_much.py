"""A repository larger than any policy is refused before it is read whole, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.documents import document_set
from reconciler.documents.files import Files
from reconciler.documents.job import read_job
from reconciler.documents.repository import read_repository
from reconciler.documents.schemas import FOLDER_OF_KIND, Schema, resolve_reference, schema_of
from reconciler.documents.text import BYTES_MAX
from reconciler.model.problem import InvalidDocumentsError

QUEUE = "---\napiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {{name: q{0}}}\nspec: {{}}\n"


def told(files: dict[str, bytes]) -> list[tuple[str, str]]:
    return [(problem.code, problem.file) for problem in read_repository(Files(files)).problems]


def test_documents_that_are_too_large_together_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand queues in 26 files took two and a half minutes to refuse."""
    monkeypatch.setattr(document_set, "read_yaml", lambda *_: pytest.fail("it was parsed"))
    pieces = document_set.BYTES_OF_ALL_MAX // BYTES_MAX + 1
    files = {f"policies/{number}.yaml": b"# " * (BYTES_MAX // 2) for number in range(pieces)}
    assert told(files) == [("too-much", ".")]


def test_after_too_many_documents_no_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_set, "DOCUMENTS_MAX", 3)
    files = {f"policies/{number}.yaml": QUEUE.format(number).encode() for number in range(5)}
    assert told(dict(list(files.items())[:3])) == []
    assert told(files) == [("too-much", "policies/3.yaml")]


JOB = (
    "apiVersion: quorate.dev/v1\nkind: Job\nmetadata: {{name: j}}\nspec:\n  queue: q\n  command: [x]\n"
    "  taskGroups: [{{name: w, replicas: {0}, shape: {{gpus: 1}}}}]\n{1}"
)


@pytest.mark.parametrize(
    ("replicas", "more", "problem"),
    [
        ("1e3", "", "replicas is 1000.0, expected a whole number. Write it as 1000."),
        ("2.0", "", "replicas is 2.0, expected a whole number. Write it as 2."),
        ("1.5", "", "replicas is 1.5, expected a whole number"),
        ("9223372036854775808", "", "at most 100000 is allowed"),
        ("1" + "0" * 30, "", "a number of 31 digits is too long"),
        ("-1", "", "at least 1 is allowed"),
        ("1", f"  env: {{{', '.join(f'A{number}: x' for number in range(60_000))}}}\n", "more than 30000 values"),
    ],
)
def test_a_job_beyond_all_bounds_is_told_so(replicas: str, more: str, problem: str) -> None:
    """One of a megabyte with 60,000 variables kept the server's interpreter for five seconds."""
    with pytest.raises(InvalidDocumentsError) as refused:
        read_job(JOB.format(replicas, more).encode(), "job.yaml")
    assert problem in str(refused.value)


def test_every_number_that_a_document_may_state_has_a_bound() -> None:
    """So that none is too large for the columns of either database."""
    unbounded = {
        f"{kind} {path}"
        for kind in (*FOLDER_OF_KIND, "Job", "Pipeline")
        for path, schema in numbers(schema_of(kind), f"{kind.lower()}.json")
        if not {"maximum", "exclusiveMaximum", "enum", "const"} & schema.keys()
    }
    assert unbounded == set()


def numbers(schema: Any, file: str) -> Iterator[tuple[str, Schema]]:
    """Every number in a schema of this file, and in what it refers to."""
    if isinstance(schema, list):
        for each in schema:
            yield from numbers(each, file)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            schema, file = resolve_reference(schema, file)
        if schema.get("type") in ("integer", "number"):
            yield str(schema.get("title") or schema.get("description")), schema
        for each in schema.values():
            yield from numbers(each, file)
