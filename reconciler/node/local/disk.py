"""What a state folder that can't be used is told as."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from reconciler.protocols.backend import BackendUnreachableError


class StateFolderError(BackendUnreachableError):
    """The state folder can't be read or written (full, read-only, gone): a person must act. Then send it again."""


@contextmanager
def disk_errors_explained(state: Path) -> Iterator[None]:
    """Errors of the disk, and of what is on it, as one that says what to do. Raises StateFolderError."""
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"{state}: {error}. Make it a folder this user can write, with free space; then go on"
        ) from error
    except msgspec.DecodeError as error:
        raise StateFolderError(
            f"{state}: a file in it is damaged: {error}. Restore the folder, or move it away"
        ) from error
