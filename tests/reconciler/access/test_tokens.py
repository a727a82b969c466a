"""The token file: what is in it, who may read it, and when it is read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.access.caller import Caller
from reconciler.access.token_file import TokenFileError
from reconciler.access.tokens import UserTokenFile, create_token, hash_of


def test_a_token_is_known_by_its_hash_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    token = create_token(path, "ada", ("vision", "leads"))
    other = create_token(path, "bob")
    assert token != other
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    known = UserTokenFile(path)
    assert known.caller(token) == Caller("ada", frozenset({"vision", "leads"}))
    assert known.caller(other) == Caller("bob")
    assert known.caller(hash_of(token)) is None
    assert known.caller("") is None


def test_a_line_that_is_deleted_lets_nobody_in_any_more(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    token, other = create_token(path, "ada"), create_token(path, "bob")
    known = UserTokenFile(path)
    assert known.caller(token) is not None
    path.write_text("# one line\n\n" + path.read_text().splitlines()[1] + "\n")
    assert known.caller(token) is None
    assert known.caller(other) == Caller("bob")
    # What is appended to a file without a last line break begins a line of its own.
    path.write_text(path.read_text().rstrip())
    third = create_token(path, "eve")
    assert (known.caller(third), known.caller(other)) == (Caller("eve"), Caller("bob"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_touch_is_not_used(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "tokens"
    token = create_token(path, "ada")
    known = UserTokenFile(path)
    assert known.caller(token) is not None
    path.chmod(mode)
    with pytest.raises(TokenFileError, match="chmod 600"):
        known.caller(token)
    with pytest.raises(TokenFileError, match="chmod 600"):
        create_token(path, "bob")


def test_neither_is_a_link_or_nothing(tmp_path: Path) -> None:
    create_token(tmp_path / "tokens", "ada")
    os.symlink(tmp_path / "tokens", tmp_path / "link")
    for name in ("link", "missing"):
        with pytest.raises(TokenFileError, match="can't be opened"):
            UserTokenFile(tmp_path / name).check()


@pytest.mark.parametrize(
    "line",
    ["secret ada", "sha256:12 ada", f"sha256:{'a' * 64}", f"sha256:{'a' * 64} a b c", f"sha256:{'a' * 64} a b,,c"],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    create_token(path, "ada")
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(TokenFileError, match=r"tokens:2: this is no line of a token file"):
        UserTokenFile(path).check()


@pytest.mark.parametrize("name", ["", "a b", "a,b", "*", "a\nsha256:", "x" * 201])
def test_a_name_that_would_break_the_line_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TokenFileError, match="can't be a user or group"):
        create_token(tmp_path / "tokens", name)
    with pytest.raises(TokenFileError, match="can't be a user or group"):
        create_token(tmp_path / "tokens", "ada", (name,))
