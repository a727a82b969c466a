"""The token is made once, is its owner's alone, and is found by the client."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Any

import pytest

from reconciler.access.token_file import TokenFileError, default_token_file, read_or_make_token, read_token
from reconciler.api.server import ApiServer
from reconciler.client import NotAuthorisedError, connect
from tests.reconciler.api.conftest import TOKEN


def test_it_is_made_at_the_first_start_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "state" / "token"
    token = read_or_make_token(path)
    assert len(token) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_or_make_token(path) == token == read_token(path)
    assert read_or_make_token(tmp_path / "other") != token


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    read_or_make_token(path)
    path.chmod(mode)
    with pytest.raises(TokenFileError, match="others can read or own"):
        read_or_make_token(path)


def test_a_link_an_empty_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    read_or_make_token(tmp_path / "token")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    (tmp_path / "empty").touch(mode=0o600)
    for name in ("link", "empty", "missing"):
        with pytest.raises(TokenFileError, match=name):
            read_token(tmp_path / name)
    (tmp_path / "file").touch()
    with pytest.raises(TokenFileError, match="Not a directory"):
        read_or_make_token(tmp_path / "file" / "token")


def test_the_client_finds_server_and_token(tmp_path: Path, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUORATE_SERVER", "QUORATE_TOKEN", "QUORATE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path))
    default_token_file().write_text(TOKEN)
    default_token_file().chmod(0o600)
    with connect(server.url) as by_option:
        assert by_option.jobs().items == ()
    monkeypatch.setenv("QUORATE_SERVER", server.url)
    with connect() as by_environment:
        assert by_environment.jobs().items == ()
    default_token_file().unlink()
    monkeypatch.setenv("QUORATE_TOKEN", TOKEN)
    with connect() as by_token:
        assert by_token.jobs().items == ()


def test_a_token_in_a_state_folder_that_is_closed_to_us_is_none_of_ours(
    tmp_path: Path, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat

    def stat_of(path: str | Path, **options: Any) -> os.stat_result:
        if str(path) == str(tmp_path / "token"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, **options)

    for name in ("QUORATE_TOKEN", "QUORATE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path))
    monkeypatch.setattr(os, "stat", stat_of)
    with connect(server.url) as client, pytest.raises(NotAuthorisedError, match="QUORATE_STATE"):
        client.jobs()


@pytest.mark.parametrize("written", ["secret-\u00fc", "secret-a\nsecret-b", "secret-a secret-b", "secret-\x00b"])
def test_what_can_be_no_token_is_refused_and_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.delenv("QUORATE_TOKEN_FILE", raising=False)
    if "\x00" not in written:  # which no environment has
        monkeypatch.setenv("QUORATE_TOKEN", written)
        with pytest.raises(TokenFileError, match="QUORATE_TOKEN: this is no token") as refused:
            connect("http://127.0.0.1:1")
        assert "secret" not in str(refused.value)
    path = tmp_path / "own"
    path.touch(0o600)
    path.write_text(written * 9)
    with pytest.raises(TokenFileError, match="holds no token") as refused:
        read_token(path)
    assert "secret" not in str(refused.value)


def test_a_line_in_the_environment_is_a_token(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORATE_TOKEN", f"{TOKEN}\r\n")
    with connect(server.url) as client:
        assert client.jobs().items == ()


def test_who_makes_it_at_the_same_time_gets_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another control plane of this machine comes while the first has begun, and written nothing yet."""
    path, drawn, others = tmp_path / "identity", secrets.token_urlsafe, list[str]()

    def slowly(size: int) -> str:
        if not others:
            others.append("")
            others.append(read_or_make_token(path, "identity"))
        return drawn(size)

    monkeypatch.setattr(secrets, "token_urlsafe", slowly)
    assert read_or_make_token(path, "identity") == others[1] == read_token(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600


def test_who_dies_while_making_it_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(TokenFileError, match="No space left on device"):
            read_or_make_token(tmp_path / "token")
    assert list(tmp_path.iterdir()) == []
    assert read_or_make_token(tmp_path / "token")
