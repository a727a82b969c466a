"""A snapshot may be compressed: its content says so, and how large it may become is limited before it is."""

from __future__ import annotations

import gzip

import pytest

from reconciler.documents import snapshot as reading
from reconciler.documents.files import Files
from reconciler.documents.repository import read_repository
from reconciler.documents.snapshot import read_snapshot
from reconciler.model.problem import InvalidDocumentsError
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from tests.solver.worlds import node

SNAPSHOT = snapshot_of(Instant(1000), [node("n1", 8)], [])


def test_compressed_or_not_it_is_the_same_snapshot_whatever_its_name() -> None:
    for raw in (encode(SNAPSHOT), gzip.compress(encode(SNAPSHOT))):
        assert read_snapshot(raw, "any.json") == SNAPSHOT


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (gzip.compress(bytes(5000)), "unpacked it has more than 4096 bytes"),
        (gzip.compress(encode(SNAPSHOT))[:-9], "not gzip: "),
        (b"\x1f\x8bno", "not gzip: "),
        (gzip.compress(b"{"), "not JSON: "),
    ],
    ids=["too large", "cut short", "not gzip", "not JSON"],
)
def test_what_is_too_large_or_damaged_is_refused(monkeypatch: pytest.MonkeyPatch, raw: bytes, problem: str) -> None:
    monkeypatch.setattr(reading, "UNPACKED_BYTES_MAX", 4096)
    with pytest.raises(InvalidDocumentsError) as refused:
        read_snapshot(raw, "s.json.gz")
    assert refused.value.problems[0].message.startswith(problem)
    # As an example in a repository it is a problem too, with its place.
    found = read_repository(Files({"cluster-state/examples/s.json.gz": raw})).problems
    assert [(known.file, known.message.startswith(problem)) for known in found] == [
        ("cluster-state/examples/s.json.gz", True)
    ]
