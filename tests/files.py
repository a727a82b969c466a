"""What lies below a folder that others work in: they write, replace and remove files while it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every regular file below it, with its bytes. Links are not followed; what is gone when its turn comes is left out.

    Not by `rglob`, which fails where a folder is gone before it is listed.
    """
    for parent, _, names in os.walk(folder):
        for path in (Path(parent) / name for name in sorted(names)):
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    yield path, path.read_bytes()


def files_with(folder: Path, text: bytes) -> list[Path]:
    """Those that have it in them, sorted."""
    return sorted(path for path, content in contents(folder) if text in content)
