"""Secrets of the console's clients at identity providers: each in a file that only its owner can read, and none in Git."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from reconciler.access.secret_file import SecretFile

_BYTES_MAX: Final = 4_096


class ClientSecretError(Exception):
    """The file can't be read, can be read by others, or holds no secret. The server's operator must mend it."""


class ClientSecrets:
    """`files`: by issuer, so that Git can't have a secret sent to another one."""

    def __init__(self, files: Mapping[str, Path] | None = None) -> None:
        self._files: Mapping[str, Path] = {} if files is None else files
        self._read: dict[str, SecretFile[str]] = {}

    def check(self) -> None:
        """Raises ClientSecretError for a file that can't be used."""
        for issuer in self._files:
            self.of(issuer)

    def of(self, issuer: str) -> str:
        """As the file says now; "": the issuer's client has none. Raises ClientSecretError, where there was never one."""
        path = self._files.get(issuer)
        if path is None:
            return ""
        return self._read.setdefault(issuer, SecretFile(path, partial(_read, issuer), ClientSecretError))()


def _read(issuer: str, path: Path) -> str:
    """Raises ClientSecretError."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            written = file.read(_BYTES_MAX).strip()
    except OSError as error:
        raise ClientSecretError(
            f"{path}: the client's secret can't be read: {error.strerror}. Name a file of the server's own"
        ) from error
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (0, os.geteuid()):
        raise ClientSecretError(f"{path}: others can read or own this secret. Run: chmod 600 {path}")
    secret = written.decode("ascii", "replace")
    if not secret or not secret.isascii() or not secret.isprintable():
        raise ClientSecretError(f"{path}: holds no secret. Write into it what {issuer} calls the client's secret")
    return secret
