"""What accounts put into a folder of checkpoints in place of files and folders, before a look and during one."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from reconciler.lifecycle.checkpoints.local_folder import DEPTH_MAX, LocalFolder, NotPlainError, TooManyEntriesError
from reconciler.lifecycle.checkpoints.manifest import MANIFEST, StepFolder
from reconciler.lifecycle.checkpoints.publication import manifest_of
from reconciler.lifecycle.checkpoints.storage import RefusedEntryError, Storage, StorageUnusableError
from reconciler.lifecycle.checkpoints.verification import verification_steps, verify
from reconciler.model.checkpoint_findings import RefusedShard, UnreadableManifest, WrongSize
from solver.model.quantities import Memory
from tests.reconciler.lifecycle.checkpoints.storages import JOB, hand_in, publish

STEP = StepFolder(1, 100)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make it")
_RENAME_EXCHANGE = 2


class Shared:
    """A storage with a job of a thief and one of a victim, each with a checkpoint of one shard."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "storage"
        self.scratch = tmp_path
        for job in ("thief", "victim"):
            hand_in(self.url(job), tmp_path, 100, {"a": b"aaaa"})

    def url(self, job: str) -> str:
        return f"file://{self.folder}/{job}"

    def step(self, job: str) -> Path:
        return self.folder / job / str(STEP)

    def left_of_victim(self) -> list[str]:
        return sorted(str(path.relative_to(self.step("victim"))) for path in self.step("victim").rglob("*"))


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


@pytest.fixture
def bounded() -> Iterator[None]:
    """To wait at a pipe is to fail."""

    def give_up(*_: object) -> None:
        raise AssertionError("it waits, as at a pipe that nobody writes to")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@contextmanager
def before_opening(name: str, deed: Callable[[], object]) -> Iterator[list[str]]:
    """Do it once, right before something of this name is opened: as late as an account can."""
    real = os.open
    done: list[str] = []

    def opened(path: str, *more: int, dir_fd: int | None = None) -> int:
        if not done and os.path.basename(path) == name:
            done.append(path)
            deed()
        return real(path, *more, dir_fd=dir_fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opened)
        yield done


def exchange_for_link(path: Path, target: Path) -> None:
    path.rename(path.with_name("away"))
    path.symlink_to(target)


@pytest.mark.parametrize("part", ["", "worker.0", "parts"])
def test_a_folder_exchanged_for_a_link_before_deletion_costs_nobody_else_a_file(shared: Shared, part: str) -> None:
    mine, theirs = shared.step("thief") / part, shared.step("victim") / part
    before = shared.left_of_victim()
    with (
        before_opening(mine.name, lambda: exchange_for_link(mine, theirs)) as done,
        pytest.raises(RefusedEntryError, match=f"{mine.name} is a link"),
    ):
        Storage(shared.url("thief")).delete(str(STEP))
    assert done
    assert shared.left_of_victim() == before
    Storage(shared.url("thief")).delete(str(STEP))
    assert not os.path.lexists(shared.step("thief"))
    assert shared.left_of_victim() == before


def test_a_job_folder_exchanged_for_a_link_is_not_entered(shared: Shared) -> None:
    before, mine = shared.left_of_victim(), shared.folder / "thief"
    with (
        before_opening("thief", lambda: exchange_for_link(mine, shared.folder / "victim")) as done,
        pytest.raises(RefusedEntryError, match="thief is a link"),
    ):
        Storage(shared.url("thief")).delete(f"{STEP}/{MANIFEST}")
    assert done
    assert shared.left_of_victim() == before


def test_a_thread_that_exchanges_all_the_time_wins_nothing(shared: Shared) -> None:
    """As many tries as took the first one of six from a check of the path before its use, thirty times."""
    mine, theirs, link = shared.step("thief"), shared.step("victim"), shared.folder / "thief" / "link"
    link.symlink_to(theirs)
    before, over = shared.left_of_victim(), threading.Event()
    libc = ctypes.CDLL(None, use_errno=True)

    def exchange() -> None:
        while not over.is_set():
            libc.renameat2(-100, bytes(mine), -100, bytes(link), _RENAME_EXCHANGE)

    thief = threading.Thread(target=exchange)
    thief.start()
    try:
        for _ in range(1_000):
            with suppress(StorageUnusableError):
                Storage(shared.url("thief")).delete(f"{STEP}/worker.0")
            with suppress(StorageUnusableError):
                Storage(shared.url("thief")).publish(f"{STEP}/{MANIFEST}", b"forged")
    finally:
        over.set()
        thief.join()
    assert shared.left_of_victim() == before


def test_a_manifest_is_not_written_into_the_folder_of_another(shared: Shared) -> None:
    digest = publish(shared.url("victim"), 100).digest
    mine, theirs = shared.step("thief"), shared.step("victim")
    storage = Storage(shared.url("thief"))
    with (
        before_opening(mine.name, lambda: exchange_for_link(mine, theirs)),
        pytest.raises(RefusedEntryError),
    ):
        storage.publish(f"{STEP}/{MANIFEST}", b"forged")
    assert verify(Storage(shared.url("victim")), JOB, STEP, digest) == ()


@AS_ROOT
def test_a_manifest_belongs_to_the_account_of_the_folder(shared: Shared) -> None:
    """Else the next attempt, which runs as that account, could not read from where it goes on."""
    os.chown(shared.step("thief"), 12_345, 12_346)
    publish(shared.url("thief"), 100)
    found = (shared.step("thief") / MANIFEST).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12_345, 12_346, 0o640)


def make_link(path: Path, scratch: Path) -> None:
    path.symlink_to(scratch / "a")


def make_pipe(path: Path, scratch: Path) -> None:
    del scratch
    os.mkfifo(path)


def make_folder(path: Path, scratch: Path) -> None:
    del scratch
    path.mkdir()


def make_socket(path: Path, scratch: Path) -> None:
    (scratch / "s").mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(scratch / "s" / "s"))  # Names of sockets are short.
    (scratch / "s" / "s").rename(path)


def make_device(path: Path, scratch: Path) -> None:
    del scratch
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero: it has no end


def make_hard_link(path: Path, scratch: Path) -> None:
    other = scratch / "other"
    other.write_bytes(b"aaaa")
    os.chown(other, 12_345, 12_345)
    path.hardlink_to(other)


KINDS = [
    pytest.param(make_link, "a link", id="link"),
    pytest.param(make_pipe, "a named pipe", id="pipe"),
    pytest.param(make_folder, "a folder", id="folder"),
    pytest.param(make_socket, "a socket", id="socket"),
    pytest.param(make_device, "a device", id="device", marks=AS_ROOT),
    pytest.param(make_hard_link, "a hard link to a file of another account", id="hard-link", marks=AS_ROOT),
]


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("moment", ["before", "during"])
@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_a_shard_is_a_plain_file_in_its_own_folder(
    shared: Shared, make: Callable[[Path, Path], None], kind: str, moment: str
) -> None:
    """A pipe and a device have no end, and a link could show the control plane what its owner must not read."""
    digest, path = publish(shared.url("thief"), 100).digest, shared.step("thief") / "worker.0" / "a"

    def put_in_place() -> None:
        path.unlink()
        make(path, shared.scratch)

    if moment == "before":
        put_in_place()
    with before_opening("a" if moment == "during" else "", put_in_place):
        (found,) = verify(Storage(shared.url("thief")), JOB, STEP, digest)
    assert found == RefusedShard("worker.0", "a", f"{STEP}/worker.0/a is {kind}")
    assert str(found) == (
        f"shard a of worker.0 is not read: {STEP}/worker.0/a is {kind}. Shards are plain files in the job's own folder"
    )


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("moment", ["before", "during"])
@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_a_part_that_is_no_plain_file_is_told_of_and_keeps_nobody_waiting(
    shared: Shared, make: Callable[[Path, Path], None], kind: str, moment: str
) -> None:
    path = shared.step("thief") / "parts" / "worker.0.json"

    def put_in_place() -> None:
        path.unlink()
        make(path, shared.scratch)

    if moment == "before":
        put_in_place()
    with (
        before_opening(path.name if moment == "during" else "", put_in_place),
        pytest.raises(RefusedEntryError) as refused,
    ):
        manifest_of(Storage(shared.url("thief")), JOB, STEP, 1)
    assert str(refused.value) == (
        f"{shared.url('thief')}: {STEP}/parts/worker.0.json is {kind}. The control plane reads plain files in plain folders "
        "alone. Remove it, and let the job save its work anew."
    )


def test_a_manifest_that_is_a_link_is_none(shared: Shared) -> None:
    digest, path = publish(shared.url("thief"), 100).digest, shared.step("thief") / MANIFEST
    path.rename(path.with_name("away"))
    path.symlink_to("away")
    (found,) = verify(Storage(shared.url("thief")), JOB, STEP, digest)
    assert found == UnreadableManifest(f"{STEP}/{MANIFEST} is a link")


@pytest.mark.parametrize("make", [param.values[0] for param in KINDS[:4]])
def test_whatever_lies_in_a_checkpoint_is_deleted(shared: Shared, make: Callable[[Path, Path], None]) -> None:
    make(shared.step("thief") / "worker.0" / "more", shared.scratch)
    Storage(shared.url("thief")).delete(str(STEP))
    assert not shared.step("thief").exists()
    assert (shared.scratch / "a").exists()


def test_the_storage_itself_may_be_a_link(shared: Shared) -> None:
    """Whoever runs the control plane has put it there."""
    link = shared.scratch / "linked"
    link.symlink_to(shared.folder)
    assert Storage(f"file://{link}/thief").names("") == (str(STEP),)
    digest = publish(f"file://{link}/thief", 100).digest
    assert verify(Storage(f"file://{link}/thief"), JOB, STEP, digest) == ()


@AS_ROOT
def test_another_mount_is_not_entered(shared: Shared) -> None:
    """An account may mount a file system of its own (FUSE) that never answers."""
    mounted = shared.step("thief") / "parts"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", bytes(mounted), b"tmpfs", 0, b"size=64k") != 0:
        pytest.skip(f"can't mount here: {os.strerror(ctypes.get_errno())}")
    try:
        with pytest.raises(RefusedEntryError, match="parts is on another mount"):
            Storage(shared.url("thief")).names(f"{STEP}/parts")
        with pytest.raises(RefusedEntryError, match="parts is on another mount"):
            Storage(shared.url("thief")).delete(str(STEP))
    finally:
        libc.umount(bytes(mounted))


def test_a_deep_tree_is_deleted_with_few_descriptors(shared: Shared) -> None:
    """Deeper than descriptors would allow."""
    deep = os.open(shared.step("thief"), os.O_RDONLY)
    for _ in range(500):
        os.mkdir("d", dir_fd=deep)
        inner = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + DEPTH_MAX + 10, hard))
    try:
        Storage(shared.url("thief")).delete(str(STEP))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not shared.step("thief").exists()
    assert len(os.listdir("/proc/self/fd")) == opened


def test_of_a_huge_folder_a_share_is_deleted_at_a_time(tmp_path: Path) -> None:
    inner = tmp_path / "job" / "step" / "inner"
    inner.mkdir(parents=True)
    for number in range(25):
        (inner / str(number)).touch()
    left = []
    for _ in range(4):
        LocalFolder(str(tmp_path / "job"), deleted_max=10).delete("step")
        left.append(len(list(inner.iterdir())) if inner.exists() else -1)
    assert left[0] in range(14, 17)
    assert left == sorted(left, reverse=True)
    assert left[-1] == -1
    assert not (tmp_path / "job" / "step").exists()


def test_of_a_huge_folder_nobody_says_when_it_was_written_or_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "job" / "step").mkdir(parents=True)
    for number in range(5):
        (tmp_path / "job" / "step" / str(number)).touch()
    assert LocalFolder(str(tmp_path / "job"), entries_max=5).written_at_s("step") is not None
    assert LocalFolder(str(tmp_path / "job"), entries_max=4).written_at_s("step") is None
    with pytest.raises(TooManyEntriesError, match="more than 4 entries"):
        LocalFolder(str(tmp_path / "job"), entries_max=4).names("step")


def test_a_shard_that_grows_while_it_is_read_has_an_end(shared: Shared) -> None:
    digest, path = publish(shared.url("thief"), 100).digest, shared.step("thief") / "worker.0" / "a"
    real = os.read

    def growing(descriptor: int, most: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(path):
            with path.open("ab") as file:
                file.write(b"more")
        return real(descriptor, most)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "read", growing)
        (found,) = verify(Storage(shared.url("thief")), JOB, STEP, digest)
    assert found == WrongSize("worker.0", "a", Memory(4), Memory(5))


def test_nothing_stays_open_of_a_verification_that_is_given_up(shared: Shared) -> None:
    digest = publish(shared.url("thief"), 100).digest
    opened = len(os.listdir("/proc/self/fd"))
    reading = verification_steps(Storage(shared.url("thief")), JOB, STEP, digest)
    next(reading)
    next(reading)
    assert len(os.listdir("/proc/self/fd")) == opened + 1
    reading.close()
    assert len(os.listdir("/proc/self/fd")) == opened


@pytest.mark.parametrize("path", ["..", "../victim", f"{STEP}/../.."])
def test_no_path_leads_up(shared: Shared, path: str) -> None:
    with pytest.raises(StorageUnusableError, match="not the name of an entry"):
        Storage(shared.url("thief")).names(path)


def test_a_lease_of_an_account_keeps_nobody_waiting(shared: Shared) -> None:
    """A process that holds a lease on its file has 45 seconds to give it up, and may take it again."""
    path = shared.step("thief") / "worker.0" / "a"
    with path.open("r+b") as held:
        fcntl.fcntl(held.fileno(), fcntl.F_SETSIG, 0)
        handler = signal.signal(signal.SIGIO, lambda *_: None)
        try:
            fcntl.fcntl(held.fileno(), fcntl.F_SETLEASE, fcntl.F_WRLCK)
            with (
                pytest.raises(NotPlainError, match="holds a lease"),
                LocalFolder(str(shared.folder / "thief")).opened(f"{STEP}/worker.0/a"),
            ):
                pass
            fcntl.fcntl(held.fileno(), fcntl.F_SETLEASE, fcntl.F_UNLCK)
        finally:
            signal.signal(signal.SIGIO, handler)
