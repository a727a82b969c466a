"""YuniKorn: the tree of queues.yaml, as a file or in its ConfigMap, with resources, limits and access lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from reconciler.importers.account import ImportOutcome
from reconciler.importers.draft import HOST_RESOURCES, QueueDraft
from reconciler.importers.gpu_types import GPU_RESOURCES
from reconciler.importers.quantities import quantity
from reconciler.importers.source import SourceRecord, nested_records, yaml_records
from reconciler.importers.system import OBJECT_RULES, Drawing, ImportSource, close_types, drawing_of, foreign
from reconciler.model.problem import InvalidDocumentsError, Path, problem_of

_CONFIG: Final = "queues.yaml"
_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+:/-]*")
_HOST: Final = {"vcore": "cpu", "cpu": "cpu", "memory": "memory"}
_PARTITION: Final = "default"
_ROOT: Final = "root"
_NO_LIMIT: Final = "there is no limit on how many jobs may be there, wait or run"
_PROPERTIES: Final[dict[str, tuple[ImportOutcome, str, str]]] = {
    "application.sort.policy": (
        "changed",
        "ordering.by",
        "fifo is by value and time, or fifo; fair is least-served, by all that a job had",
    ),
    "application.sort.priority": ("carried", "ordering.by", ""),
    "priority.policy": ("dropped", "", "a value compares in its own queue alone: there is no fence to set"),
    "priority.offset": ("dropped", "", "a queue adds nothing to the value of a class: give it classes of its own"),
    "preemption.delay": ("changed", "preemptAfter", "also for borrowed work of others, and in the queue itself"),
    "quota.preemption.delay": ("changed", "convergence.within", "how long jobs above a lowered max may go on"),
}
_PREEMPTION: Final[dict[str, tuple[ImportOutcome, str, str]]] = {
    "default": ("carried", "", "as it is here where nothing is said"),
    "disabled": (
        "changed",
        "preemptWithin: never, reclaimedFor: guaranteed",
        "what the queue borrowed still leaves for the guarantees of others, which nothing shields it from",
    ),
    "fence": (
        "dropped",
        "",
        "a queue inside its guarantee takes back what queues elsewhere borrowed: guarantee it nothing that it is not to take back",
    ),
}
"""By the value of `preemption.policy`."""


def yunikorn(source: ImportSource) -> Drawing:
    """The draft of YuniKorn's queues. Raises InvalidDocumentsError."""
    records = [record for file in source.files for record in yaml_records(file)]
    plain = [record for record in records if record.has("partitions")]
    maps = [record for record in records if record.kind == "ConfigMap"]
    nested = [
        each
        for record in maps
        if record.text("data", _CONFIG)
        for each in nested_records(record, ("data", _CONFIG), _CONFIG)
    ]
    drawing = drawing_of([*records, *nested], source)
    for record in (*plain, *nested):
        _Tree(drawing, record).draw()
    close_types(drawing)
    drawing.setting(None, reclaim="guaranteed")
    for record in maps:
        _note_map(drawing, record)
    for record in records:
        if record not in maps and record not in plain:
            foreign(drawing.account, record, "YuniKorn")
    return drawing


def _note_map(drawing: Drawing, record: SourceRecord) -> None:
    """The ConfigMap around the tree, which also has the settings of YuniKorn's process."""
    drawing.account.carried(record, ("data", _CONFIG), _CONFIG, "read as the fields below")
    for key in record.mapping("data"):
        drawing.account.dropped(record, ("data", key), "how YuniKorn's own process runs: no policy")
    drawing.account.settle(record, OBJECT_RULES)


class _Tree:
    """One configuration, walked from its root; `types`: GPU types that its numbers are about."""

    def __init__(self, drawing: Drawing, record: SourceRecord) -> None:
        self.drawing, self.account, self.record = drawing, drawing.account, record

    def draw(self) -> None:
        record = self.record
        for index, _ in enumerate(record.items("partitions")):
            at: Path = ("partitions", index)
            name = record.text(*at, "name") or _PARTITION
            if name != _PARTITION:
                note = f"partition {name}: only default exists on Kubernetes; import it as a cluster of its own"
                self.account.dropped(record, at, note)
                continue
            self.account.carried(record, (*at, "name"), "the cluster")
            self._partition(at)

    def _partition(self, at: Path) -> None:
        record, account = self.record, self.account
        queues: Path = (*at, "queues")
        tops = record.items(*queues)
        only_root = len(tops) == 1 and record.text(*queues, 0, "name").lower() == _ROOT
        root: str | None = None
        for index, _ in enumerate(tops):
            if only_root:
                root = self._root((*queues, index))
            else:
                self._queue((*queues, index), None, "")
        self._rules(at)
        self._limits(at, self.drawing.draft.queues.get(root or ""))
        account.dropped(
            record,
            (*at, "nodesortpolicy"),
            "where a job goes is decided by fit and closeness; `placement` of a class says pack or spread",
        )
        preemption: Path = (*at, "preemption", "enabled")
        if record.get(*preemption) is False:
            self.drawing.setting(record, evictions={"perRound": 0, "movesPerRound": 0})
        account.carried(record, preemption, "evictions")
        quota: Path = (*at, "preemption", "quotapreemptionenabled")
        if record.get(*quota) is not True:
            self.drawing.setting(record, convergence={"evict": "none"})
        account.carried(
            record, quota, "SchedulingPolicy convergence", "whether jobs above a lowered max are made to leave"
        )

    def _root(self, at: Path) -> str | None:
        """The root: a queue of ours only where it says something, else its children are roots."""
        keys = set(self.record.mapping(*at)) - {"name", "parent", "queues"}
        self.account.carried(self.record, (*at, "name"), "the cluster")
        self.account.carried(self.record, (*at, "parent"), "the cluster")
        if keys:
            return self._queue(at, None, "")
        for index, _ in enumerate(self.record.items(*at, "queues")):
            self._queue((*at, "queues", index), None, "")
        return None

    def _rules(self, at: Path) -> None:
        """Which queue a job goes to, where it names none or another."""
        for index, _ in enumerate(self.record.items(*at, "placementrules")):
            name = self.record.text(*at, "placementrules", index, "name")
            note = f"rule {name}: jobs name their queue; a namespace may have a default (access.namespaces)"
            self.account.dropped(self.record, (*at, "placementrules", index), note)

    def _queue(self, at: Path, parent: str | None, above: str) -> str:
        record, name = self.record, self.record.text(*at, "name")
        if not name:
            place = f"{record.file}:{record.line_of(at)}"
            raise InvalidDocumentsError([problem_of(place, "queue-name", "a queue has no name", "Write its name.")])
        path = f"{above}.{name}" if above else name
        queue = QueueDraft(self.drawing.queues.of(path, name), parent)
        queue.comments.append(f"From queue {path}, {record.file}:{record.line_of((*at, 'name'))}.")
        self.drawing.draft.add(queue)
        children = record.items(*at, "queues")
        self.account.carried(record, (*at, "name"), f"Queue {queue.name}")
        self._parent(at, queue, has_children=bool(children))
        self._resources(at, queue, leaf=not children)
        self._access(at, queue)
        self._properties(at, queue)
        self._limits(at, queue)
        self.account.dropped(record, (*at, "maxapplications"), _NO_LIMIT)
        note = "queues are not made as jobs come: each has its document"
        self.account.dropped(record, (*at, "childtemplate"), note)
        for index, _ in enumerate(children):
            self._queue((*at, "queues", index), queue.name, path)
        return queue.name

    def _parent(self, at: Path, queue: QueueDraft, *, has_children: bool) -> None:
        where = (*at, "parent")
        if self.record.get(*where) is True and not has_children:
            note = (
                "its queues are made as jobs come, there; here jobs go to it itself, until queues are written below it"
            )
            self.account.changed(self.record, where, f"Queue {queue.name}", note)
        self.account.carried(self.record, where, f"Queue {queue.name}")

    # Resources.

    def _resources(self, at: Path, queue: QueueDraft, *, leaf: bool) -> None:
        for field in ("guaranteed", "max"):
            for name in self.record.mapping(*at, "resources", field):
                where = (*at, "resources", field, name)
                for target in self._targets(where, name):
                    setattr(queue.quota_for(target), field, quantity(self.record, where))
                    self._note(where, field, target)
        types = self._types(at)
        for gpu_type in types:
            entry = queue.quota_for(gpu_type)
            if entry.guaranteed is None and leaf:
                entry.guaranteed = Fraction(0)
            elif entry.guaranteed is None:
                entry.extra = Fraction(0)
        if (
            types
            and leaf
            and not any(name in GPU_RESOURCES for name in self.record.mapping(*at, "resources", "guaranteed"))
        ):
            note = (
                "nothing is guaranteed there: what it holds can be taken back by queues that are below their guarantees"
            )
            where = (*at, "resources", "guaranteed")
            self.account.unsaid("carried", self.record, where, "none", f"Queue {queue.name} guaranteed: 0", note)

    def _note(self, where: Path, field: str, target: str) -> None:
        host = target in HOST_RESOURCES and field == "guaranteed"
        note = "it is guaranteed to jobs without GPUs; GPUs bring the CPU and memory beside them" if host else ""
        self.account.note("changed" if host else "carried", self.record, where, f"quota of {target}: {field}", note)

    def _targets(self, where: Path, name: str) -> list[str]:
        if name in _HOST:
            return [_HOST[name]]
        if name in GPU_RESOURCES:
            return [self.drawing.types.one(f"{self.record.file}:{self.record.line_of(where)}", f"queue field {name}")]
        if name in self.drawing.types.said:
            return [self.drawing.types.said[name]]
        self.account.dropped(self.record, where, f"no queue has a quota of {name}: nodes alone limit it")
        return []

    def _types(self, at: Path) -> list[str]:
        known = {*self.drawing.types.known, *filter(None, (self.drawing.types.only,))}
        return sorted({*known, *self.drawing.draft.gpu_types()}) if at else []

    # Access, properties, limits.

    def _access(self, at: Path, queue: QueueDraft) -> None:
        for field, ours in (("submitacl", "submitters"), ("adminacl", "admins")):
            where = (*at, field)
            if not self.record.has(*where):
                continue
            subjects = list(_subjects(self.record.text(*where)))
            if subjects:
                queue.more.setdefault("access", {})[ours] = subjects
            # To be let in by name is the only way, here and there; what is inherited is, too.
            self.account.carried(self.record, where, f"Queue {queue.name} access.{ours}")

    def _properties(self, at: Path, queue: QueueDraft) -> None:
        record = self.record
        sort, priority = (record.text(*at, "properties", f"application.sort.{key}") for key in ("policy", "priority"))
        if sort == "fifo" and priority == "disabled":
            queue.more["ordering"] = {"by": "fifo"}
        elif sort == "fair":
            queue.more["ordering"] = {"by": "least-served"}
        delay = record.text(*at, "properties", "preemption.delay")
        if re.fullmatch(r"(\d+h)?(\d+m)?(\d+s)?", delay) and delay:
            queue.more["preemptAfter"] = delay
        policy = record.text(*at, "properties", "preemption.policy").lower()
        if policy == "disabled":
            queue.more |= {"preemptWithin": "never", "reclaimedFor": "guaranteed"}
        known = _PROPERTIES | ({"preemption.policy": _PREEMPTION[policy]} if policy in _PREEMPTION else {})
        for name in record.mapping(*at, "properties"):
            outcome, target, note = known.get(name, ("dropped", "", "a property of no effect here"))
            self.account.note(outcome, record, (*at, "properties", name), target, note)

    def _limits(self, at: Path, queue: QueueDraft | None) -> None:
        """A limit for each of all users is `perUser`; one for some of them has no equal."""
        for index, _ in enumerate(self.record.items(*at, "limits")):
            where = (*at, "limits", index)
            everyone = self.record.items(*where, "users") == ["*"]
            resources = self.record.mapping(*where, "maxresources")
            if everyone and queue is not None:
                self._per_user(where, queue, resources)
                self.account.carried(self.record, (*where, "users"), f"Queue {queue.name} perUser")
            self.account.carried(self.record, (*where, "limit"), "", "for people: it is not written")
            self.account.dropped(self.record, (*where, "maxapplications"), _NO_LIMIT)
            note = "perUser is one number for all users: limits of some users, or of a group together, have no equal"
            self.account.dropped(self.record, where, note)

    def _per_user(self, where: Path, queue: QueueDraft, resources: dict[str, Any]) -> None:
        for name in resources:
            at = (*where, "maxresources", name)
            for target in self._targets(at, name):
                queue.quota_for(target).per_user = quantity(self.record, at)
                self.account.carried(self.record, at, f"Queue {queue.name} perUser")


def _subjects(written: str) -> Iterator[str]:
    """Users by comma, a blank, groups by comma; a leading blank: groups alone; a star: every user."""
    if written.strip() == "*":
        yield "group:*"
        return
    users, _, groups = written.partition(" ")
    for kind, listed in (("user", users), ("group", groups)):
        for name in (part.strip() for part in listed.split(",")):
            if name == "*":
                yield "group:*"
            elif _PRINCIPAL.fullmatch(name):
                yield f"{kind}:{name}"
