"""A repository larger than any policy is refused before it is read whole, with what to do."""

from __future__ import annotations

import pytest

from reconciler.documents import document_set
from reconciler.documents.files import Files
from reconciler.documents.repository import read_repository
from reconciler.documents.text import BYTES_MAX

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
