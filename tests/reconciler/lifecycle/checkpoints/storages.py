"""Folders that checkpoints are written to in tests, and checkpoints in them, written as tasks write them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from quorate import checkpoint
from reconciler.lifecycle.checkpoints.manifest import Manifest, StepFolder
from reconciler.lifecycle.checkpoints.publication import manifest_of
from reconciler.lifecycle.checkpoints.storage import Storage
from solver.model.workload import JobName

JOB = JobName("pretrain")


def memory_url() -> str:
    """An empty folder in the memory of this process."""
    return f"memory://quorate-{uuid.uuid4().hex}/{JOB}"


@contextmanager
def task(url: str, index: int = 0, world_size: int = 1, attempt: int = 1, **more: str) -> Iterator[None]:
    """This process is that task of the gang, as far as its environment goes."""
    with pytest.MonkeyPatch.context() as patch:
        told = {
            "QUORATE_JOB": JOB,
            "QUORATE_ATTEMPT": str(attempt),
            "QUORATE_GROUP": "worker",
            "QUORATE_INDEX": str(index),
            "RANK": str(index),
            "WORLD_SIZE": str(world_size),
            "QUORATE_CHECKPOINT_URL": url,
            **more,
        }
        for name, value in told.items():
            patch.setenv(name, value)
        yield


def hand_in(
    url: str,
    scratch: Path,
    step: int,
    contents: Mapping[str, bytes],
    index: int = 0,
    world_size: int = 1,
    attempt: int = 1,
) -> None:
    """One task commits shards with these contents."""
    for name, content in contents.items():
        (scratch / name).write_bytes(content)
    with task(url, index, world_size, attempt):
        checkpoint.commit(step, {name: scratch / name for name in contents})


def publish(url: str, step: int, attempt: int = 1) -> Manifest:
    """The manifest of a checkpoint that is whole."""
    manifest = manifest_of(Storage(url), JOB, StepFolder(attempt, step), 100)
    assert manifest is not None
    return manifest
