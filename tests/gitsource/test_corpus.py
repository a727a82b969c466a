"""The corpus of hostile input, in small; `python -m hack.hostile` tries it by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.hostile import documents, repositories, reverts
from hack.hostile.repositories import CANARY, MADE, try_repositories
from reconciler.documents.files import Files
from reconciler.gitsource.tree import Revision

QUICK = ("link to a file", "submodule that runs a command", "filters", "hook reference-transaction", ".git in the tree")


def test_documents_are_read_or_refused_at_their_place() -> None:
    figures = documents.try_documents(1, 60)
    assert (figures.tracebacks, figures.signals, figures.first_fault) == (0, 0, "")
    assert figures.tried == 60
    assert figures.placed == figures.refused > 30


@pytest.mark.thorough
def test_documents_by_the_thousand() -> None:
    figures = documents.try_documents(2, 4_000)
    assert (figures.tracebacks, figures.signals, figures.placed) == (0, 0, figures.refused)


@pytest.mark.parametrize(
    "names", [pytest.param(QUICK, id="some"), pytest.param(tuple(MADE), id="all", marks=pytest.mark.thorough)]
)
def test_repositories_read_and_run_nothing_of_the_host(tmp_path: Path, names: tuple[str, ...]) -> None:
    figures = try_repositories(tmp_path, names)
    assert (figures.escapes, figures.commands_run, figures.tracebacks, figures.overdue) == (0, 0, 0, 0)
    assert figures.tried == len(names)
    assert figures.kept_out >= len(names) // 2


def test_what_gets_through_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the zeros above would say nothing."""
    read = Revision("0" * 40, Files({"policies/x.yaml": f"name: {CANARY}".encode()}))
    monkeypatch.setattr(repositories, "read_revision", lambda *_: read)
    assert try_repositories(tmp_path, QUICK[:1]).escapes == 1

    def raises(_: Files) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(repositories, "read_repository", raises)
    monkeypatch.setattr(documents, "read_repository", raises)
    (tmp_path / "more").mkdir()
    assert try_repositories(tmp_path / "more", QUICK[3:4]).tracebacks == 1
    assert documents._read(b"a: 1").fault


def test_a_revert_restores_the_policy_byte_for_byte(tmp_path: Path) -> None:
    figures = reverts.try_reverts(tmp_path, 1, 12)
    assert figures.identical == figures.tried == 12
    assert figures.changed >= 10


@pytest.mark.thorough
def test_so_do_a_hundred_reverts(tmp_path: Path) -> None:
    figures = reverts.try_reverts(tmp_path, 2, 100)
    assert figures.identical == figures.tried
