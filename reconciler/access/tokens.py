"""The token file: which users may come in by a bearer token, one line each, with a hash where the token would be.

A line is `sha256:HEX USER GROUP,GROUP`; the groups may be left out, and what begins with # is a comment. A reader of the
file learns no token from it: they are random, so that none can be found by its hash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from reconciler.access.caller import Caller
from reconciler.access.secret_file import SecretFile
from reconciler.access.token_file import TokenFileError

_TOKEN_BYTES: Final = 32
_BYTES_MAX: Final = 10_000_000
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+:/-]{0,199}")


class TokenLineError(TokenFileError):
    """A line is none of a token file. Until that is mended, what was read before counts."""


def is_principal(name: object) -> bool:
    """Whether this may be the name of a user or group: as `principal` of schemas/common.json."""
    return isinstance(name, str) and _PRINCIPAL.fullmatch(name) is not None


def hash_of(token: str) -> str:
    """What stands in the file for a token."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


class UserTokenFile:
    """Reads the file anew whenever it has changed. Threads may share it: what was read is replaced whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = SecretFile(path, _read, TokenLineError)

    def caller(self, token: str) -> Caller | None:
        """The token's caller; None: there is none. Raises TokenFileError for a file that is not its owner's alone, or gone."""
        return self.caller_of(hash_of(token))

    def caller_of(self, token_hash: str) -> Caller | None:
        """The caller of the token with this hash, likewise."""
        # Looking up a hash says by its time at most something of the hash, from which no token follows.
        return self.source().get(token_hash)

    def check(self) -> None:
        """Raises TokenFileError for a file that can't be used."""
        self.source()


def _read(path: Path) -> dict[str, Caller]:
    with _opened(path, os.O_RDONLY) as file:
        return dict(_lines(path, file.read(_BYTES_MAX)))


def create_token(path: Path, user: str, groups: tuple[str, ...] = ()) -> str:
    """A fresh token; its hash is appended to the file, which is made if there is none. Raises TokenFileError.

    The line is on the disk before the token is told.
    """
    for name in (user, *groups):
        if not is_principal(name):
            raise TokenFileError(
                f"{name!r} can't be a user or group: letters, digits and . _ @ + : / - only, at most 200 characters"
            )
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    line = " ".join([hash_of(token), user, *([",".join(groups)] if groups else [])])
    with _opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read(_BYTES_MAX)
        dict(_lines(path, text))
        file.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n")
        file.flush()
        os.fsync(file.fileno())
    return token


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[TextIO]:
    try:
        # A link could lead to a file with permissions that another user can change.
        handle = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise TokenFileError(f"{path}: the token file can't be opened: {error.strerror}") from error
    with os.fdopen(handle, "r" if flags == os.O_RDONLY else "r+", encoding="ascii", errors="replace") as file:
        found = os.fstat(handle)
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (0, os.geteuid()):
            raise TokenFileError(f"{path}: others can read or own this token file. Run: chmod 600 {path}")
        yield file


def _lines(path: Path, text: str) -> Iterator[tuple[str, Caller]]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        groups = words[2].split(",") if len(words) == 3 else []
        if not 2 <= len(words) <= 3 or not _HASH.fullmatch(words[0]) or not all(map(is_principal, [words[1], *groups])):
            raise TokenLineError(
                f"{path}:{number}: this is no line of a token file. "
                "Write `sha256:HEX USER GROUP,GROUP`, or let `quorate token create` write it"
            )
        yield words[0], Caller(words[1], frozenset(groups))
