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
from reconciler.lifecycle.checkpoints.storage import Storage
from solver.model.workload import JobName


def manifest_of(storage: Storage, job: JobName, folder: StepFolder) -> Manifest | None:
    """The manifest, published if it was not yet; None: the checkpoint is not whole. Raises StorageUnusableError.

    It follows from the parts alone, so two that publish at once write the same.
    """
    content = storage.read(f"{folder}/{MANIFEST}")
    if content is not None:
        try:
            return read_manifest(content, job, folder)
        except WrongManifestError:
            # It was not recorded: a put that was cut on a storage that shows half of it. The parts say it anew.
            pass
    manifest = whole(job, folder, _parts(storage, folder))
    if manifest is not None:
        storage.publish(f"{folder}/{MANIFEST}", written(manifest))
    return manifest


def _parts(storage: Storage, folder: StepFolder) -> Iterator[ManifestPart]:
    for name in storage.names(f"{folder}/{PARTS}"):
        content = storage.read(f"{folder}/{PARTS}/{name}") if name.endswith(".json") else None
        if content is not None:
            try:
                yield read_part(content, name)
            except WrongManifestError:
                # A part is put whole, so what can't be read is another's: without it the checkpoint never is whole.
                continue
