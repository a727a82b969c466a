"""What can be wrong with a stored checkpoint: types with the facts in fields, made into words at the end."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.quantities import Memory


class CheckpointFinding(Document, frozen=True, tag_field="finding"):
    """One thing that is not as the manifest says. `str` says it to a person."""


class UnreadableManifest(CheckpointFinding, frozen=True, tag="unreadable-manifest"):
    """There is no manifest, or it is none."""

    problem: str

    def __str__(self) -> str:
        return f"its manifest can't be read ({self.problem})"


class WrongDigest(CheckpointFinding, frozen=True, tag="wrong-digest"):
    """The manifest is not the one that was published."""

    def __str__(self) -> str:
        return "its manifest was changed after it was published"


class MissingShard(CheckpointFinding, frozen=True, tag="missing-shard"):
    """Nothing is there."""

    task: str
    shard: str

    def __str__(self) -> str:
        return f"shard {self.shard} of {self.task} is missing"


class RefusedShard(CheckpointFinding, frozen=True, tag="refused-shard"):
    """What lies there is no plain file in plain folders, so it is not opened. `problem` says what it is."""

    task: str
    shard: str
    problem: str

    def __str__(self) -> str:
        return f"shard {self.shard} of {self.task} is not read: {self.problem}. Shards are plain files in the job's own folder"


class WrongSize(CheckpointFinding, frozen=True, tag="wrong-size"):
    """A shard has another length."""

    task: str
    shard: str
    expected: Memory
    found: Memory

    def __str__(self) -> str:
        return f"shard {self.shard} of {self.task} has {int(self.found)} bytes, not {int(self.expected)}"


class WrongHash(CheckpointFinding, frozen=True, tag="wrong-hash"):
    """A shard has the right length and another content."""

    task: str
    shard: str

    def __str__(self) -> str:
        return f"shard {self.shard} of {self.task} has another SHA-256"


AnyFinding = UnreadableManifest | WrongDigest | MissingShard | RefusedShard | WrongSize | WrongHash
