"""Files of the server that hold what may not stand in Git: keys that sign messages, and URLs that are secrets themselves."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import Final

_BYTES_MAX: Final = 4_096
_PREFIX: Final = "whsec_"
"""Standard Webhooks' mark of a symmetric key."""

_KEY_BYTES: Final = range(24, 65)
"""What Standard Webhooks asks of a key."""


class SecretFileError(Exception):
    """The file can't be used. The message never shows what it holds."""


def read_keys(folder: Path, name: str) -> tuple[bytes, ...]:
    """The keys that a file holds as whsec_BASE64, one a line: one, or two while it is being changed. Raises SecretFileError."""
    return tuple(_key(line, name) for line in read_secret(folder, name).split())


def _key(text: str, name: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SecretFileError(f"{name} holds no key: write it as {_PREFIX} and base64") from error
    if not text.startswith(_PREFIX) or len(key) not in _KEY_BYTES:
        raise SecretFileError(f"{name} holds no key: write it as {_PREFIX} and base64 of 24 to 64 random bytes")
    return key


def read_secret(folder: Path, name: str) -> str:
    """The text of a file in the folder that is its owner's alone. Raises SecretFileError."""
    try:
        # A link could lead out of the folder.
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SecretFileError(f"{name} can't be read in the folder alert-secrets ({error.strerror})") from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise SecretFileError(f"{name} is no file")
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (0, os.geteuid()):
            raise SecretFileError(f"others can read or own {name}: chmod 600 it")
        raw = os.read(handle, _BYTES_MAX + 1)
    finally:
        os.close(handle)
    try:
        text = raw.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise SecretFileError(f"{name} holds something else than text") from error
    if not text or len(raw) > _BYTES_MAX:
        raise SecretFileError(f"{name} is empty or longer than {_BYTES_MAX} bytes")
    return text
