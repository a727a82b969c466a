"""The manifest of a checkpoint's folder: the one that is there, or one that is made of its parts once all are there."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.lifecycle.checkpoints.manifest import (
    MANIFEST,
    PARTS,
    Manifest,
    ManifestPart,
    StepFolder,
    WrongManifestError,
    read_manifest,
    read_part,
    whole,
    written,
)
from reconciler.lifecycle.checkpoints.storage import PART_BYTES_MAX, RefusedEntryError, Storage
from solver.model.workload import JobName
from solver.plan.reason import count


def manifest_of(storage: Storage, job: JobName, folder: StepFolder, tasks: int) -> Manifest | None:
    """The manifest, published if it was not yet; None: the checkpoint is not whole. Raises StorageUnusableError.

    It follows from the parts alone, so two that publish at once write the same. `tasks`: how many the job has at most; each hands
    in one part. Raises RefusedEntryError where there are more.
    """
    content = storage.read(f"{folder}/{MANIFEST}")
    if content is not None:
        try:
            return read_manifest(content, job, folder)
        except WrongManifestError:
            # It was not recorded: a put that was cut on a storage that shows half of it. The parts say it anew.
            pass
    manifest = whole(job, folder, _parts(storage, folder, tasks))
    if manifest is not None:
        storage.publish(f"{folder}/{MANIFEST}", written(manifest))
    return manifest


def _parts(storage: Storage, folder: StepFolder, tasks: int) -> Iterator[ManifestPart]:
    names = [name for name in storage.names(f"{folder}/{PARTS}") if name.endswith(".json")]
    if len(names) > tasks:
        raise RefusedEntryError(
            storage.url, f"{folder}/{PARTS} has {len(names)} parts, and the job {count(tasks, 'task')}"
        )
    for name in names:
        content = storage.read(f"{folder}/{PARTS}/{name}", PART_BYTES_MAX)
        if content is not None:
            try:
                yield read_part(content, name)
            except WrongManifestError:
                # A part is put whole, so what can't be read is another's: without it the checkpoint never is whole.
                continue
