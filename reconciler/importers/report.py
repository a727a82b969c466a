"""The report of an import: what was written, what became of each field of the source, and which names had to change."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, get_args

from reconciler.importers.account import ImportEntry, ImportOutcome
from reconciler.importers.slugs import Renaming
from reconciler.model.problem import Problem
from solver.model.document import API_VERSION, Document
from solver.plan.reason import count

TITLES: Final[dict[ImportOutcome, str]] = {
    "asked": "To decide (what is written is an assumption)",
    "unknown": "Not known to this importer (nothing is written)",
    "dropped": "Without an equal (nothing is written)",
    "changed": "Written, and different",
    "carried": "The same here",
}
"""In the order in which a reader needs them."""
_PLACES_MAX: Final = 3
_INDEX: Final = re.compile(r"\[\d+\]")


class Adjustment(Document, frozen=True, omit_defaults=False):
    """What was changed of a queue so that guarantees and ceilings can all be kept."""

    queue: str
    message: str


class QueueComparison(Document, frozen=True, omit_defaults=False):
    """A queue in a snapshot: GPUs that its jobs hold, and would hold after a first round; and jobs by what becomes of them."""

    queue: str
    gpus: float
    gpus_after: float
    starts: int
    evicted: int
    waiting: int


class FirstRound(Document, frozen=True, omit_defaults=False):
    """What a first round would do with a snapshot. `lines`: the plan in words. `unknown`: queues of jobs that no document has."""

    queues: tuple[QueueComparison, ...]
    lines: tuple[str, ...]
    unknown: tuple[str, ...]


class ImportReport(Document, frozen=True, omit_defaults=False):
    """What `quorate import -o json` prints. `written`: paths of the documents, from the folder's top."""

    system: str
    inputs: tuple[str, ...]
    written: tuple[str, ...]
    entries: tuple[ImportEntry, ...]
    adjustments: tuple[Adjustment, ...]
    renamings: tuple[Renaming, ...]
    problems: tuple[Problem, ...]
    first_round: FirstRound | None = None
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["ImportReport"] = "ImportReport"

    def tally(self) -> dict[ImportOutcome, int]:
        """How many fields came to each end."""
        counted = Counter(entry.outcome for entry in self.entries)
        return {outcome: counted[outcome] for outcome in get_args(ImportOutcome)}


def report_lines(report: ImportReport, *, unfold: bool) -> Iterator[str]:
    """The report for people. Fields that came to the same end for the same reason are one line, but for `unfold`.

    What is the same here is only counted, but for `unfold`.
    """
    for outcome, title in TITLES.items():
        found = [entry for entry in report.entries if entry.outcome == outcome]
        if found and (outcome != "carried" or unfold):
            yield f"{title}: {len(found)}"
            yield from _grouped(found, unfold=unfold)
            yield ""
    if report.adjustments:
        yield f"Adjusted, so that guarantees and ceilings agree: {len(report.adjustments)}"
        yield from (f"  Queue {each.queue}: {each.message}" for each in report.adjustments)
        yield ""
    if report.renamings:
        yield f"Renamed: {len(report.renamings)}"
        yield from (f"  {each.kind} {each.before}: {each.after}" for each in report.renamings)
        yield ""
    if report.first_round:
        yield from first_round_lines(report.first_round)
        yield ""
    fields = ", ".join(f"{number} {outcome}" for outcome, number in report.tally().items() if number)
    yield f"{count(len(report.entries), 'field')}: {fields}"


def first_round_lines(found: FirstRound) -> Iterator[str]:
    """What a first round would do, below what runs."""
    yield "A first round with what is in the snapshot:"
    for each in found.queues:
        change = f", {each.gpus_after:g} after it" if each.gpus_after != each.gpus else ""
        jobs = (("start", each.starts), ("evicted", each.evicted), ("waiting", each.waiting))
        said = "; ".join(f"{number} {word}" for word, number in jobs if number)
        yield f"  {each.queue}: {each.gpus:g} {'GPU' if each.gpus == 1 else 'GPUs'} held{change}" + (
            f" ({said})" if said else ""
        )
    if found.unknown:
        yield f"  no document has these queues, so that their jobs can't start: {', '.join(found.unknown)}"
    yield from (f"  {line}" for line in found.lines)


def _grouped(entries: Sequence[ImportEntry], *, unfold: bool) -> Iterable[str]:
    if unfold:
        for entry in entries:
            yield f"  {entry.file}:{entry.line}: {entry.record}: {_said(entry)}"
        return
    groups = defaultdict[tuple[str, str], list[ImportEntry]](list)
    for entry in entries:
        groups[_general(entry.field), entry.note].append(entry)
    for (field, note), members in groups.items():
        places = [f"{each.file}:{each.line}" for each in members[:_PLACES_MAX]]
        more = f" and {len(members) - _PLACES_MAX} more" if len(members) > _PLACES_MAX else ""
        shown = f" {_value(members)}" if _value(members) else ""
        yield f"  {field or members[0].record}{shown} ({', '.join(places)}{more})"
        if note:
            yield f"      {note}"


def _value(members: Sequence[ImportEntry]) -> str:
    values = list(dict.fromkeys(each.value for each in members if each.value))
    return ", ".join(values[:_PLACES_MAX]) + (", ..." if len(values) > _PLACES_MAX else "")


def _said(entry: ImportEntry) -> str:
    target = f" becomes {entry.target}" if entry.target else ""
    note = f" ({entry.note})" if entry.note else ""
    return f"{entry.field} {entry.value}".rstrip() + target + note


def _general(field: str) -> str:
    """A field without the numbers of list items."""
    return _INDEX.sub("[]", field)
