"""Files with private keys: only their owner can read them, or put others in their place."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from reconciler.supervisor.taskfiles import write_durably

_BYTES_MAX: Final = 1_000_000


class KeyFileError(Exception):
    """The file can't be read or written, or others can: the message has place, problem and fix."""


def read_private(path: Path) -> bytes:
    """What is in it. Raises KeyFileError."""
    _require_own_folder(path)
    try:
        # A link could lead to a file with permissions that another user can change.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise KeyFileError(f"{path}: can't be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077 or not _own(found):
            raise KeyFileError(f"{path}: others can read or own this key. Make a new one, or run: chmod 600 {path}")
        return file.read(_BYTES_MAX)


def write_private(path: Path, content: bytes) -> None:
    """Put it there whole or not at all, also where the machine loses power. Raises KeyFileError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own_folder(path)
        write_durably(str(path), content.decode("ascii"))
    except OSError as error:
        raise KeyFileError(f"{path}: can't be written: {error.strerror}. Choose a folder you can write") from error


def _require_own_folder(path: Path) -> None:
    try:
        found = path.parent.stat()
    except OSError as error:
        raise KeyFileError(f"{path.parent}: can't be used: {error.strerror}") from error
    if stat.S_IMODE(found.st_mode) & 0o022 or not _own(found):
        fix = f"Run: chmod go-w {path.parent}, and see that it is yours"
        raise KeyFileError(f"{path.parent}: others can write into this folder, which holds a key. {fix}")


def _own(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid())
