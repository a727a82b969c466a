"""The manifest of a sharded checkpoint: which parts it has, of which shards, with sizes and SHA-256, and its own digest."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from solver.model.document import Document, decode, digest, encode
from solver.model.quantities import Instant, Memory
from solver.model.workload import JobName

MANIFEST = "manifest.json"
PARTS = "parts"

_FOLDER = re.compile(r"step-(\d{12,18})-attempt-(\d{1,9})")
_SHARD_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class WrongManifestError(ValueError):
    """It is no manifest, or no part, of this checkpoint. The message says why."""


class Shard(Document, frozen=True):
    """One file. `path` is relative to the checkpoint's folder."""

    name: str
    path: str
    size: int
    sha256: str


class ManifestPart(Document, frozen=True):
    """What one task has handed in, when the gang had `world_size` tasks. `answers`: the request that it answers, 0: none."""

    job: JobName
    attempt: int
    step: int
    group: str
    index: int
    rank: int
    world_size: int
    written_at: Instant
    shards: tuple[Shard, ...] = ()
    answers: int = 0

    @property
    def task(self) -> str:
        """`GROUP.INDEX`."""
        return f"{self.group}.{self.index}"


class Manifest(Document, frozen=True):
    """A whole checkpoint: the parts of all ranks, in their order. It follows from the parts alone, whatever makes it and when.

    `written_at`: when its last part was. `digest` is that of everything else.
    """

    job: JobName
    attempt: int
    step: int
    world_size: int
    parts: tuple[ManifestPart, ...]
    written_at: Instant
    digest: str = ""

    @property
    def answers(self) -> int:
        """The newest request to save that it answers: not every task looks before it is told to save by another."""
        return max((part.answers for part in self.parts), default=0)

    @property
    def size(self) -> Memory:
        """Bytes of all shards."""
        return Memory(sum(shard.size for part in self.parts for shard in part.shards))


class StepFolder(msgspec.Struct, frozen=True, order=True):
    """What the name of a checkpoint's folder says."""

    attempt: int
    step: int

    def __str__(self) -> str:
        return f"step-{self.step:012d}-attempt-{self.attempt}"


def step_folder(name: str) -> StepFolder | None:
    """The attempt and the step of a folder of that name; None for anything else."""
    match = _FOLDER.fullmatch(name)
    found = StepFolder(int(match[2]), int(match[1])) if match else None
    # One checkpoint has one name: no second spelling with other zeros.
    return found if str(found) == name else None


def whole(job: JobName, folder: StepFolder, parts: Iterable[ManifestPart]) -> Manifest | None:
    """The manifest of a checkpoint with all parts there: those of every rank of one size of the gang; None: some are missing.

    An elastic gang may have changed its size between two parts of a step: the largest size that is complete counts.
    """
    by_size: dict[int, dict[int, ManifestPart]] = {}
    for part in parts:
        if (part.job, part.attempt, part.step) == (job, folder.attempt, folder.step):
            by_size.setdefault(part.world_size, {})[part.rank] = part
    for size, ranks in sorted(by_size.items(), reverse=True):
        if size > 0 and sorted(ranks) == list(range(size)):
            listed = tuple(ranks[rank] for rank in range(size))
            written_at = max(part.written_at for part in listed)
            return seal(Manifest(job, folder.attempt, folder.step, size, listed, written_at))
    return None


def seal(manifest: Manifest) -> Manifest:
    """With its digest."""
    bare = msgspec.structs.replace(manifest, digest="")
    return msgspec.structs.replace(bare, digest=digest(bare))


def read_part(content: bytes, file: str) -> ManifestPart:
    """One part; `file` is its name. Raises WrongManifestError."""
    try:
        part = decode(content, ManifestPart)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WrongManifestError(str(error)) from error
    if file != f"{part.task}.json":
        raise WrongManifestError(f"{file} is the part of {part.task}")
    _refuse_paths(part)
    return part


def read_manifest(content: bytes, job: JobName, folder: StepFolder) -> Manifest:
    """The manifest of one checkpoint. Its digest is not looked at. Raises WrongManifestError."""
    try:
        manifest = decode(content, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WrongManifestError(str(error)) from error
    if whole(job, folder, manifest.parts) != seal(manifest):
        raise WrongManifestError(
            f"it is not that of step {folder.step} of attempt {folder.attempt} of {job}, or not whole"
        )
    for part in manifest.parts:
        _refuse_paths(part)
    return manifest


def written(manifest: Manifest) -> bytes:
    """The manifest as it is stored."""
    return encode(manifest)


def _refuse_paths(part: ManifestPart) -> None:
    """Tasks write parts: what they name lies in the folder of their own task, or is not looked at."""
    names = {shard.name for shard in part.shards}
    if len(names) != len(part.shards):
        raise WrongManifestError(f"{part.task} has two shards of one name")
    for shard in part.shards:
        if (
            not _SHARD_NAME.fullmatch(shard.name)
            or shard.name in (".", "..")
            or shard.path != f"{part.task}/{shard.name}"
        ):
            raise WrongManifestError(f"{part.task} has a shard in another place: {shard.path[:100]!r}")
        if shard.size < 0 or not _SHA256.fullmatch(shard.sha256):
            raise WrongManifestError(f"shard {shard.name} of {part.task} has no size or no SHA-256")
