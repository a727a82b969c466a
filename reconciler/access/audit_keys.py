"""The file with the keys of the audit chain: one a line, the newest last. It is read anew when it changes."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from reconciler.access.secret_file import SecretFile
from reconciler.access.token_file import TokenFileError, read_or_make_token, secret_text
from reconciler.model.audit import AuditKey, AuditKeys
from reconciler.supervisor.taskfiles import write_durably

_BYTES: Final = 32
_ID_CHARACTERS: Final = 12


class AuditKeyError(Exception):
    """The key file can't be read or written, others can read it, or it holds no keys. The message has the fix."""


def read_keys(path: Path) -> AuditKeys:
    """The keys of a file that is its owner's alone. Raises AuditKeyError, TokenFileError."""
    lines = secret_text(path, "audit key").split()
    if not lines or any(len(line) < _BYTES or not (line.isascii() and line.isprintable()) for line in lines):
        raise AuditKeyError(
            f"{path}: holds no audit keys, one a line. Restore the file, or delete it: the next start makes a new one, "
            "with which older links can't be verified"
        )
    return AuditKeys(tuple(AuditKey(_id_of(line), line.encode()) for line in lines))


def add_key(path: Path) -> str:
    """Add a key, which signs from now on; returns its id. Raises AuditKeyError, TokenFileError."""
    known, added = secret_text(path, "audit key").split(), secrets.token_urlsafe(_BYTES)
    try:
        write_durably(str(path), "".join(f"{line}\n" for line in (*known, added)))
    except OSError as error:
        raise AuditKeyError(f"{path}: can't be written ({error.strerror}). Run this as its owner") from error
    return _id_of(added)


def _id_of(line: str) -> str:
    """Made of the key, so that it can't be given another's id."""
    return hashlib.sha256(b"quorate-audit-key " + line.encode()).hexdigest()[:_ID_CHARACTERS]


class AuditKeyFile:
    """The keys as they are now. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = SecretFile(path, read_keys, (AuditKeyError, TokenFileError))

    def begin(self) -> None:
        """Make the file, with one key, if it is not there. Raises AuditKeyError, TokenFileError."""
        if not self.path.is_symlink() and not self.path.exists():
            read_or_make_token(self.path, "audit key")
        self.keys()

    def keys(self) -> AuditKeys:
        """Read anew once the file has changed; those known before, while it can't be. Raises AuditKeyError, TokenFileError."""
        return self.source()
