"""A folder of a local file system in which accounts write that must not lead the control plane elsewhere.

A check of a path proves nothing about the next use of that path: an account may exchange a folder for a link in between. So no path
is used twice. Every component below the folder is opened relative to the one before it, without following a link (openat(2),
O_NOFOLLOW), and first as a mere place (O_PATH), which neither waits for a pipe nor wakes a device. What is read, written or
deleted is then the opened thing itself, or a name in an opened folder.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

ENTRIES_MAX: Final = 2**21
"""How many entries one object lists; a hundred thousand tasks with ten shards each make 1.2 million."""

DELETED_MAX: Final = 100_000
"""How many entries one call deletes, some seconds' worth: what is left goes when it is called again."""

DEPTH_MAX: Final = 32
"""How many folders deep `delete` works, with a descriptor each. What lies deeper is moved up first. Checkpoints have two."""

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Not to wait, also for an account that holds a lease on its file (fcntl(2), F_SETLEASE)."""

_KINDS: Final = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
}


class NotPlainError(Exception):
    """What lies there is nothing that a checkpoint is made of: `path`, within the folder, is `kind`."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{path} is {kind}")
        self.path, self.kind = path, kind


class TooManyEntriesError(Exception):
    """There is more in the folder than is looked at."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it has more than {most} entries")


@dataclass
class LocalFolder:
    """Paths are relative to `path`, which may lie behind links, and is no link itself: accounts may write beside it.

    What is on another mount is refused, since a file system of an account's own (FUSE) may never answer.
    Every method raises OSError, NotPlainError.
    """

    path: str
    entries_max: int = ENTRIES_MAX
    deleted_max: int = DELETED_MAX
    _listed: int = field(default=0, init=False)

    def names(self, path: str) -> list[str]:
        """What lies in a folder; [] where there is none. Raises TooManyEntriesError."""
        with suppress(FileNotFoundError), self._opened_folder(path) as folder:
            return [name for name, _ in self._entries(folder)]
        return []

    def states(self, path: str) -> tuple[tuple[str, int, int, int], ...]:
        """What lies in a folder: names, inodes, sizes, when written in ns. Raises TooManyEntriesError."""
        with suppress(FileNotFoundError), self._opened_folder(path) as folder:
            return tuple(sorted(self._states(folder)))
        return ()

    def _states(self, folder: int) -> Iterator[tuple[str, int, int, int]]:
        for name, _ in self._entries(folder):
            with suppress(FileNotFoundError):
                file = os.stat(name, dir_fd=folder, follow_symlinks=False)
                yield name, file.st_ino, file.st_size, file.st_mtime_ns

    @contextmanager
    def opened(self, path: str) -> Iterator[int | None]:
        """The descriptor of a plain file, to be read; None where there is nothing."""
        parent, _, name = path.rpartition("/")
        try:
            with self._opened_folder(parent) as folder:
                file = _open_file(folder, name, path)
        except FileNotFoundError:
            yield None
            return
        try:
            yield file
        finally:
            os.close(file)

    def publish(self, path: str, content: bytes) -> None:
        """A file appears whole in a folder that is there, and belongs to the folder's owner."""
        parent, _, name = path.rpartition("/")
        with self._opened_folder(parent) as folder:
            scratch = f".partial-{os.urandom(8).hex()}"
            file = os.open(scratch, _NEW, 0o600, dir_fd=folder)
            try:
                with open(file, "wb") as written:
                    written.write(content)
                    written.flush()
                    _give_to_owner(file, folder)
                    os.fsync(file)
                os.rename(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(FileNotFoundError):
                    os.unlink(scratch, dir_fd=folder)
                raise
            os.fsync(folder)

    def delete(self, path: str) -> None:
        """A file, whatever it is, or a folder with what is in it, goes: at most `deleted_max` entries in one call."""
        parent, _, name = path.rpartition("/")
        with suppress(FileNotFoundError), self._opened_folder(parent) as folder:
            _Deletion(self.deleted_max).delete(folder, name)

    def written_at_s(self, path: str) -> float | None:
        """When a file in a folder was written last; that of the folder where it has none; None where there is too much to say."""
        try:
            with self._opened_folder(path) as folder:
                own = os.fstat(folder).st_mtime
                return max(self._times(folder, 0), default=own)
        except (FileNotFoundError, TooManyEntriesError):
            return None

    def _times(self, folder: int, depth: int) -> Iterator[float]:
        for name, is_folder in list(self._entries(folder)):
            with suppress(FileNotFoundError, NotPlainError):
                if is_folder and depth < DEPTH_MAX:
                    with _entered(folder, name) as inner:
                        yield from self._times(inner, depth + 1)
                else:
                    yield os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime

    def _entries(self, folder: int) -> Iterator[tuple[str, bool]]:
        """Names, and whether each was a folder when it was listed. Raises TooManyEntriesError."""
        with os.scandir(folder) as entries:
            for entry in entries:
                self._listed += 1
                if self._listed > self.entries_max:
                    raise TooManyEntriesError(self.entries_max)
                yield entry.name, entry.is_dir(follow_symlinks=False)

    @contextmanager
    def _opened_folder(self, path: str) -> Iterator[int]:
        """A descriptor by which a folder can be listed and changed."""
        above, own = os.path.split(os.path.abspath(self.path))
        # The operator has chosen the way to here; it may have links.
        folder, walked = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), ""
        try:
            for name in (own, *filter(None, path.split("/"))):
                inner = _enter(folder, name, walked)
                os.close(folder)
                folder, walked = inner, f"{walked}{name}/" if walked or name != own else ""
            yield folder
        finally:
            os.close(folder)


@dataclass
class _Deletion:
    """Deletes names in opened folders, as long as something is `left` of what may be deleted."""

    left: int

    def delete(self, folder: int, name: str) -> None:
        """One entry with all that is in it. A file that is added meanwhile keeps its folder for the next call."""
        if self._unlink(folder, name):
            return
        with _entered(folder, name) as top:
            while names := _first_names(top, self.left):
                for each in names:
                    self._delete(top, top, each, 1)
        with _kept_if_not_empty():
            os.rmdir(name, dir_fd=folder)

    def _delete(self, top: int, folder: int, name: str, depth: int) -> None:
        if self.left <= 0 or self._unlink(folder, name):
            return
        self.left -= 1
        if depth >= DEPTH_MAX:
            # To where the next turn meets it again, with as many folders less above it.
            os.rename(name, f".deep-{os.urandom(8).hex()}", src_dir_fd=folder, dst_dir_fd=top)
            return
        with _entered(folder, name) as inner:
            for each in _first_names(inner, self.left):
                self._delete(top, inner, each, depth + 1)
        with _kept_if_not_empty():
            os.rmdir(name, dir_fd=folder)

    def _unlink(self, folder: int, name: str) -> bool:
        """Whether nothing of this name is there any more; False for a folder (unlink(2): EISDIR)."""
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return True
        except IsADirectoryError:
            return False
        self.left -= 1
        return True


@contextmanager
def _kept_if_not_empty() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def _first_names(folder: int, most: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, max(most, 0))]


@contextmanager
def _entered(folder: int, name: str) -> Iterator[int]:
    """A folder that lies in an opened one."""
    inner = _enter(folder, name, "")
    try:
        yield inner
    finally:
        os.close(inner)


def _enter(folder: int, name: str, walked: str) -> int:
    """The descriptor of a folder that lies in an opened one; `walked`: the way to that one, for the message."""
    place = _place(folder, name, f"{walked}{name}")
    try:
        found = os.fstat(place)
        if not stat.S_ISDIR(found.st_mode):
            raise NotPlainError(f"{walked}{name}", _KINDS[stat.S_IFMT(found.st_mode)])
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)


def _open_file(folder: int, name: str, path: str) -> int:
    """The descriptor of a plain file that lies in an opened folder."""
    place = _place(folder, name, path)
    try:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode):
            raise NotPlainError(path, _KINDS[stat.S_IFMT(found.st_mode)])
        # An account that may not read a file can give it a second name, and have it read here.
        if found.st_nlink > 1 and found.st_uid != os.fstat(folder).st_uid:
            raise NotPlainError(path, "a hard link to a file of another account")
        # The opened thing itself, whatever its name leads to by now (proc_pid_fd(5)).
        return os.open(f"/proc/self/fd/{place}", _READ)
    except BlockingIOError:
        raise NotPlainError(path, "a file on which a process holds a lease") from None
    finally:
        os.close(place)


def _place(folder: int, name: str, path: str) -> int:
    """What has this name in an opened folder, without following, reading or waking it."""
    if name in (".", "..") or "/" in name:
        raise ValueError(f"{name!r} is not the name of an entry")
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    # Before anything is asked of it: the file system of another mount need not answer.
    if _mount_of(place) != _mount_of(folder):
        os.close(place)
        raise NotPlainError(path, "on another mount")
    return place


def _mount_of(descriptor: int) -> str:
    """By the kernel's number (proc_pid_fdinfo(5)): each subvolume of btrfs has a device number of its own."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        return next(line for line in file if line.startswith("mnt_id:"))


def _give_to_owner(file: int, folder: int) -> None:
    """A file that root makes in a folder is that of the folder's account, which reads it when the job goes on."""
    os.fchmod(file, 0o640)
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        with suppress(PermissionError):  # A server of NFS that squashes root has given it an owner.
            os.fchown(file, owner.st_uid, owner.st_gid)
