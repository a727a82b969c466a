"""The corpus of hostile input, in small; `python -m hack.hostile` tries it by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.hostile import documents, repositories, reverts
from hack.hostile.__main__ import got_through
from hack.hostile.repositories import CANARY, MADE, try_repositories
from hack.hostile.signatures import try_signatures
from hack.hostile.signed import FOLLOWED, REFUSED
from reconciler.documents.files import Files
from reconciler.gitops.source import signatures as requirement
from reconciler.gitops.source.tree import Revision
from tests.reconciler.gitops.source.signing import needs_gpg, needs_ssh

QUICK = ("link to a file", "submodule that runs a command", "filters", "hook reference-transaction", ".git in the tree")


def test_documents_are_read_or_refused_at_their_place() -> None:
    figures = documents.try_documents(1, 60)
    assert (figures.tracebacks, figures.signals, figures.first_fault) == (0, 0, "")
    assert figures.tried == 60
    assert figures.placed == figures.refused > 30


@pytest.mark.long
def test_documents_by_the_thousand() -> None:
    figures = documents.try_documents(2, 1_500)
    assert (figures.tracebacks, figures.signals, figures.placed) == (0, 0, figures.refused)


@pytest.mark.parametrize(
    "names", [pytest.param(QUICK, id="some"), pytest.param(tuple(MADE), id="all", marks=pytest.mark.long)]
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
    figures = reverts.try_reverts(tmp_path, 1, 14)
    assert figures.identical == figures.tried == 14
    assert figures.changed >= 10


@pytest.mark.long
def test_so_do_thirty_reverts(tmp_path: Path) -> None:
    figures = reverts.try_reverts(tmp_path, 2, 30)
    assert figures.identical == figures.tried


@needs_ssh
@needs_gpg
@pytest.mark.parametrize(
    ("refused", "followed"),
    [
        (("unsigned", "of another commit, gpg"), ("ssh",)),
        pytest.param(tuple(REFUSED), tuple(FOLLOWED), marks=pytest.mark.thorough),
    ],
)
def test_only_signatures_that_count_bring_a_policy_into_force(
    tmp_path: Path, refused: tuple[str, ...], followed: tuple[str, ...]
) -> None:
    figures = try_signatures(tmp_path, refused, followed)
    assert (figures.unsigned_accepted, figures.tracebacks, figures.first_fault) == (0, 0, "")
    assert figures.last_good_kept == figures.tried == len(refused)
    assert figures.followed == figures.countable == len(followed)


@needs_ssh
@needs_gpg
def test_what_is_followed_without_a_good_signature_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the zero above would say nothing."""
    monkeypatch.setattr(requirement, "judge", lambda *_: "")
    figures = try_signatures(tmp_path, ("unsigned",), ())
    assert (figures.unsigned_accepted, figures.last_good_kept) == (1, 0)
    assert figures.first_fault.startswith("unsigned: ")


GOOD = {
    "documents": {"accepted": 325, "tracebacks": 0},
    "signatures": {"tried": 22, "last_good_kept": 22, "unsigned_accepted": 0, "countable": 4, "followed": 4},
    "reverts": {"tried": 200, "identical": 200},
}


@pytest.mark.parametrize(
    ("what", "figure", "value"),
    [
        ("documents", "tracebacks", 1),
        ("signatures", "unsigned_accepted", 1),
        ("signatures", "last_good_kept", 21),
        ("signatures", "followed", 3),
        ("reverts", "identical", 199),
    ],
)
def test_the_command_fails_for_one_that_got_through_and_for_none_else(what: str, figure: str, value: int) -> None:
    assert not got_through(GOOD)
    assert got_through({**GOOD, what: {**GOOD[what], figure: value}})
