"""Whether a stored checkpoint is what was published: every shard is read again, in pieces, and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Generator

from reconciler.lifecycle.checkpoints.manifest import (
    MANIFEST,
    Manifest,
    Shard,
    StepFolder,
    WrongManifestError,
    read_manifest,
    seal,
    written,
)
from reconciler.lifecycle.checkpoints.storage import RefusedEntryError, Storage
from reconciler.model.checkpoint_findings import (
    AnyFinding,
    MissingShard,
    RefusedShard,
    UnreadableManifest,
    WrongDigest,
    WrongHash,
    WrongSize,
)
from solver.model.quantities import Memory
from solver.model.workload import JobName

Verification = Generator[int, None, tuple[AnyFinding, ...]]
"""Yields the bytes of each piece that it has read, so that the caller can rest; returns what it found."""


def verify(storage: Storage, job: JobName, folder: StepFolder, digest: str) -> tuple[AnyFinding, ...]:
    """Everything that is wrong with the checkpoint that was published with a digest; () for an intact one."""
    verification = verification_steps(storage, job, folder, digest)
    while True:
        try:
            next(verification)
        except StopIteration as over:
            found: tuple[AnyFinding, ...] = over.value
            return found


def verification_steps(storage: Storage, job: JobName, folder: StepFolder, digest: str) -> Verification:
    """The same a piece at a time. `storage` is the job's own folder. Raises StorageUnusableError, also where that folder is gone.

    What is judged corrupt is never read again: a file system that is not mounted for a while must not cost a job its work.
    """
    found = yield from _verifying(storage, job, folder, digest)
    if found:
        storage.require_folder()
    return found


def _verifying(storage: Storage, job: JobName, folder: StepFolder, digest: str) -> Verification:
    try:
        content = storage.read(f"{folder}/{MANIFEST}")
    except RefusedEntryError as error:
        return (UnreadableManifest(error.problem),)
    if content is None:
        return (UnreadableManifest("there is none"),)
    yield len(content)
    try:
        manifest = read_manifest(content, job, folder)
    except WrongManifestError as error:
        return (UnreadableManifest(str(error)),)
    # Byte for byte: what reads the same but was written by another was not published.
    if content != written(manifest) or not manifest.digest == digest == seal(manifest).digest:
        return (WrongDigest(),)
    return (yield from _shards(storage, folder, manifest))


def _shards(storage: Storage, folder: StepFolder, manifest: Manifest) -> Verification:
    found: list[AnyFinding] = []
    for part in manifest.parts:
        for shard in part.shards:
            finding = yield from _shard(storage, f"{folder}/{shard.path}", part.task, shard)
            found += [finding] if finding else []
    return tuple(found)


def _shard(storage: Storage, path: str, task: str, shard: Shard) -> Generator[int, None, AnyFinding | None]:
    read, digest = 0, hashlib.sha256()
    try:
        with storage.open(path) as file:
            if file is None:
                return MissingShard(task, shard.name)
            if file.size != shard.size:
                return WrongSize(task, shard.name, Memory(shard.size), Memory(file.size))
            for piece in file.pieces:
                read += len(piece)
                digest.update(piece)
                yield len(piece)
    except RefusedEntryError as error:
        return RefusedShard(task, shard.name, error.problem)
    if read != shard.size:
        return WrongSize(task, shard.name, Memory(shard.size), Memory(read))
    return None if digest.hexdigest() == shard.sha256 else WrongHash(task, shard.name)
