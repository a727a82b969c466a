"""The password of the store's database: one line in a file that only its owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from reconciler.protocols.stores import StoreUnusableError


def read_password(path: Path) -> str:
    """The password. Raises StoreUnusableError where the file can't be read, can be read by others, or is empty."""
    try:
        with path.open(encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            password = file.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnusableError(
            f"{path}: the password can't be read ({error}). Name a file of the server's own."
        ) from error
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (0, os.geteuid()):
        raise StoreUnusableError(f"{path}: others can read or own this password. Change it, and chmod 600 the file.")
    if not password:
        raise StoreUnusableError(f"{path}: it is empty. Write the password of the database's user into it.")
    return password
