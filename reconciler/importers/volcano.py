"""Volcano: queues whose fields mean different things by the plugin that reads them: capacity, proportion, or drf's hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

from reconciler.importers.classes import class_documents
from reconciler.importers.draft import HOST_RESOURCES, QueueDraft
from reconciler.importers.gpu_types import GPU_RESOURCES
from reconciler.importers.quantities import quantity
from reconciler.importers.source import SourceRecord, nested_records, yaml_records
from reconciler.importers.system import OBJECT_RULES, Drawing, ImportSource, close_types, drawing_of, foreign
from reconciler.kubernetes.objects.amounts import amount
from reconciler.model.problem import InvalidDocumentsError, Path, problem_of

Plugin = Literal["capacity", "proportion"]

_CONF: Final = "scheduler configuration"
_CONF_KEY: Final = "volcano-scheduler.conf"
_ROOT: Final = "root"
_HIERARCHY: Final = "volcano.sh/hierarchy"
_WEIGHTS: Final = "volcano.sh/hierarchy-weights"
_KINDS: Final = ("Queue", "PriorityClass", "ConfigMap", _CONF)
_LISTS: Final[tuple[Path, ...]] = (("spec", "deserved"), ("spec", "guarantee", "resource"), ("spec", "capability"))


def volcano(source: ImportSource) -> Drawing:
    """The draft of Volcano's queues and priority classes. Raises InvalidDocumentsError."""
    records = [record for file in source.files for record in yaml_records(file)]
    inner = list[SourceRecord]()
    for record in records:
        if record.kind == "ConfigMap" and record.text("data", _CONF_KEY):
            inner += nested_records(record, ("data", _CONF_KEY), _CONF)
    every = [*records, *inner]
    # The file itself, as it lies in a container: it has no kind.
    confs = [each for each in every if each.kind == _CONF or (each.kind == "document" and each.has("tiers"))]
    drawing = drawing_of(every, source)
    queues = [record for record in records if record.kind == "Queue"]
    plugin = _plugin(drawing, confs, queues)
    _Queues(drawing, queues, plugin).draw()
    close_types(drawing)
    class_documents(drawing, [record for record in records if record.kind == "PriorityClass"], lambda _: {})
    drawing.setting(None, reclaim="guaranteed")
    for record in every:
        if record.kind == "ConfigMap":
            drawing.account.carried(record, ("data", _CONF_KEY), _CONF, "read as the fields below")
        elif record.kind not in _KINDS and record not in confs:
            foreign(drawing.account, record, "Volcano")
        drawing.account.settle(record, OBJECT_RULES)
    return drawing


def _plugin(drawing: Drawing, confs: Sequence[SourceRecord], queues: Sequence[SourceRecord]) -> Plugin:
    """The plugin that reads queues: as the scheduler's file says, else capacity where a queue states `deserved`."""
    account = drawing.account
    for conf in confs:
        names = {
            str(each.get("name"))
            for tier in conf.items("tiers")
            if isinstance(tier, dict)
            for each in tier.get("plugins") or []
            if isinstance(each, dict)
        }
        account.carried(conf, ("tiers",), "which fields of queues count", f"plugins: {', '.join(sorted(names))}")
        account.changed(
            conf, ("actions",), "rounds", "each round starts, takes back, moves and backfills in one decision"
        )
        account.dropped(conf, (), "how Volcano's own process runs: no policy")
        return "capacity" if "capacity" in names else "proportion"
    guessed: Plugin = "capacity" if any(queue.has("spec", "deserved") for queue in queues) else "proportion"
    if queues:
        note = f"volcano-scheduler.conf is not among the files: queues are taken to be read by the plugin {guessed}"
        account.unsaid("asked", queues[0], ("plugins",), "not given", "which fields of queues count", note)
    return guessed


@dataclass
class _Queues:
    """The queues, and the plugin that reads them."""

    drawing: Drawing
    records: Sequence[SourceRecord]
    plugin: Plugin

    def draw(self) -> None:
        for record in self.records:
            if record.name != _ROOT:
                self.drawing.queues.of(f"queue/{record.name}", record.name)
        weights = dict[str, tuple[Fraction, SourceRecord]]()
        for record in self.records:
            if record.name == _ROOT:
                self.drawing.account.dropped(record, (), "the root of all queues is the cluster itself")
                continue
            queue = QueueDraft(self.drawing.queues.of(f"queue/{record.name}", record.name))
            queue.comments.append(f"From {record.label}, {record.origin}.")
            self._place(record, queue, weights)
            self._quota(record, queue)
            self._rest(record, queue)
            self.drawing.draft.add(queue)

    # Where it stands in the tree.

    def _place(
        self, record: SourceRecord, queue: QueueDraft, weights: dict[str, tuple[Fraction, SourceRecord]]
    ) -> None:
        account, at = self.drawing.account, ("metadata", "annotations", _HIERARCHY)
        parent = record.text("spec", "parent")
        if record.has(*at):
            self._by_annotation(record, queue, weights)
        elif parent and parent != _ROOT:
            found = self.drawing.queues.known(f"queue/{parent}")
            if found is None:
                message = f"Queue {record.name} lies in {parent}, which is not among the files"
                raise InvalidDocumentsError(
                    [problem_of(record.origin, "unknown-parent", message, "Give its file too.")]
                )
            queue.parent = found
        account.carried(record, ("spec", "parent"), f"Queue {queue.name} parent")
        weight: Path = ("spec", "weight")
        if record.has(*weight) and queue.weight is None and not record.has(*at):
            value = quantity(record, weight)
            queue.weight = value if value > 0 else None
            if self.plugin == "capacity":
                account.changed(
                    record, weight, "weight", "capacity does not read it; here it divides what is idle among siblings"
                )
        account.carried(record, weight, "weight")

    def _by_annotation(
        self, record: SourceRecord, queue: QueueDraft, weights: dict[str, tuple[Fraction, SourceRecord]]
    ) -> None:
        """`root/eng/prod` with `1/2/8`: queues on the way are made, each level has the weight that is stated there."""
        account = self.drawing.account
        path = record.text("metadata", "annotations", _HIERARCHY).split("/")
        stated = record.text("metadata", "annotations", _WEIGHTS).split("/")
        numbers = [self._level_weight(record, each) for each in stated] + [Fraction(1)] * len(path)
        above: str | None = None
        for depth in range(1, len(path)):
            key = "/".join(path[: depth + 1])
            known, first = weights.setdefault(key, (numbers[depth], record))
            if known != numbers[depth]:
                message = f"{key} has the weight {known} in {first.label} ({first.origin}), and here {numbers[depth]}"
                place = f"{record.file}:{record.line_of(('metadata', 'annotations', _WEIGHTS))}"
                raise InvalidDocumentsError(
                    [problem_of(place, "weights-differ", message, "Write the same weight in both.")]
                )
            if depth == len(path) - 1:
                queue.parent, queue.weight = above, numbers[depth]
            else:
                above = self._inner(key, path[depth], above, numbers[depth], record)
        account.carried(record, ("metadata", "annotations", _HIERARCHY), f"Queue {queue.name} parent")
        account.carried(record, ("metadata", "annotations", _WEIGHTS), "weight")
        account.dropped(record, ("spec", "weight"), "the weights of the hierarchy count, as in drf")

    def _inner(self, key: str, name: str, above: str | None, weight: Fraction, record: SourceRecord) -> str:
        found = self.drawing.queues.of(f"hierarchy/{key}", name)
        if found not in self.drawing.draft.queues:
            comment = f"From {key} in the hierarchy of {record.label}, {record.origin}."
            self.drawing.draft.add(QueueDraft(found, above, weight=weight, comments=[comment]))
        return found

    @staticmethod
    def _level_weight(record: SourceRecord, written: str) -> Fraction:
        try:
            found = amount(written)
        except ValueError:
            found = Fraction(0)
        if found <= 0:
            place = f"{record.file}:{record.line_of(('metadata', 'annotations', _WEIGHTS))}"
            message = f"{record.label}: {written!r} is no weight of a level, such as in 1/2/8"
            raise InvalidDocumentsError([problem_of(place, "weight", message, "Correct it.")])
        return found

    # What it may hold.

    def _quota(self, record: SourceRecord, queue: QueueDraft) -> None:
        for at in _LISTS:
            for name in record.mapping(*at):
                self._amount(record, queue, at, name)
        if self.plugin == "capacity" and not record.has("spec", "deserved"):
            for gpu_type in self._types(record):
                entry = queue.quota_for(gpu_type)
                entry.guaranteed = entry.guaranteed or Fraction(0)
            note = "nothing is deserved: what it holds is borrowed, and can be taken back"
            self.drawing.account.unsaid("carried", record, ("spec", "deserved"), "none", "quota guaranteed: 0", note)
        for entry in queue.quota.values():
            kept = entry.extra
            if kept is not None:
                # A guarantee is part of what is deserved, and never lent.
                entry.guaranteed = max(entry.guaranteed or Fraction(0), kept)
                entry.lendable, entry.extra = entry.guaranteed - kept, None

    def _types(self, record: SourceRecord) -> list[str]:
        types = self.drawing.types
        named = [name for at in _LISTS for name in record.mapping(*at) if name in GPU_RESOURCES]
        return types.known or ([types.one(record.origin, record.label)] if named or types.only else [])

    def _amount(self, record: SourceRecord, queue: QueueDraft, at: Path, name: str) -> None:
        account, where = self.drawing.account, (*at, name)
        target = self._target(record, name)
        if target is None:
            account.dropped(record, where, f"no queue has a quota of {name}: nodes alone limit it")
            return
        entry, value, host = queue.quota_for(target), quantity(record, where), target in HOST_RESOURCES
        if at[-1] == "capability":
            entry.max = value
            account.carried(record, where, f"quota of {target}: max")
        elif self.plugin == "proportion" and at[-1] == "deserved":
            account.dropped(record, where, "proportion does not read it: weights divide the cluster")
        elif at[-1] == "deserved":
            entry.guaranteed = value
            note = "it is guaranteed to jobs without GPUs; GPUs bring the CPU and memory beside them" if host else ""
            account.note("changed" if host else "carried", record, where, f"quota of {target}: guaranteed", note)
        else:
            entry.extra = value
            account.carried(
                record, where, f"quota of {target}: lendable", "never lent: lendable is the rest of guaranteed"
            )

    def _target(self, record: SourceRecord, name: str) -> str | None:
        if name in HOST_RESOURCES:
            return name
        if name in self.drawing.types.said:
            return self.drawing.types.said[name]
        return self.drawing.types.one(record.origin, record.label) if name in GPU_RESOURCES else None

    # What else it says.

    def _rest(self, record: SourceRecord, queue: QueueDraft) -> None:
        account, at = self.drawing.account, ("spec", "reclaimable")
        if record.get(*at) is False:
            note = "what it borrows can be taken back all the same: give it classes of its own, and guarantees that hold them"
            account.dropped(record, at, note)
        account.carried(record, at, "reclaim", "what is borrowed can be taken back")
        strategy: Path = ("spec", "dequeueStrategy")
        if record.has(*strategy):
            ordering: dict[str, Any] = {"by": "priority", "strict": record.text(*strategy) == "fifo"}
            queue.more["ordering"] = ordering
        account.carried(record, strategy, "ordering.strict")
        account.dropped(record, ("spec", "priority"), "which queue is served first: shares decide, whatever its rank")
        account.asked(
            record,
            ("spec", "affinity"),
            "pools",
            "groups of nodes: write the pools that they are into pools of the queue",
        )
        account.dropped(record, ("spec", "extendClusters"), "other clusters are not tried")
        account.dropped(record, ("spec", "type"), "a name of no effect")
        if record.text("status", "state") in ("Closed", "Closing"):
            queue.more["stopPolicy"] = "Hold"
            account.carried(record, ("status", "state"), "stopPolicy: Hold")
