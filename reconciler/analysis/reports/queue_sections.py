"""What a review says of documents, queues and GPUs: what is written otherwise, what each queue may have, and what is left over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from reconciler.analysis.reports.outline import ReportSection, UntrustedText, When, Words, sentences
from reconciler.analysis.reports.paths import Paths
from reconciler.model.review_findings import (
    Converging,
    DeviceChange,
    DocumentChange,
    Entitlement,
    FieldChange,
    Fragments,
    HostEntitlement,
    HostQueueChange,
    QueueChange,
    QueueWaits,
    Review,
    WindowChange,
)
from reconciler.model.spans import span
from solver.model.cluster import MigInstance
from solver.model.quantities import Instant, MilliGpu
from solver.plan.reason import count

_WEIGHT = re.compile(r"users\.weights\[(?P<user>.+)\]")
_QUOTA = re.compile(r"quota\[(?P<type>.+)\]\.(?P<part>guaranteed|max|perUser|lendable|shared)")
_HOST_QUOTA = re.compile(r"hostQuota\[(?P<type>cpu|memory)\]\.(?P<part>guaranteed|max|perUser|lendable|shared)")
_HOST_UNITS = {"cpu": "CPU cores", "memory": "memory"}
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BRACKETS = re.compile(r"(\[.*?\])")


def document_sections(found: Review, paths: Paths) -> Iterator[ReportSection]:
    """Each change of meaning as a sentence."""
    lines = [line for document in found.documents for line in _document_lines(document, paths)]
    if lines:
        yield sentences("Documents", lines)


def _document_lines(changed: DocumentChange, paths: Paths) -> Iterator[Words]:
    named = UntrustedText(document_words(changed.document, paths))
    if changed.change == "changed":
        for field in changed.fields:
            yield named, ": ", *_field(field)
        return
    said = "; ".join(f"{_unit(field, field.after or '')}" for field in changed.fields)
    if changed.change == "added" and said:
        yield named, " is new: ", UntrustedText(said)
    else:
        yield named, " is new" if changed.change == "added" else " is removed"


def document_words(document: str, paths: Paths) -> str:
    """`Queue vision` as `queue research/vision`, `PriorityClass low` as `priority class low`."""
    kind, _, name = document.partition(" ")
    words = _HUMP.sub(" ", kind).lower().replace("mig ", "MIG ")
    return f"{words} {paths.path(name) if kind == 'Queue' else name}".rstrip()


def _field(change: FieldChange) -> Words:
    """`guaranteed 64 → 96 H100-SXM5-80GB`: a quota's type stands behind its numbers."""
    if change.after is None:
        return (
            UntrustedText(" ".join(filter(None, _field_words(change.field)))),
            " not set (was ",
            UntrustedText(change.before or ""),
            ")",
        )
    if change.before is None:
        return UntrustedText(_unit(change, change.after)), " (was not set)"
    return (UntrustedText(_unit(change, f"{change.before} → {change.after}")),)


def _unit(change: FieldChange, value: str) -> str:
    field, behind = _field_words(change.field)
    value = {"True": "true", "False": "false"}.get(value, value)  # As YAML has it.
    return f"{field} {value}{f' {behind}' if behind else ''}"


def _field_words(field: str) -> tuple[str, str]:
    """A field in words, and what stands behind its value; what is in brackets are names, and stays as it is."""
    quota = _QUOTA.fullmatch(field) or _HOST_QUOTA.fullmatch(field)
    if quota:
        part = "at most per user" if quota["part"] == "perUser" else quota["part"]
        return part, _HOST_UNITS.get(quota["type"], quota["type"])
    if weight := _WEIGHT.fullmatch(field):
        return f"weight of user {weight['user']}", ""
    parts = _BRACKETS.split(field)
    return "".join(
        part if number % 2 else _HUMP.sub(" ", part).replace(".", " ").lower() for number, part in enumerate(parts)
    ).strip(), ""


def converging_sections(found: Review, paths: Paths, when: When) -> Iterator[ReportSection]:
    """Limits below what is held, and by when they are kept again."""
    if found.converging:
        yield sentences("Quotas that converge", [_converging(limit, paths, when) for limit in found.converging])


def _converging(limit: Converging, paths: Paths, when: When) -> Words:
    held = MilliGpu(limit.max + limit.over)
    who = "all its jobs" if limit.evicts == "all" else "preemptible jobs"
    if limit.deadline is None or limit.evicts == "none":
        then = ": jobs end by themselves, none is evicted"
    else:
        then = f": jobs may end by themselves until {when(limit.deadline)}, then {who} are evicted"
    kept = (
        f"foreseen to be kept again from {_second(limit.kept_at, when)} on"
        if limit.kept_at
        else "not foreseen when it is kept again"
    )
    where: Words = (
        "queue ",
        UntrustedText(paths.path(limit.queue)),
        f" holds {held} of max {limit.max} ",
        UntrustedText(limit.gpu_type),
    )
    return (*where, f"{then}; {kept}")


def window_sections(found: Review, when: When) -> Iterator[ReportSection]:
    """Windows of the next seven days that come, go or move."""
    if found.windows:
        rows = tuple(_window_row(change, when) for change in found.windows)
        yield ReportSection("Windows in the next 7 days", rows, ("Window", "From", "Until", "Holds"))


def ending_sections(found: Review) -> Iterator[ReportSection]:
    """Windows of which the last is over, or soon will be."""
    if found.ending:
        yield sentences("Windows that come to an end", [(UntrustedText(one.message),) for one in found.ending])


def _window_row(change: WindowChange, when: When) -> tuple[Words, ...]:
    before, after = change.holds_before, change.holds_after
    starts = [when(at) for at in (change.start_before, change.start_after) if at is not None]
    untils = [when(at) for at in (change.until_before, change.until_after) if at is not None]
    holds = before if after is None else after if before in (None, after) else f"{before} → {after}"
    what = "new: " if before is None else "removed: " if after is None else ""
    times = (_compared(each[0], each[-1]) for each in (starts, untils))
    return (UntrustedText(change.window),), *times, (what, UntrustedText(holds or ""))


def orphaned_sections(found: Review, paths: Paths) -> Iterator[ReportSection]:
    """Queues that are removed while jobs of them run."""
    if found.orphaned:
        yield sentences("Removed while in use", [_orphaned(change, paths) for change in found.orphaned])


def _orphaned(change: QueueChange, paths: Paths) -> Words:
    held = f" holds {change.before.used if change.before else 0} "
    what_then = ": its jobs run on, count towards no quota, and can not start again"
    return "queue ", UntrustedText(paths.path(change.queue)), held, UntrustedText(change.gpu_type), what_then


def _second(at: Instant, when: When) -> str:
    """To the second, and not before: more is not foreseen."""
    return when(Instant(-(-at // 1_000) * 1_000))


def queue_sections(found: Review, paths: Paths) -> Iterator[ReportSection]:
    """Entitlement and use, and how long each queue's jobs have still to wait."""
    if found.queues:
        yield _numbers(QUEUES_TITLE, [_queue_row(queue, paths) for queue in found.queues], 2, _QUEUES)
    if found.host_queues:
        yield _numbers("Queues: CPU and memory", [_host_row(queue, paths) for queue in found.host_queues], 2, _HOST)
    if found.waits:
        yield from _waits_section(found.waits, paths)


QUEUES_TITLE = "Queues: entitlement and use"
"""What has bars of these figures leaves this section out."""
_QUEUES = ("Queue", "GPU type", "Guaranteed", "Fair share", "Max", "Used")
_HOST = ("Queue", "Resource", "Guaranteed", "Fair share", "Max", "Used")
_WAITS = ("Queue", "Waiting", "Start within the horizon", "Start (p50)", "Start (p90)")
_FRAGMENTS = ("GPU type", "Free", "Free and of no use to known shapes")


def _numbers(title: str, rows: Iterable[tuple[Words, ...]], names: int, headings: tuple[str, ...]) -> ReportSection:
    """A table with names in its first columns, and numbers in all others."""
    return ReportSection(title, tuple(rows), headings, frozenset(headings[names:]))


def _waits_section(waits: Sequence[QueueWaits], paths: Paths) -> Iterator[ReportSection]:
    """Queues of which the wait differs; the others are counted."""
    rows = [_waits_row(one, paths) for one in waits if _told(one, "before") != _told(one, "after")]
    same = len(waits) - len(rows)
    note: Words = (f"{count(same, 'queue')} in which jobs wait as long as before.",) if same else ()
    if rows:
        yield ReportSection("Earliest start by queue", tuple(rows), _WAITS, frozenset(_WAITS[1:]), note)


def _told(waits: QueueWaits, side: str) -> tuple[str, str, str]:
    """What a reader is told of one side."""
    p50, p90 = getattr(waits, f"p50_{side}_s"), getattr(waits, f"p90_{side}_s")
    return str(getattr(waits, f"started_{side}")), _in(p50), _in(p90)


def _queue_row(change: QueueChange, paths: Paths) -> tuple[Words, ...]:
    fields = ("guaranteed", "fair_share", "max", "used")
    numbers = (_compared(_amount(change.before, field), _amount(change.after, field)) for field in fields)
    return (UntrustedText(paths.path(change.queue)),), (UntrustedText(change.gpu_type),), *numbers


def _host_row(change: HostQueueChange, paths: Paths) -> tuple[Words, ...]:
    def told(side: HostEntitlement | None, field: str) -> str:
        return "none" if side is None else str(getattr(side, field) or "no limit")

    fields = ("guaranteed", "fair_share", "max", "used")
    numbers = (_compared(told(change.before, field), told(change.after, field)) for field in fields)
    return (UntrustedText(paths.path(change.queue)),), (change.resource,), *numbers


def _amount(entitlement: Entitlement | None, field: str) -> str:
    if entitlement is None:
        return "none"
    value: MilliGpu | None = getattr(entitlement, field)
    return "no limit" if value is None else str(value)


def _compared(before: str, after: str) -> Words:
    return (before if before == after else f"{before} → {after}",)


def _waits_row(waits: QueueWaits, paths: Paths) -> tuple[Words, ...]:
    told = zip(_told(waits, "before"), _told(waits, "after"), strict=True)
    return (UntrustedText(paths.path(waits.queue)),), (str(waits.pending),), *(_compared(*both) for both in told)


def _in(seconds: float | None) -> str:
    if seconds is None:
        return "not foreseen"
    return f"in {span(round(seconds * 1_000))}" if seconds >= 1 else "now"


def device_sections(found: Review) -> Iterator[ReportSection]:
    """Fragmentation, and GPUs that are partitioned otherwise."""
    if found.fragments:
        yield _numbers("Fragmentation", map(_fragments_row, found.fragments), 1, _FRAGMENTS)
    if found.repartitioned:
        rows = tuple(map(_repartitioned_row, found.repartitioned))
        note = (f"{count(len(rows), 'GPU')} partitioned otherwise after the next round.",)
        yield ReportSection("MIG", rows, ("Node", "GPU", "Before", "After"), note=note)


def _fragments_row(one: Fragments) -> tuple[Words, ...]:
    free = _compared(str(one.free_before), str(one.free_after))
    return (UntrustedText(one.gpu_type),), free, _compared(str(one.unusable_before), str(one.unusable_after))


def _repartitioned_row(gpu: DeviceChange) -> tuple[Words, ...]:
    return (UntrustedText(gpu.node),), (UntrustedText(gpu.device),), _instances(gpu.before), _instances(gpu.after)


def _instances(instances: tuple[MigInstance, ...] | None) -> Words:
    if instances is None:
        return ("whole",)
    return (
        (UntrustedText(" + ".join(f"{one.profile}@{one.start}" for one in instances)),)
        if instances
        else ("no instances",)
    )
