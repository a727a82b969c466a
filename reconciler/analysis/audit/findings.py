"""What verifying the audit chain finds."""

from __future__ import annotations

from typing import Final, Literal

from reconciler.model.audit import ChainName
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Instant

Problem = Literal[
    "changed",
    "reordered",
    "missing",
    "unlinked",
    "forged",
    "removed",
    "detached",
    "unknown-key",
    "retired-key",
    "truncated",
    "rewritten",
    "changed-before",
]

MEANINGS: Final[dict[Problem, str]] = {
    "changed": "the record is not what it was when it was written",
    "reordered": "the record has what another record had",
    "missing": "the record is gone",
    "unlinked": "the record has no link: it was not written by a control plane with this chain",
    "forged": "the link is not what was signed",
    "removed": "links are gone",
    "detached": "the link does not follow the one before it",
    "unknown-key": "the link names a key that is not in the key file",
    "retired-key": "the link is signed with a key that a newer one had replaced",
    "truncated": "the chain ends before what an anchor has seen",
    "rewritten": "the chain is another than an anchor has seen",
    "changed-before": "records from before the chain began are not what they were then",
}
"""In words."""


class AuditFinding(Document, frozen=True, omit_defaults=False):
    """One thing that is wrong, and where. `link` and `record`: their numbers, the first of several; null: it is about none.

    `after` and `before`: the nearest times around it that are sound; null: there is none on that side.
    """

    chain: ChainName
    problem: Problem
    message: str
    link: int | None = None
    record: int | None = None
    after: Instant | None = None
    before: Instant | None = None


class ChainSummary(Document, frozen=True, omit_defaults=False):
    """How much of a chain was read: its links, the records that they are of, its first and last link, and their times."""

    chain: ChainName
    links: int = 0
    records: int = 0
    first: int | None = None
    last: int | None = None
    since: Instant | None = None
    until: Instant | None = None
    keys: tuple[str, ...] = ()


class AuditReport(Document, frozen=True, omit_defaults=False):
    """What came of verifying. `anchors`: how many were compared. `notes`: what is no fault, and should be known."""

    chains: tuple[ChainSummary, ...]
    findings: tuple[AuditFinding, ...]
    notes: tuple[str, ...]
    anchors: int
    api_version: str = API_VERSION
    kind: str = "AuditReport"

    @property
    def is_whole(self) -> bool:
        """Nothing is wrong."""
        return not self.findings
