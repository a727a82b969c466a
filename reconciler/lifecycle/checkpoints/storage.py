"""Where checkpoints lie: any folder that fsspec reaches. What is published appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from fsspec.core import url_to_fs

from quorate import folders
from reconciler.lifecycle.checkpoints.local_folder import LocalFolder, NotPlainError, TooManyEntriesError
from solver.model.quantities import Instant

PIECE_BYTES: Final = 4 * 2**20
"""What is read of a shard at once."""

SMALL_BYTES_MAX: Final = 256 * 2**20
"""Of a part or a manifest; a hundred thousand tasks with ten shards each write some 200 MiB."""

PART_BYTES_MAX: Final = 4 * 2**20
"""Of the part of one task: some 16,000 shards."""

SMALL_BYTES_EACH_LOOK: Final = 4 * SMALL_BYTES_MAX
"""Of all parts and manifests together that one object reads."""

_CHANGED: Final = ("mtime", "ETag", "LastModified", "last_modified", "updated", "created")
"""By which of these a listing of fsspec says that a file is another than before."""


class StorageUnusableError(Exception):
    """The storage can't be reached or refuses: its operator, or the one of the control plane's credentials, must act."""

    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(
            f"{url}: the storage can't be used ({type(error).__name__}: {error}). "
            "Check that it is there, and that the control plane's environment has credentials for it."
        )


class RefusedEntryError(StorageUnusableError):
    """A task has put something in its folder that the control plane does not touch: the job's owner must act."""

    def __init__(self, url: str, problem: str) -> None:
        Exception.__init__(
            self,
            f"{url}: {problem}. The control plane reads plain files in plain folders alone. "
            "Remove it, and let the job save its work anew.",
        )
        self.problem = problem


class ReadEnoughError(RefusedEntryError):
    """One look has read as much as it may: the next may read on."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An opened file. `pieces` end early where it has become shorter, and after one byte more where it has grown."""

    size: int
    pieces: Iterator[bytes]


class Storage:
    """One folder by its URL. Paths are relative to it. Every method raises StorageUnusableError where the storage fails.

    Tasks write here, as others than the control plane: on a local file system every path is walked by descriptors, and nothing is
    followed or opened but plain folders and files. Make one for each look at a job: how much it lists and reads is bounded.
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
        path = folders.local_path(self.url)
        self._local = LocalFolder(path) if path else None
        self._left = SMALL_BYTES_EACH_LOOK

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies directly in a folder, sorted; () where there is none."""
        with self._explained():
            try:
                if self._local:
                    return tuple(sorted(self._local.names(folder)))
                found = self._fs.ls(self._at(folder), detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return ()
        return tuple(sorted(str(path).rstrip("/").rpartition("/")[2] for path in found))

    def state_of(self, folder: str) -> int | None:
        """A number that is another once a file directly in the folder is; None: the storage does not say. Of this process alone."""
        with self._explained():
            try:
                if self._local:
                    return hash(self._local.states(folder))
                listed = self._fs.ls(self._at(folder), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return hash(())
        told = [next((one[key] for key in _CHANGED if one.get(key)), None) for one in listed]
        if None in told:
            return None
        return hash(tuple(sorted((one["name"], one["size"], str(at)) for one, at in zip(listed, told, strict=True))))

    @contextmanager
    def open(self, path: str) -> Iterator[StoredFile | None]:
        """A plain file, to be read in pieces of PIECE_BYTES; None where there is none. Raises RefusedEntryError."""
        with ExitStack() as kept:
            with self._explained():
                file = self._opened(path, kept)
            yield file

    def _opened(self, path: str, kept: ExitStack) -> StoredFile | None:
        if self._local:
            descriptor = kept.enter_context(self._local.opened(path))
            if descriptor is None:
                return None
            size = os.fstat(descriptor).st_size
            return StoredFile(size, self._pieces(lambda most: os.read(descriptor, most), size))
        try:
            found = self._fs.info(self._at(path))
            if found["type"] != "file":
                return None
            # Nothing is read ahead, and nothing remembered: a checkpoint is larger than the memory here.
            file = self._fs.open(self._at(path), "rb", block_size=PIECE_BYTES, cache_type="none")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredFile(int(found["size"]), self._pieces(kept.enter_context(file).read, int(found["size"])))

    def _pieces(self, read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
        left = size + 1  # A file that grows while it is read would have no end.
        while left > 0:
            with self._explained():
                piece = read(min(PIECE_BYTES, left))
            if not piece:
                return
            left -= len(piece)
            yield piece

    def read(self, path: str, bytes_max: int = SMALL_BYTES_MAX) -> bytes | None:
        """A small file; None where there is none, or one that is not small. Raises RefusedEntryError."""
        with self.open(path) as file:
            if file is None or file.size > bytes_max:
                return None
            self._left -= file.size
            if self._left < 0:
                raise ReadEnoughError(self.url, f"its parts have more than {SMALL_BYTES_EACH_LOOK} bytes")
            return b"".join(file.pieces)

    def publish(self, path: str, content: bytes) -> None:
        """A small file appears whole: by renaming it on a local file system, by a single put elsewhere."""
        with self._explained():
            if self._local:
                self._local.publish(path, content)
            else:
                self._fs.pipe_file(self._at(path), content)

    def delete(self, path: str) -> None:
        """A file or a folder with all that is in it goes; harmless where there is none.

        Of a huge local folder it deletes a share: call it again.
        """
        with self._explained():
            try:
                if self._local:
                    self._local.delete(path)
                else:
                    self._fs.rm(self._at(path), recursive=True)
            except FileNotFoundError:
                return

    def changed_at(self, folder: str) -> Instant | None:
        """When something in a folder was written last; None: there is nothing in it, or it can't be known."""
        with self._explained():
            try:
                at_s = self._local.written_at_s(folder) if self._local else self._modified_at_s(folder)
            except (FileNotFoundError, NotImplementedError):
                return None
        return None if at_s is None else Instant(int(at_s * 1_000))

    def _modified_at_s(self, folder: str) -> float:
        inside = self._fs.find(self._at(folder)) or [self._at(folder)]
        return float(max(self._fs.modified(path).timestamp() for path in inside))

    def require_folder(self) -> None:
        """Raise StorageUnusableError where it is a local folder that is not there, as while its file system is not mounted."""
        if self._local and not os.path.isdir(self._local.path):
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

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (NotPlainError, TooManyEntriesError) as error:
            raise RefusedEntryError(self.url, str(error)) from error
        except StorageUnusableError:
            raise
        except Exception as error:  # each driver has errors of its own
            self._begin_anew()
            raise StorageUnusableError(self.url, error) from error

    def _begin_anew(self) -> None:
        """Drivers are kept by fsspec, with the credentials that they found first; those may have been replaced since."""
        if not self._local:
            type(self._fs).clear_instance_cache()

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root
