"""Partitions and QOS of Slurm as PriorityClasses: a job has one of each there, and one class here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from reconciler.importers.draft import DocumentDraft
from reconciler.importers.quantities import parsed
from reconciler.importers.slurm.cluster import SlurmPartition
from reconciler.importers.slurm.settings import PARTITION, QOS_RULES
from reconciler.importers.slurm.tres import duration
from reconciler.importers.source import SourceRecord
from reconciler.importers.system import CLASSES, Drawing
from reconciler.model.problem import InvalidDocumentsError, problem_of

_COMBINATIONS_MAX: Final = 60
"""More classes than that nobody could tell apart; a queue lists at most 100."""


class ImportedClass(NamedTuple):
    """A partition and a QOS that jobs may have together, either may be None, and the class that they become."""

    name: str
    partition: SlurmPartition | None
    qos: SourceRecord | None


@dataclass(frozen=True)
class Preemption:
    """What slurm.conf says of it. `kind`: none, partition_prio or qos. `mode`: what becomes of victims. `exempt`: as a duration."""

    kind: str
    mode: str
    exempt: str


class JobClasses:
    """The classes of a cluster, and which of them an account may use."""

    def __init__(
        self, drawing: Drawing, partitions: Sequence[SlurmPartition], qos: Sequence[SourceRecord], how: Preemption
    ) -> None:
        self._drawing, self._partitions, self._qos, self._how = drawing, partitions, qos, how
        self.all = self._combined()

    def draw(self, pools: Mapping[str, list[str]]) -> None:
        """Draw a document for each. `pools`: those of each partition, where it has not all of them."""
        ranks = {key: 10 * rank for rank, key in enumerate(sorted({self._key(each) for each in self.all}), start=1)}
        for each in self.all:
            spec: dict[str, Any] = {"value": ranks[self._key(each)], "scope": "cluster"}
            if each.partition and (limit := self._time(each.partition)):
                spec["defaultTimeLimit"] = limit
            if each.partition and each.partition.name in pools:
                spec["pools"] = pools[each.partition.name]
            spec |= {} if self._yields(each) else {"preemptible": False, "mayBorrow": True}
            spec["protection"] = {"minRuntime": self._exempt(each)}
            sources = [part for part in (each.partition.record if each.partition else None, each.qos) if part]
            comments = [f"From {' and '.join(f'{part.label}, {part.origin}' for part in sources)}."]
            self._drawing.draft.documents.append(DocumentDraft("PriorityClass", each.name, CLASSES, spec, comments))
        for partition in self._partitions:
            self._note_partition(partition)
        for qos in self._qos:
            self._note_qos(qos)
        default = [
            each for each in self.all if each.partition and each.partition.fields.get("default", "").upper() == "YES"
        ]
        if len(default) == 1:
            self._drawing.setting(
                default[0].partition.record if default[0].partition else None, defaultPriorityClass=default[0].name
            )

    def of_account(self, account: str, qos: Sequence[str]) -> list[str] | None:
        """The classes that an account with these QOS (none: any) may use; None where it may use all."""
        found = [
            each.name
            for each in self.all
            if (not qos or each.qos is None or each.qos.name in qos) and _lets_in(each.partition, account)
        ]
        return None if len(found) == len(self.all) else found

    def of_partition(self, partition: SlurmPartition) -> list[str]:
        """The classes of one partition."""
        return [each.name for each in self.all if each.partition is partition]

    def _combined(self) -> list[ImportedClass]:
        names = self._drawing.classes
        if not self._partitions or (len(self._partitions) == 1 and len(self._qos) > 1):
            only = self._partitions[0] if self._partitions else None
            return [ImportedClass(names.of(f"QOS/{each.name}", each.name), only, each) for each in self._qos]
        if len(self._qos) <= 1:
            qos = self._qos[0] if self._qos else None
            return [
                ImportedClass(names.of(f"PartitionName/{each.name}", each.name), each, qos) for each in self._partitions
            ]
        found = [
            ImportedClass(names.of(f"{partition.name}/{qos.name}", f"{partition.name}-{qos.name}"), partition, qos)
            for partition, qos in product(self._partitions, self._qos)
            if _takes(partition, qos.name)
        ]
        if len(found) > _COMBINATIONS_MAX:
            message = f"{len(self._partitions)} partitions and {len(self._qos)} QOS make {len(found)} classes"
            fix = (
                f"Leave out what no job uses: at most {_COMBINATIONS_MAX} are written. AllowQos of a partition counts."
            )
            raise InvalidDocumentsError([problem_of(found[0].name, "too-many-classes", message, fix)])
        return found

    def _key(self, each: ImportedClass) -> tuple[int, int, int]:
        """The partition's tier comes before the QOS' priority, as in Slurm."""
        tier = each.partition.number("prioritytier", each.partition.number("priority", 1)) if each.partition else 1
        factor = each.partition.number("priorityjobfactor", 1) if each.partition else 1
        priority = each.qos.text("priority") if each.qos else ""
        return tier, int(priority) if priority.isdecimal() else 0, factor

    def _yields(self, each: ImportedClass) -> bool:
        """Whether jobs of the class are evicted for others at all."""
        if self._how.kind == "partition_prio":
            return each.partition is None or each.partition.fields.get("preemptmode", self._how.mode).upper() != "OFF"
        if self._how.kind == "qos":
            preempted = {name for qos in self._qos for name in qos.text("preempt").split(",") if name}
            return each.qos is not None and each.qos.name in preempted
        return False

    def _exempt(self, each: ImportedClass) -> str:
        said = each.qos.text("preemptexempttime") if each.qos else ""
        found = parsed(each.qos, ("preemptexempttime",), duration, said) if each.qos and said else None
        return found or self._how.exempt

    @staticmethod
    def _time(partition: SlurmPartition) -> str | None:
        """Jobs that state no limit have the partition's default there, and where it has none its longest."""
        key = "defaulttime" if partition.fields.get("defaulttime") else "maxtime"
        return parsed(partition.record, (key,), duration, partition.fields.get(key) or "")

    def _note_partition(self, partition: SlurmPartition) -> None:
        record, account = partition.record, self._drawing.account
        target = f"PriorityClass {', '.join(self.of_partition(partition))}"
        for key in ("partitionname", "prioritytier", "priorityjobfactor", "priority"):
            account.carried(record, (key,), target)
        account.carried(record, ("default",), "SchedulingPolicy defaultPriorityClass")
        account.carried(record, ("nodes",), "pools")
        account.carried(record, ("defaulttime",), "defaultTimeLimit")
        if not partition.fields.get("defaulttime") and self._time(partition):
            note = "it is the default of jobs that state no limit, as there; there is no longest time limit"
            account.changed(record, ("maxtime",), "defaultTimeLimit", note)
        endless = record.text("maxtime").lower() in ("infinite", "unlimited")
        account.note("carried" if endless else "dropped", record, ("maxtime",), "", "there is no longest time limit")
        for key in ("allowqos", "denyqos"):
            account.carried(record, (key,), "which classes there are")
        self._note_preempt_mode(record)
        account.changed(record, ("gracetime",), "SchedulingPolicy evictions.grace", "one for all: the longest")
        account.carried(record, ("qos",), "limits of the partition's QOS are those of the QOS")
        account.settle(record, PARTITION)

    def _note_preempt_mode(self, record: SourceRecord) -> None:
        mode = record.text("preemptmode").upper()
        if self._how.kind == "none":
            self._drawing.account.carried(
                record, ("preemptmode",), "evictions.perRound", "PreemptType is none: no job is evicted"
            )
        elif mode == "OFF":
            note = "what such jobs hold beyond their queue's share can be taken back; inside it they stay"
            self._drawing.account.changed(record, ("preemptmode",), "preemptible: false", note)
        elif mode == "REQUEUE":
            self._drawing.account.carried(record, ("preemptmode",), "preemptible")
        else:
            note = (
                "an evicted job has its grace, and waits to start again: none is suspended in place or ended for good"
            )
            self._drawing.account.changed(record, ("preemptmode",), "preemptible", note)

    def _note_qos(self, qos: SourceRecord) -> None:
        account = self._drawing.account
        names = [each.name for each in self.all if each.qos is qos]
        for key in ("name", "priority"):
            account.carried(qos, (key,), f"PriorityClass {', '.join(names)}")
        account.carried(qos, ("preemptexempttime",), "protection.minRuntime")
        account.changed(qos, ("gracetime",), "SchedulingPolicy evictions.grace", "one for all: the longest")
        self._note_preempted(qos)
        mode = qos.text("preemptmode").lower()
        if mode in ("cluster", "requeue"):
            account.carried(qos, ("preemptmode",), "preemptible", "as slurm.conf has it" if mode == "cluster" else "")
        note = "an evicted job has its grace, and waits to start again: none is suspended in place or ended for good"
        account.changed(qos, ("preemptmode",), "preemptible", note)
        account.settle(qos, QOS_RULES)

    def _note_preempted(self, qos: SourceRecord) -> None:
        """A QOS evicts those that it lists; here a value evicts every lower one in its queue."""
        if not qos.has("preempt"):
            return
        listed = {name for name in qos.text("preempt").split(",") if name}
        priority = self._priority(qos)
        lower = {each.name for each in self._qos if self._priority(each) < priority}
        if self._how.kind != "qos":
            self._drawing.account.dropped(
                qos, ("preempt",), f"PreemptType is {self._how.kind}: the list has no effect there"
            )
        elif listed == lower:
            self._drawing.account.carried(qos, ("preempt",), "PriorityClass value")
        else:
            higher = ", ".join(sorted(listed - lower))
            note = "in its own queue a higher value evicts every lower one that is preemptible" + (
                f"; {higher} is not lower, so it stays" if higher else ""
            )
            self._drawing.account.changed(qos, ("preempt",), "PriorityClass value", note)

    @staticmethod
    def _priority(qos: SourceRecord) -> int:
        written = qos.text("priority")
        return int(written) if written.isdecimal() else 0


def _takes(partition: SlurmPartition, qos: str) -> bool:
    allowed, denied = partition.listed("allowqos"), partition.listed("denyqos")
    return (not allowed or qos in allowed) and qos not in denied


def _lets_in(partition: SlurmPartition | None, account: str) -> bool:
    if partition is None:
        return True
    allowed, denied = partition.listed("allowaccounts"), partition.listed("denyaccounts")
    return (not allowed or account in allowed) and account not in denied
