"""A secret's file is read anew when it changes, and what was good goes on while it is not."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from reconciler.access.secret_file import UNFINISHED_MS, SecretFile, SecretRegister, is_among
from reconciler.access.token_file import TokenFileError, own_token_source, read_tokens
from reconciler.access.tokens import UserTokenFile, create_token
from reconciler.model.clock import VirtualClock
from solver.model.quantities import Instant

FIRST, SECOND = "a" * 40, "b" * 40


def private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_what_was_read_goes_on_while_the_file_says_nothing_good(tmp_path: Path) -> None:
    path = private(tmp_path / "token", f"{FIRST}\n")
    source = SecretFile(path, read_tokens, TokenFileError)
    assert (source(), source.problem) == ((FIRST,), "")
    for spoil in (lambda: path.write_text("no token\n"), lambda: path.chmod(0o644), path.unlink):
        spoil()
        assert source() == (FIRST,)
        assert str(path) in source.problem
    private(path, f"{SECOND}\n{FIRST}\n")
    assert (source(), source.problem) == ((SECOND, FIRST), "")


def test_of_each_file_that_is_read_it_is_known_what_is_wrong_with_it_now(tmp_path: Path) -> None:
    """Also where nothing needs it now, and as long as anything may."""
    register, paths = SecretRegister(), [private(tmp_path / name, f"{FIRST}\n") for name in ("one", "two")]
    token, users = SecretFile(paths[0], read_tokens, TokenFileError), UserTokenFile(tmp_path / "users")
    create_token(users.path, "ada")
    for each in (token, users.source):
        each()
        register.add(each)
    assert register.looked_at() == {str(paths[0]): None, str(users.path): None}
    paths[0].chmod(0o644)
    users.path.unlink()
    told = {place: found and found.is_kept for place, found in register.looked_at().items()}
    assert told == {token.place: True, users.source.place: False}
    paths[0].chmod(0o600)
    create_token(users.path, "ada")
    assert set(register.looked_at().values()) == {None}
    del users, each
    gc.collect()
    assert register.looked_at() == {token.place: None}


def test_one_that_was_never_good_is_an_error(tmp_path: Path) -> None:
    source = SecretFile(tmp_path / "token", read_tokens, TokenFileError)
    for _ in range(2):
        with pytest.raises(TokenFileError, match="can't be read"):
            source()
    private(tmp_path / "token", f"{FIRST}\n")
    assert source() == (FIRST,)


def test_a_file_in_the_middle_of_a_line_counts_once_it_has_not_changed_for_a_second(tmp_path: Path) -> None:
    path = private(tmp_path / "token", f"{FIRST}\n")
    clock = VirtualClock(Instant(path.stat().st_ctime_ns // 1_000_000))
    source = SecretFile(path, read_tokens, TokenFileError, clock=clock)
    assert source() == (FIRST,)
    path.write_text(SECOND)
    clock.advance(path.stat().st_ctime_ns // 1_000_000 - clock.now() + UNFINISHED_MS - 1)
    assert source() == (FIRST,)
    clock.advance(1)
    assert source() == (SECOND,)


def test_the_same_content_in_another_file_and_another_content_of_the_same_size_are_seen(tmp_path: Path) -> None:
    path = private(tmp_path / "token", f"{FIRST}\n")
    source = SecretFile(path, read_tokens, TokenFileError)
    source()
    before = path.stat()
    private(tmp_path / "next", f"{SECOND}\n").rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source() == (SECOND,)


def test_the_token_file_of_users_that_others_can_touch_or_is_gone_lets_nobody_in(tmp_path: Path) -> None:
    """To lock all users out it may be moved away; half a line in it takes no user's token away."""
    path = tmp_path / "tokens"
    ada = create_token(path, "ada")
    known = UserTokenFile(path)
    assert known.caller(ada)
    path.write_text(path.read_text() + "sha256:half\n")
    assert known.caller(ada)
    assert "tokens:2: this is no line" in known.source.problem
    path.rename(tmp_path / "away")
    with pytest.raises(TokenFileError, match="can't be opened"):
        known.caller(ada)


def test_the_servers_own_token_is_made_and_may_be_two(tmp_path: Path) -> None:
    source = own_token_source(tmp_path / "token")
    (made,) = source()
    private(tmp_path / "token", f"{SECOND}\n{made}\n")
    assert [is_among(shown, source) for shown in (made, SECOND, FIRST, "")] == [True, True, False, False]
