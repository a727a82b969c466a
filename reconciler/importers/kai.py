"""KAI: queues with a quota, a limit and a weight for what is over quota; GPUs without types, priorities of four kinds."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

from reconciler.importers.classes import class_documents
from reconciler.importers.draft import HOST_RESOURCES, DocumentDraft, HostResource, QueueDraft, QuotaDraft
from reconciler.importers.quantities import quantity
from reconciler.importers.settlement import amount_text
from reconciler.importers.source import SourceRecord, yaml_records
from reconciler.importers.system import CLASSES, OBJECT_RULES, Drawing, ImportSource, close_types, drawing_of, foreign
from reconciler.model.problem import InvalidDocumentsError, Path, problem_of
from solver.model.quantities import Duration

_UNITS: Final[dict[HostResource, Fraction]] = {"cpu": Fraction(1, 1000), "memory": Fraction(10**6)}
"""CPU is in millicores, memory in megabytes."""
_PINNED: Final = 100
"""From this value on, pods are not preemptible."""
_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""What KAI's own chart makes; pods name them whether their objects are among the files or not."""
_SHARD: Final = "SchedulingShard"
_KINDS: Final = ("Queue", "PriorityClass", _SHARD)


def kai(source: ImportSource) -> Drawing:
    """The draft of KAI's queues and priority classes. Raises InvalidDocumentsError."""
    records = [record for file in source.files for record in yaml_records(file)]
    drawing = drawing_of(records, source)
    queues = [record for record in records if record.kind == "Queue"]
    for record in queues:
        drawing.queues.of(record.name)
    runtimes = [_queue(drawing, record, {each.name for each in queues}) for record in queues]
    runtimes += [_shard(drawing, record) for record in records if record.kind == _SHARD]
    longest = max(runtimes, default=Duration(0))
    _classes(drawing, [record for record in records if record.kind == "PriorityClass"], longest)
    close_types(drawing)
    for root in drawing.draft.children(None):
        _share(drawing, root, frozenset())
    drawing.setting(None, reclaim="fair-share")
    for record in records:
        if record.kind not in _KINDS:
            foreign(drawing.account, record, "KAI")
        drawing.account.settle(record, OBJECT_RULES)
    return drawing


def _queue(drawing: Drawing, record: SourceRecord, known: set[str]) -> Duration:
    """Draw a queue; returns the longest time for which it protects what runs."""
    queue = QueueDraft(drawing.queues.of(record.name), comments=[f"From {record.label}, {record.origin}."])
    account = drawing.account
    if parent := record.text("spec", "parentQueue"):
        if parent not in known:
            message = f"Queue {record.name} lies in {parent}, which is not among the files"
            raise InvalidDocumentsError([problem_of(record.origin, "unknown-parent", message, "Give its file too.")])
        queue.parent = drawing.queues.of(parent)
        account.carried(record, ("spec", "parentQueue"), f"Queue {queue.name} parent")
    at: Path = ("spec", "resources", "gpu")
    entry = _entry(record, at, Fraction(1))
    if entry is not None and (record.has(*at) or drawing.types.only or drawing.types.known):
        for gpu_type in [drawing.types.one(record.origin, record.label)] if record.has(*at) else drawing.types.known:
            queue.quota[gpu_type] = entry
    _weight(drawing, record, queue, at)
    _note(drawing, record, at, "quota")
    for resource in HOST_RESOURCES:
        of_host: Path = ("spec", "resources", resource)
        found = _entry(record, of_host, _UNITS[resource])
        if found is not None:
            queue.quota[resource] = found
        _note(drawing, record, of_host, f"hostQuota of {resource}")
    account.carried(record, ("spec", "displayName"), "", "for people: it is not written")
    note = "which queue gets what is over quota first: queues share it by weight alone"
    account.dropped(record, ("spec", "priority"), note)
    drawing.draft.add(queue)
    return _protection(drawing, record, ("spec",))


def _share(drawing: Drawing, queue: QueueDraft, shared: frozenset[str]) -> None:
    """Let queues that deserve more together than the queue above them share that: each is guaranteed what the others leave it.

    `shared`: the types, and which of CPU and memory, a queue above shares already.
    """
    below = drawing.draft.children(queue.name)
    for gpu_type in sorted(queue.quota):
        entry, entries = queue.quota[gpu_type], [child.quota.get(gpu_type) for child in below]
        deserved = [each.guaranteed for each in entries if each is not None and each.guaranteed is not None]
        total = sum(deserved, Fraction(0))
        # One that deserves nothing itself was left at the default: it is raised.
        if not entry.guaranteed or total <= entry.guaranteed:
            continue
        said, most = amount_text(gpu_type, total), amount_text(gpu_type, entry.guaranteed)
        drawing.draft.remark(
            queue,
            f"the queues below it deserve {said}, more than its own {most}: they share it, and each is guaranteed what is "
            "left if all others have what they deserve",
        )
        for each in entries:
            if each is not None and each.guaranteed is not None:
                each.max = None if each.max is None else max(each.max, each.guaranteed)
                each.guaranteed = max(Fraction(0), entry.guaranteed - (total - each.guaranteed))
        entry.shared = gpu_type not in shared
        shared |= {gpu_type}
    for child in below:
        _share(drawing, child, shared)


def _shard(drawing: Drawing, record: SourceRecord) -> Duration:
    """A shard has defaults of what queues say, and how its own scheduler runs."""
    note = "`placement` of a PriorityClass says it for its jobs: gangs are packed, services spread"
    drawing.account.dropped(record, ("spec", "placementStrategy"), note)
    note = "the nodes of a shard are a pool: write it into `pools` of the queues that may use it"
    drawing.account.asked(record, ("spec", "partitionLabelValue"), "pools", note)
    for name in ("kValue", "usageDBConfig"):
        note = "past use counts with usageHalfLife of the SchedulingPolicy: write how fast it is to be forgotten"
        drawing.account.asked(record, ("spec", name), "usageHalfLife", note)
    longest = _protection(drawing, record, ("spec", "minRuntime"))
    drawing.account.dropped(record, ("spec",), "how the shard's own scheduler runs: no policy")
    return longest


def _entry(record: SourceRecord, at: Path, unit: Fraction) -> QuotaDraft | None:
    """A quota with KAI's own defaults: no quota is 0, no limit is no more than the quota, -1 is without end."""
    if not record.has(*at):
        # Without a word of a resource nothing may be held of it; of CPU and memory that would be nothing at all.
        return QuotaDraft(Fraction(0), max=Fraction(0)) if at[-1] == "gpu" else None
    quota, limit = quantity(record, (*at, "quota")), quantity(record, (*at, "limit"))
    over = not record.has(*at, "overQuotaWeight") or quantity(record, (*at, "overQuotaWeight")) > 0
    entry = QuotaDraft()
    if quota >= 0:
        entry.guaranteed = quota * unit
    if limit >= 0:
        entry.max = max(limit, quota, Fraction(0)) * unit
    if not over and quota >= 0:
        entry.max = entry.guaranteed
    return entry if (entry.guaranteed, entry.max) != (None, None) else None


def _note(drawing: Drawing, record: SourceRecord, at: Path, target: str) -> None:
    account, host = drawing.account, at[-1] != "gpu"
    if not record.has(*at):
        note = (
            "nothing of it may be used: as it is there" if not host else "it is not limited here, where nothing is said"
        )
        account.unsaid("changed" if host else "carried", record, at, "0", f"{target} max", note)
        return
    quota = quantity(record, (*at, "quota"))
    if quota < 0:
        note = "without end there; here a weighted share of what the parent has, which is all of it for an only child"
        if host:
            note = "without end there; here jobs without GPUs have their fair share, and GPUs bring what is beside them"
        account.changed(record, (*at, "quota"), f"{target}: guaranteed left out", note)
    # Where nothing is guaranteed, nothing is lost.
    is_changed = host and quota > 0
    of_host = "it is guaranteed to jobs without GPUs; GPUs bring the CPU and memory beside them" if is_changed else ""
    account.note("changed" if is_changed else "carried", record, (*at, "quota"), f"{target}: guaranteed", of_host)
    if record.has(*at, "limit"):
        account.carried(record, (*at, "limit"), f"{target}: max")
    else:
        account.unsaid("carried", record, (*at, "limit"), "0", f"{target}: max", "no more than the quota")
    if host:
        _note_weight(drawing, record, at, target)


def _note_weight(drawing: Drawing, record: SourceRecord, at: Path, target: str) -> None:
    """The weight of CPU or memory: a queue has one for all, that of its GPUs."""
    where, of_gpus = (*at, "overQuotaWeight"), ("spec", "resources", "gpu", "overQuotaWeight")
    if not record.has(*where):
        return
    weight = quantity(record, where)
    if not weight:
        drawing.account.carried(record, where, f"{target}: max", "nothing over quota: max is guaranteed")
    elif weight == (quantity(record, of_gpus) if record.has(*of_gpus) else 1):
        drawing.account.carried(record, where, "weight", "a queue has one weight, for GPUs, CPU and memory")
    else:
        drawing.account.dropped(record, where, "a queue has one weight: that of its GPUs")


def _weight(drawing: Drawing, record: SourceRecord, queue: QueueDraft, at: Path) -> None:
    where = (*at, "overQuotaWeight")
    if not record.has(*where):
        return
    weight = quantity(record, where)
    if weight > 0:
        queue.weight = weight
        drawing.account.carried(record, where, "weight", "whole numbers in the same proportion among siblings")
    else:
        drawing.account.carried(record, where, "quota: max", "nothing over quota: max is guaranteed")


def _protection(drawing: Drawing, record: SourceRecord, base: Path) -> Duration:
    longest = Duration(0)
    for name in ("preemptMinRuntime", "reclaimMinRuntime"):
        written = record.text(*base, name)
        if written:
            try:
                longest = max(longest, Duration.parse(written))
            except ValueError as error:
                place = f"{record.file}:{record.line_of((*base, name))}"
                raise InvalidDocumentsError([problem_of(place, "duration", str(error), "Correct it.")]) from error
        note = "by class here, by queue there: the longest of all queues holds for every class"
        drawing.account.changed(record, (*base, name), "protection.minRuntime", note)
    return longest


def _classes(drawing: Drawing, records: Sequence[SourceRecord], longest: Duration) -> None:
    protection: dict[str, Any] = {"protection": {"minRuntime": str(longest)}} if longest else {}

    def fields(record: SourceRecord) -> dict[str, Any]:
        pinned = isinstance(record.get("value"), int) and record.get("value") >= _PINNED
        return {"preemptible": False, **protection} if pinned else dict(protection)

    class_documents(drawing, records, fields)
    _usual_classes(drawing, protection)


def _usual_classes(drawing: Drawing, protection: dict[str, Any]) -> None:
    for name, value in _CLASSES.items():
        if drawing.classes.known(name) is None:
            pinned = {"preemptible": False} if value >= _PINNED else {}
            comments = ["One of the classes that KAI's chart makes: pods name it. It is not among the files."]
            spec = {"value": value, **pinned, **protection}
            drawing.draft.documents.append(
                DocumentDraft("PriorityClass", drawing.classes.of(name), CLASSES, spec, comments)
            )
