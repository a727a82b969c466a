"""Whatever a document holds, reading it ends in a policy or in problems with places, and never in an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.files import Files
from reconciler.documents.job import read_job
from reconciler.documents.repository import read_repository
from reconciler.documents.schemas import FOLDER_OF_KIND, Schema, resolve_reference, schema_of
from reconciler.documents.snapshot import read_snapshot
from reconciler.model.problem import InvalidDocumentsError

ODD_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**18), max_value=10**18),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["a", "b", "H100", "64Gi", "5m", "5m\n", "1.5", "island", "rack", "0", "999999999w"]),
)


def values(schema: Schema, base: str) -> st.SearchStrategy[Any]:
    """Values near a schema: mostly what it asks for, now and then something else in any place."""
    schema, base = resolve_reference(schema, base)
    if "properties" in schema:
        fields = {name: values(field, base) for name, field in schema["properties"].items()}
        near: st.SearchStrategy[Any] = st.fixed_dictionaries({}, optional={**fields, "wrong": ODD_SCALARS})
    elif "items" in schema:
        near = st.lists(values(schema["items"], base), max_size=3)
    elif "const" in schema or "enum" in schema:
        near = st.sampled_from(schema.get("enum", [schema.get("const")]))
    elif schema.get("type") == "integer":
        near = st.integers(min_value=-1, max_value=40)
    else:
        near = st.sampled_from([*schema.get("examples", ()), "a", "b", "c"])
    return st.one_of(near, near, near, ODD_SCALARS)


def documents(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    spec = values(schema_of(kind)["properties"]["spec"], f"{kind.lower()}.json")
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just("quorate.dev/v1"),
            "kind": st.just(kind),
            "metadata": st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "c", "A"])}),
            "spec": spec,
        }
    )


@given(st.lists(st.sampled_from(list(FOLDER_OF_KIND)).flatmap(documents), min_size=1, max_size=5))
def test_any_repository_is_compiled_or_refused(found: list[dict[str, Any]]) -> None:
    files = {
        f"{FOLDER_OF_KIND[document['kind']]}/{index}.yaml": json.dumps(document).encode()
        for index, document in enumerate(found)
    }
    reading = read_repository(Files(files))
    assert (reading.compiled is None) == any(problem.severity == "error" for problem in reading.problems)
    assert all(problem.file in files and problem.line == 1 and problem.message for problem in reading.problems)


@given(documents("Job"))
def test_any_job_is_read_or_refused(job: dict[str, Any]) -> None:
    read_or_refused(read_job, json.dumps(job).encode())


@given(values(schema_of("Snapshot"), "snapshot.json"))
def test_any_snapshot_is_read_or_refused(snapshot: Any) -> None:
    read_or_refused(read_snapshot, json.dumps(snapshot).encode())


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[" * 100_000, b'{"kind": "Snapshot", "time": 1e999}', b"null"])
def test_broken_snapshots_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidDocumentsError):
        read_snapshot(raw, "s.json")
    assert all(
        problem.severity == "error" for problem in read_repository(Files({"cluster-state/s.json": raw})).problems
    )


def read_or_refused(read: Any, raw: bytes) -> None:
    problems = None
    try:
        read(raw, "file")
    except InvalidDocumentsError as invalid:
        problems = invalid.problems
    assert problems is None or all(problem.line >= 1 and problem.message for problem in problems)
