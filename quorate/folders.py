"""Folders by their URL: local ones by the standard library, others by fsspec, imported where one is met."""

from __future__ import annotations

import hashlib
import os
import tempfile
from typing import Any, BinaryIO

_PIECE = 4 * 2**20
"""Bytes that are read at once."""


def join(url: str, relative: str) -> str:
    """What lies below a folder."""
    return f"{url.rstrip('/')}/{relative}"


def local_path(url: str) -> str:
    """The path of a `file:` URL or of a plain path; "" for anything else."""
    if "://" not in url:
        return url
    return url[len("file://") :] if url.startswith("file://") else ""


def exists(url: str) -> bool:
    """Whether there is a file."""
    path = local_path(url)
    return os.path.exists(path) if path else bool(_fs(url).exists(url))


def read(url: str) -> bytes:
    """A whole file."""
    path = local_path(url)
    if not path:
        return bytes(_fs(url).cat_file(url))
    with open(path, "rb") as file:
        return file.read()


def write(url: str, content: bytes) -> None:
    """A file appears with this content, whole or not at all."""
    path = local_path(url)
    if path:
        write_file(path, content)
    else:
        _fs(url).pipe_file(url, content)


def write_file(path: str, content: bytes) -> None:
    """The same for a local path; it is on the disk when this returns."""
    temporary, file = _temporary(path)
    with file:
        file.write(content)
        _settle(file, temporary, path)


def put(source: str, url: str) -> tuple[int, str]:
    """Copy a local file to a URL unless it is there already; its size and SHA-256."""
    path = local_path(url)
    if not path:
        size, sha256 = _hashed(source, None)
        _fs(url).put_file(source, url)
        return size, sha256
    if os.path.exists(path) and os.path.samefile(source, path):
        with open(path, "rb") as own:
            os.fsync(own.fileno())
        return _hashed(path, None)
    temporary, file = _temporary(path)
    with file:
        found = _hashed(source, file)
        _settle(file, temporary, path)
    return found


def _hashed(source: str, copy: BinaryIO | None) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with open(source, "rb") as file:
        for piece in iter(lambda: file.read(_PIECE), b""):
            digest.update(piece)
            size += len(piece)
            if copy is not None:
                copy.write(piece)
    return size, digest.hexdigest()


def _temporary(path: str) -> tuple[str, BinaryIO]:
    parent = os.path.dirname(path) or "."
    os.makedirs(parent, exist_ok=True)
    number, temporary = tempfile.mkstemp(dir=parent, prefix=".partial-")
    return temporary, os.fdopen(number, "wb")


def _settle(file: BinaryIO, temporary: str, path: str) -> None:
    """What was written to the temporary file is the file from now on, even if the power fails."""
    file.flush()
    os.fsync(file.fileno())
    # Made for its owner alone; the control plane that verifies it may be somebody else of the same group.
    os.chmod(temporary, 0o640)
    os.replace(temporary, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _fs(url: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        scheme = url.partition("://")[0]
        raise ImportError(
            f"a folder in {scheme}:// needs fsspec and its driver for it in the image of the task: pip install fsspec[{scheme}]"
        ) from error
    return fsspec.core.url_to_fs(url)[0]
