"""The token that server and client share on one machine: a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from reconciler.access.secret_file import SecretFile

_TOKEN_BYTES = 32


class TokenFileError(Exception):
    """The token file can't be made, can't be read, or can be read by others; or what stands for it is no token."""


def default_state_folder() -> Path:
    """Where a control plane keeps what it must not lose: QUORATE_STATE, else the user's XDG state folder."""
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(os.environ.get("QUORATE_STATE") or Path(state_home) / "quorate")


def default_token_file() -> Path:
    """Where the control plane of this user on this machine keeps its token."""
    return default_state_folder() / "token"


def read_or_make_token(path: Path, what: str = "token") -> str:
    """The token, or another secret of its kind, made on the first call. Raises TokenFileError."""
    try:
        if not path.is_symlink() and not path.exists():
            _make(path)
    except OSError as error:
        raise TokenFileError(f"{path}: can't be made: {error.strerror}. Choose a folder you can write") from error
    return read_token(path, what)


def _make(path: Path) -> None:
    """Whole or not at all, and never in place of another: processes that start at the same time read one token. Raises OSError."""
    with suppress(FileExistsError):  # a file in its place is told of below
        path.parent.mkdir(mode=0o700, parents=True)
    handle, made = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(made, path)
    finally:
        os.unlink(made)


def read_token(path: Path, what: str = "token") -> str:
    """The token in a file that is its owner's alone, the first of them while it is being changed. Raises TokenFileError."""
    return read_tokens(path, what)[0]


def read_tokens(path: Path, what: str = "token") -> tuple[str, ...]:
    """Those of such a file, one a line: one, or two while it is being changed. Raises TokenFileError."""
    tokens = tuple(secret_text(path, what).splitlines()) or ("",)
    if any(len(token) < _TOKEN_BYTES or not _is_plain(token) for token in tokens):
        raise TokenFileError(
            f"{path}: holds no {what}. If a control plane made it, delete it: the next start makes a new one"
        )
    return tokens


def token_source(path: Path, what: str = "token") -> SecretFile[tuple[str, ...]]:
    """The same, as the file says at each call. Raises TokenFileError where it says nothing good now."""
    source = SecretFile(path, partial(read_tokens, what=what), TokenFileError)
    source()
    return source


def own_token_source(path: Path, what: str = "token") -> SecretFile[tuple[str, ...]]:
    """The same, of a file that is made at the first call. Raises TokenFileError."""
    read_or_make_token(path, what)
    return token_source(path, what)


def read_foreign_token(path: Path) -> str:
    """A token that another program made, of whatever length, in a file that is its owner's alone. Raises TokenFileError."""
    token = secret_text(path, "token")
    if not token or not _is_plain(token):
        raise TokenFileError(f"{path}: holds no token. Write it there as one line")
    return token


def secret_text(path: Path, what: str) -> str:
    """What stands in a file that is its owner's alone. Raises TokenFileError."""
    try:
        # A link could lead to a file with permissions that another user can change.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise TokenFileError(f"{path}: the {what} can't be read: {error.strerror}") from error
    with os.fdopen(handle, encoding="ascii", errors="replace") as file:
        found = os.fstat(file.fileno())
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (0, os.geteuid()):
            raise TokenFileError(
                f"{path}: others can read or own this {what}. Run: chmod 600 {path}; or get another one, if they have read it"
            )
        return file.read().strip()


def token_in_environment(variable: str = "QUORATE_TOKEN") -> str | None:
    """What the variable says; None where it says nothing. Raises TokenFileError, which never quotes it."""
    token = os.environ.get(variable, "").strip()  # It may have been put there as a line.
    if not _is_plain(token):
        raise TokenFileError(
            f"{variable}: this is no token: it has characters that none has. Set it to one line, as it was printed"
        )
    return token or None


def _is_plain(token: str) -> bool:
    """Whether it can be sent: what else there is a header of HTTP can't have."""
    return token.isascii() and token.isprintable() and " " not in token
