"""Where checkpoints lie: any folder that fsspec reaches. What is published appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from fsspec.core import url_to_fs

from quorate import folders
from solver.model.quantities import Instant

PIECE_BYTES: Final = 4 * 2**20
"""What is read of a shard at once."""

SMALL_BYTES_MAX: Final = 256 * 2**20
"""Of a part or a manifest; a hundred thousand tasks with ten shards each write some 200 MiB."""


class StorageUnusableError(Exception):
    """The storage can't be reached or refuses: whoever runs it, or gives the control plane its credentials, must act."""

    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(
            f"{url}: the storage can't be used ({type(error).__name__}: {error}). "
            "Check that it is there, and that the control plane's environment has credentials for it."
        )


class Storage:
    """One folder by its URL. Paths are relative to it. Every method raises StorageUnusableError where the storage fails.

    Tasks write here, as others than the control plane: on a local file system nothing is followed that leads out of the folder.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            self._fs: Any
            # Listings that are remembered would hide what other machines have written.
            self._fs, root = url_to_fs(self.url, use_listings_cache=False)
        except (ImportError, ValueError, OSError) as error:
            raise StorageUnusableError(self.url, error) from error
        self._root = str(root).rstrip("/")
        local = folders.local_path(self.url)
        # The folder's own name is never a link: who may write beside it could send us anywhere.
        self._real = os.path.join(os.path.realpath(os.path.dirname(local)), os.path.basename(local)) if local else ""

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies directly in a folder, sorted; () where there is none."""
        if not self._is_inside(folder):
            return ()
        try:
            found = self._fs.ls(self._at(folder), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except Exception as error:  # each driver has errors of its own
            raise StorageUnusableError(self.url, error) from error
        return tuple(sorted(str(path).rstrip("/").rpartition("/")[2] for path in found))

    def size(self, path: str) -> int | None:
        """The bytes of a plain file; None for anything else: a folder, a pipe, a link that leads out, nothing."""
        if not self._is_inside(path):
            return None
        try:
            found = self._fs.info(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # each driver has errors of its own
            raise StorageUnusableError(self.url, error) from error
        return int(found["size"]) if found["type"] == "file" else None

    def read(self, path: str) -> bytes | None:
        """A small file; None where there is none, or one that is not small."""
        size = self.size(path)
        if size is None or size > SMALL_BYTES_MAX:
            return None
        return b"".join(self.pieces(path))

    def pieces(self, path: str) -> Iterator[bytes]:
        """A file in pieces of PIECE_BYTES. It may end early, where it vanishes meanwhile."""
        try:
            # Nothing is read ahead, and nothing remembered: a checkpoint is larger than the memory here.
            with self._fs.open(self._at(path), "rb", block_size=PIECE_BYTES, cache_type="none") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except FileNotFoundError:
            return
        except Exception as error:  # each driver has errors of its own
            raise StorageUnusableError(self.url, error) from error

    def publish(self, path: str, content: bytes) -> None:
        """A small file appears whole: by renaming it on a local file system, by a single put elsewhere."""
        try:
            if self._real:
                folders.write_file(self._at(path), content)
            else:
                self._fs.pipe_file(self._at(path), content)
        except Exception as error:  # each driver has errors of its own
            raise StorageUnusableError(self.url, error) from error

    def delete(self, path: str) -> None:
        """A file or a folder with all that is in it goes; harmless where there is none."""
        if not self._is_inside(path.rpartition("/")[0]):
            return
        try:
            if self._real and os.path.islink(self._at(path)):
                os.unlink(self._at(path))
            else:
                self._fs.rm(self._at(path), recursive=True)
        except FileNotFoundError:
            return
        except Exception as error:  # each driver has errors of its own
            raise StorageUnusableError(self.url, error) from error

    def changed_at(self, folder: str) -> Instant | None:
        """When something in a folder was written last; None: there is nothing in it, or nobody can say."""
        if not self._is_inside(folder):
            return None
        try:
            inside = self._fs.find(self._at(folder)) or [self._at(folder)]
            times = [self._fs.modified(path) for path in inside]
        except (FileNotFoundError, NotImplementedError):
            return None
        except Exception as error:  # each driver has errors of its own
            raise StorageUnusableError(self.url, error) from error
        return Instant(int(max(time.timestamp() for time in times) * 1_000))

    def require_folder(self) -> None:
        """Raise StorageUnusableError where it is a local folder that is not there, as while its file system is not mounted."""
        if self._real and not os.path.isdir(self._real):
            problem = "this folder is gone, as while it is not mounted; if what it had is gone for good, make it anew and empty"
            raise StorageUnusableError(self.url, FileNotFoundError(problem))

    def is_reachable(self) -> bool:
        """Whether the storage answers at all: what fails here then concerns one file or folder, and its owner."""
        try:
            self._fs.info(self._root)
        except FileNotFoundError:
            return True
        except Exception:  # noqa: BLE001  (whatever the driver raises, that is the answer)
            return False
        return True

    def _is_inside(self, path: str) -> bool:
        """No link on the way to it leads elsewhere. Other storages than local file systems know no links."""
        expected = os.path.join(self._real, path) if path else self._real
        return not self._real or os.path.realpath(self._at(path)) == expected

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root
