"""What is remembered of a node's health, so that the next leader judges the same."""

from __future__ import annotations

from typing import Literal, NamedTuple

from solver.model.cluster import NodeName
from solver.model.document import Document
from solver.model.quantities import Instant

FindingKind = Literal[
    "lost", "nic-down", "nic-slow", "straggler", "throttled", "uncorrectable", "remap-pending", "remap-failed",
    "gpu-lost", "xid-application", "xid-reset", "xid-drain", "xid-replace",
    "condition", "taint", "label",
]  # fmt: skip

PartState = Literal["well", "suspect", "cordoned", "drained"]
"""From the best on."""


class FindingKey(NamedTuple):
    """What is found of what: `part` is a GPU, or "" for the node itself; `subject` what else tells it from others."""

    kind: FindingKind
    part: str
    subject: str


class HealthFinding(Document, frozen=True):
    """It has been so since `since`, and was seen last at `seen_at`.

    `mark`: of what happened rather than lasts, which time it was, so that it counts once. It is `confirmed` once it has been so
    for long enough, and `forgiven` when a user, or the time it took, says that it does not count until it comes anew.
    """

    kind: FindingKind
    part: str
    subject: str
    since: Instant
    seen_at: Instant
    detail: str
    mark: int | None = None
    confirmed: bool = False
    forgiven: bool = False

    @property
    def key(self) -> FindingKey:
        """What it is of."""
        return FindingKey(self.kind, self.part, self.subject)

    @property
    def counts(self) -> bool:
        """Something follows from it."""
        return self.confirmed and not self.forgiven


class PartHealth(Document, frozen=True):
    """A node (`part` "") or one of its GPUs that is not well, since when and why; `until` None: until a user says otherwise.

    `test_from`: from when on it is tested, and takes work again once it passes; None: it is not. `held_back`: it would be closed,
    if not too much of its pool were already.
    """

    part: str
    state: PartState
    since: Instant
    reason: str
    until: Instant | None = None
    test_from: Instant | None = None
    held_back: bool = False

    @property
    def is_closed(self) -> bool:
        """Nothing new starts there."""
        return self.state in ("cordoned", "drained")


class HealthTrial(Document, frozen=True):
    """A test of some `parts` of a node, on `devices`, since `at`; over at `ended_at`. `detail`: how it failed."""

    at: Instant
    parts: tuple[str, ...]
    devices: tuple[str, ...]
    ended_at: Instant | None = None
    passed: bool = False
    detail: str = ""


class NodeHealth(Document, frozen=True):
    """One node. `parts`, sorted by name, are those that are not well; `forgiven_at`: when a user let it take work again.

    `trial`: its newest.
    """

    node: NodeName
    findings: tuple[HealthFinding, ...] = ()
    parts: tuple[PartHealth, ...] = ()
    forgiven_at: Instant | None = None
    trial: HealthTrial | None = None
