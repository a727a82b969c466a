"""Verifies the audit chain: each link by its signature and by the link before it, each record by its link, the whole by anchors.

A link that is sound says what its record was, so one fault hides no other: each is placed between the sound links around it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.analysis.audit.findings import MEANINGS, AuditFinding, AuditReport, ChainSummary, Problem
from reconciler.model.audit import CHAINS, AuditAnchor, AuditEntry, AuditKeys, AuditLink, ChainName, LinkNote, digest_of
from solver.model.document import decode
from solver.model.quantities import Instant
from solver.plan.reason import count


def verified(entries: Iterable[AuditEntry], keys: AuditKeys, anchors: Sequence[AuditAnchor] = ()) -> AuditReport:
    """What is wrong with the chains. Entries of each come in its order, records without a link before the links behind them."""
    checks = {chain: _ChainCheck(chain, keys, _anchored(chain, anchors)) for chain in CHAINS}
    for entry in entries:
        checks[entry.chain].take(entry)
    for check in checks.values():
        check.end()
    findings = tuple(draft.finding(chain) for chain, check in checks.items() for draft in check.drafts)
    notes = tuple(note for check in checks.values() for note in check.notes)
    return AuditReport(tuple(check.summary() for check in checks.values()), findings, notes, len(anchors))


class _Anchored(NamedTuple):
    """What an anchor has seen of one chain."""

    number: int
    at: Instant
    mac: str


def _anchored(chain: ChainName, anchors: Sequence[AuditAnchor]) -> list[_Anchored]:
    heads = ((anchor.head(chain), anchor.at) for anchor in anchors)
    return sorted(_Anchored(head.number, at, head.mac) for head, at in heads if head is not None)


@dataclass(eq=False)
class _Draft:
    """A finding that may still be explained, and behind which the next sound link is still to come."""

    problem: Problem
    link: int | None
    record: int | None
    after: Instant | None
    detail: str = ""
    before: Instant | None = None

    def finding(self, chain: ChainName) -> AuditFinding:
        told = "; ".join(part for part in (MEANINGS[self.problem], self.detail) if part)
        return AuditFinding(chain, self.problem, told, self.link, self.record, self.after, self.before)


class _Gap(NamedTuple):
    """Links that are not there: the number of the last, and how it was signed, as the next one says."""

    last: int
    mac: str
    draft: _Draft


class _Unfit(NamedTuple):
    """A record that is not what its newest link says. `digest`: of what it is; None: it is gone."""

    link: AuditLink
    digest: str | None
    draft: _Draft


@dataclass(eq=False)
class _ChainCheck:
    """One chain, entry by entry."""

    chain: ChainName
    keys: AuditKeys
    anchors: list[_Anchored]
    drafts: list[_Draft] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    last: AuditLink | None = None
    first: AuditLink | None = None
    links: int = 0
    records: set[int] = field(default_factory=set)
    sound_at: Instant | None = None
    key_place: int = -1
    key_ids: dict[str, None] = field(default_factory=dict)
    unplaced: list[_Draft] = field(default_factory=list)
    gaps: list[_Gap] = field(default_factory=list)
    unfit: dict[int, _Unfit] = field(default_factory=dict)
    pruned: dict[int, LinkNote] = field(default_factory=dict)
    begun: LinkNote | None = None
    earlier: list[str] = field(default_factory=list)
    agreed_at: Instant | None = None
    is_rewritten: bool = False

    def take(self, entry: AuditEntry) -> None:
        """The next entry."""
        link = entry.link
        if link is not None:
            self._follow(link)
            if self._is_signed(link):
                self._trust(link, entry.content)
            self._compare(link)
            self.first, self.last, self.links = self.first or link, link, self.links + 1
            self.key_ids[link.key] = None
        elif self.begun is not None and entry.record <= self.begun.records:
            self.earlier.append(digest_of(entry.content or ""))
        else:
            self._draft("unlinked", None, entry.record, f"it says that it is of {entry.time}")

    def end(self) -> None:
        """Explain what can be explained, and look for what only the whole shows."""
        for gap in self.gaps:
            note = self.pruned.get(gap.last)
            if note is not None and note.mac == gap.mac:
                self.drafts.remove(gap.draft)
        gone = max((note.records for note in self.pruned.values()), default=0)
        was = {unfit.link.digest: record for record, unfit in self.unfit.items()}
        for record, unfit in self.unfit.items():
            if unfit.digest is None and record <= gone:
                self.drafts.remove(unfit.draft)
            elif unfit.digest in was and was[unfit.digest] != record:
                unfit.draft.problem, unfit.draft.detail = "reordered", f"it has what record {was[unfit.digest]} had"
        self._end_earlier()
        self._end_anchors()

    def summary(self) -> ChainSummary:
        """How much was read."""
        first, last = self.first, self.last
        if first is None or last is None:
            return ChainSummary(self.chain)
        bounds = first.number, last.number, first.time, last.time
        return ChainSummary(self.chain, self.links, len(self.records), *bounds, tuple(self.key_ids))

    def _draft(self, problem: Problem, link: int | None, record: int | None, detail: str = "") -> _Draft:
        draft = _Draft(problem, link, record, self.sound_at, detail)
        self.drafts.append(draft)
        self.unplaced.append(draft)
        return draft

    def _follow(self, link: AuditLink) -> None:
        expected, previous = (self.last.number + 1, self.last.mac) if self.last else (1, "")
        if link.number != expected:
            missing = count(link.number - expected, "link")
            draft = self._draft("removed", expected, None, f"{missing}, {expected} to {link.number - 1}")
            self.gaps.append(_Gap(link.number - 1, link.previous, draft))
        elif link.previous != previous:
            self._draft("detached", link.number, link.record)

    def _is_signed(self, link: AuditLink) -> bool:
        holds = self.keys.holds(link)
        if holds is None:
            self._draft("unknown-key", link.number, link.record, f"key {link.key}")
        elif not holds:
            self._draft("forged", link.number, link.record, f"it says that it is of {link.time}")
        elif self.keys.by_id[link.key] < self.key_place:
            self._draft("retired-key", link.number, link.record, f"key {link.key}")
        else:
            self.key_place = self.keys.by_id[link.key]
            return True
        return False

    def _trust(self, link: AuditLink, content: str | None) -> None:
        """A sound link: what was wrong before it lies before its time, and its record has to be what it says."""
        for draft in self.unplaced:
            draft.before = link.time
        self.unplaced.clear()
        if link.kind == "record":
            self._judge(link, content)
        else:
            note = decode(link.note, LinkNote)
            if link.kind == "pruned":
                self.pruned[note.links] = note
            elif link.kind == "begun":
                self.begun = note
            else:
                self.notes.append(
                    f"{self.chain}: the store was filled from a copy of {note.copied_at}, after link {link.number - 1}"
                )
        self.sound_at = link.time

    def _judge(self, link: AuditLink, content: str | None) -> None:
        self.records.add(link.record)
        earlier = self.unfit.pop(link.record, None)
        if earlier is not None:
            self.drafts.remove(earlier.draft)
        found = None if content is None else digest_of(content)
        if found != link.digest:
            draft = self._draft("missing" if found is None else "changed", link.number, link.record)
            self.unfit[link.record] = _Unfit(link, found, draft)

    def _compare(self, link: AuditLink) -> None:
        """With the anchors that saw the chain end here. What is not as the first of them says is not as any after it."""
        while self.anchors and self.anchors[0].number <= link.number:
            anchor = self.anchors.pop(0)
            if anchor.number < link.number or self.is_rewritten:
                continue
            if anchor.mac == link.mac:
                self.agreed_at = anchor.at
                continue
            self.is_rewritten = True
            detail = f"its link {link.number} is not the one of the anchor of {anchor.at}"
            self.drafts.append(_Draft("rewritten", link.number, link.record, self.agreed_at, detail, anchor.at))

    def _end_anchors(self) -> None:
        if not self.anchors:
            return
        newest, last = self.anchors[-1], self.last.number if self.last else 0
        detail = f"the anchor of {newest.at} has seen link {newest.number}, the last one here is {last or 'none'}"
        self.drafts.append(_Draft("truncated", last + 1, None, self.sound_at, detail, newest.at))

    def _end_earlier(self) -> None:
        begun = self.begun
        if begun is None or not begun.count:
            return
        uncovered = "" if begun.digest else ", which it does not cover"
        self.notes.append(f"{self.chain}: the chain began beside {count(begun.count, 'record')} from before{uncovered}")
        digest = hashlib.sha256("".join(self.earlier).encode()).hexdigest()
        if begun.digest and (len(self.earlier), digest) != (begun.count, begun.digest):
            detail = f"{len(self.earlier)} of {begun.count} are there, up to record {begun.records}"
            time = self.first.time if self.first else None
            self.drafts.append(_Draft("changed-before", None, begun.records, None, detail, time))
