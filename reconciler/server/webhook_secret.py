"""The secret that the server shares with forges: a line in a file that only its owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

SHORTEST: Final = 16
"""Bytes. A reader of one delivery can try secrets as fast as a machine computes."""


class WebhookSecretError(Exception):
    """The file can't be read, can be read by others, or holds no secret. A person must mend it."""


def read_webhook_secrets(path: Path) -> tuple[bytes, ...]:
    """Those that count, one a line: one, or two while it is being changed. Raises WebhookSecretError."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            known = tuple(file.read().strip().splitlines())
    except OSError as error:
        raise WebhookSecretError(f"{path}: can't be read: {error.strerror}. Name a file of the server's own") from error
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (0, os.geteuid()):
        raise WebhookSecretError(f"{path}: others can read or own this secret. Make a new one, and chmod 600 it")
    if not known or any(len(secret) < SHORTEST for secret in known):
        raise WebhookSecretError(f"{path}: a secret has at least {SHORTEST} bytes. Make one: openssl rand -hex 32")
    return known
