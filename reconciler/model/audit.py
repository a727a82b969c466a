"""The audit chain: what a link says, how it is signed, and what stands for a record in it. Pure; the keys are handed in.

Each link has the digest of a record and the signature of the link before it, and is signed itself with HMAC-SHA-256 (RFC 2104).
Two chains stand beside each other, since they are kept for different times: one of events, one of rounds.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import msgspec

from solver.model.document import Document, encode
from solver.model.quantities import Instant

ChainName = Literal["events", "rounds"]
CHAINS: Final[tuple[ChainName, ...]] = ("events", "rounds")

LinkKind = Literal["record", "begun", "pruned", "restored"]
"""record: a record was written, or written anew. begun: the chain begins here, beside records that were there before. pruned: old
records and links were deleted, as the policy says. restored: the store was filled from a copy."""

_FORM: Final = "quorate-audit-1"
"""Names what is signed, so that no signature can be taken for one of something else."""


class LinkNote(Document, frozen=True):
    """What a link says that is not of a record.

    `records`, `links`: up to which number those are gone, or were there before; `mac`: the signature of the last link that is
    gone. `count` and `digest`: how many records were there before, and the digest of what stands for them, one after the other;
    "": they are not covered. `copied_at`: the moment of the copy that the store was filled from.
    """

    records: int = 0
    links: int = 0
    mac: str = ""
    count: int = 0
    digest: str = ""
    copied_at: Instant | None = None


class AuditLink(Document, frozen=True, omit_defaults=False):
    """One link. `record` is the number of the record in its table; `digest`, `previous` and `mac` are hexadecimal.

    `previous`: the signature of the link before, "" of the first. `key`: the id of the key that signed it. `note`: a LinkNote in
    its JSON form; "" of a record.
    """

    chain: ChainName
    number: int
    time: Instant
    kind: LinkKind
    record: int
    digest: str
    previous: str
    key: str
    mac: str = ""
    note: str = ""


class AuditEntry(Document, frozen=True, omit_defaults=False):
    """A link with what stands for its record now, or a record that has no link. `content` None: the record is gone."""

    chain: ChainName
    record: int
    time: Instant
    content: str | None = None
    link: AuditLink | None = None


class ChainHead(Document, frozen=True, omit_defaults=False):
    """The newest link of a chain: its number and signature."""

    number: int
    mac: str


class AuditAnchor(Document, frozen=True, omit_defaults=False):
    """How far the chains were at a time, to be kept outside the database. None: a chain had not begun."""

    at: Instant
    events: ChainHead | None = None
    rounds: ChainHead | None = None

    def head(self, chain: ChainName) -> ChainHead | None:
        """Of one chain; None: it had not begun."""
        return self.events if chain == "events" else self.rounds

    @property
    def is_empty(self) -> bool:
        """Neither chain has begun."""
        return self.events is None and self.rounds is None


class AuditKey(NamedTuple):
    """A key and the id by which links name it."""

    id: str
    secret: bytes


@dataclass(frozen=True, slots=True)
class AuditKeys:
    """Keys in the order in which they came into use; the last one signs."""

    keys: Sequence[AuditKey]
    by_id: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {key.id: place for place, key in enumerate(self.keys)})

    def signed(
        self,
        chain: ChainName,
        number: int,
        time: Instant,
        kind: LinkKind,
        record: int,
        digest: str,
        previous: str,
        note: str = "",
    ) -> AuditLink:
        """A link under the key that signs now."""
        key = self.keys[-1]
        mac = _mac(key.secret, (chain, number, int(time), kind, record, digest, previous, key.id, note))
        return AuditLink(chain, number, time, kind, record, digest, previous, key.id, mac, note)

    def holds(self, link: AuditLink) -> bool | None:
        """Whether the signature is that of the key which the link names; None: there is no such key here."""
        place = self.by_id.get(link.key)
        return None if place is None else hmac.compare_digest(mac_of(link, self.keys[place].secret), link.mac)


def mac_of(link: AuditLink, secret: bytes) -> str:
    """What a key signs a link with; `link.mac` is not part of it."""
    named = link.chain, link.number, int(link.time), link.kind, link.record
    return _mac(secret, (*named, link.digest, link.previous, link.key, link.note))


def _mac(secret: bytes, said: tuple[str | int, ...]) -> str:
    return hmac.digest(secret, msgspec.json.encode((_FORM, *said)), "sha256").hex()


def content_of(values: Sequence[str | int | float | None]) -> str:
    """What stands for a record: its values in one order, as JSON. A NUL in text is read back from PostgreSQL as U+FFFD."""
    written = msgspec.json.encode(values, enc_hook=int).decode()  # an Instant is an int
    if r"\u0000" in written:
        plain = [
            value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value for value in values
        ]
        return msgspec.json.encode(plain, enc_hook=int).decode()
    return written


def digest_of(content: str) -> str:
    """The digest of what stands for a record."""
    return hashlib.sha256(content.encode()).hexdigest()


def note_of(note: LinkNote) -> str:
    """As a link has it."""
    return encode(note).decode()
