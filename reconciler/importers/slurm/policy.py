"""Slurm's files drawn up as policy: pools, classes, a tree of queues, settings, reservations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from reconciler.documents.slurm.amounts import seconds
from reconciler.importers.account import ImportAccount, ImportOutcome
from reconciler.importers.draft import QueueDraft
from reconciler.importers.inventory import SourceNode, Tree, topology_document
from reconciler.importers.quantities import parsed
from reconciler.importers.slurm.accounts import AccountTree, tres_of
from reconciler.importers.slurm.cluster import Machines, tree_of
from reconciler.importers.slurm.files import ASSOCIATION, GRES, QOS, RESERVATION, SETTING, records_of
from reconciler.importers.slurm.jobclasses import JobClasses, Preemption
from reconciler.importers.slurm.reservations import draw_reservations
from reconciler.importers.slurm.settings import drop_setting
from reconciler.importers.slurm.tres import duration
from reconciler.importers.source import SourceRecord
from reconciler.importers.system import Drawing, ImportSource, drawing_of
from reconciler.model.problem import InvalidDocumentsError, problem_of
from solver.model.quantities import Duration
from solver.plan.reason import count

_AGING_BANDS: Final = 8
_HALF_LIFE: Final = "168h"
"""What Slurm takes where PriorityDecayHalfLife is left out: seven days."""
_NODES_FIX: Final = "Give the nodes: scontrol show nodes --json > nodes.json, then --nodes nodes.json."


def slurm(source: ImportSource) -> Drawing:
    """The draft of Slurm's files. Raises InvalidDocumentsError."""
    records = [record for file in source.files for record in records_of(file)]
    account = ImportAccount(records)
    machines = Machines(account, {node.name: node for node in source.nodes}, given=source.nodes_origin)
    machines.read(records)
    _refuse_no_gpus(records, machines)
    origin = source.nodes_origin or next((each.file for each in records if each.kind == "NodeName"), "")
    types = _types_said(machines, source, origin)
    named = _with_types(machines, types, source)
    drawing = drawing_of(records, ImportSource(source.files, named, origin, types, source.only_type))
    drawing.account = account
    _Reading(drawing, records, machines).draw()
    return drawing


def _refuse_no_gpus(records: Sequence[SourceRecord], machines: Machines) -> None:
    """A cluster whose files speak of GPUs and say of no node that it has some is asked for, not guessed."""
    if any(node.gpus for node in machines.nodes.values()):
        return
    for record in records:
        speaks = (
            record.kind == GRES
            or (record.kind == SETTING and record.name.lower() in ("grestypes", "accountingstoragetres"))
            or record.has("grptres")
            or record.has("maxtrespu")
        )
        if speaks and "gpu" in str(record.fields).lower():
            message = "the cluster has GPUs, and no node is said to have any"
            raise InvalidDocumentsError([problem_of(record.origin, "no-gpus", message, _NODES_FIX)])


def _types_said(machines: Machines, source: ImportSource, origin: str) -> Mapping[str, str]:
    """Types by what Slurm calls them. One for all GPUs is that of the only type that nodes have; of several it can't be."""
    holding = [node for node in machines.nodes.values() if node.gpus]
    names = sorted({node.gpu_type for node in holding if node.gpu_type not in source.types})
    if not source.only_type or "" in names or names in ([], [source.only_type]):
        return source.types
    if len(names) > 1:
        message = (
            f"nodes have GPUs of the types {', '.join(names)}, and --gpu-type {source.only_type} names one for all"
        )
        fix = f"Say it of each that is called otherwise here: {' '.join(f'--gpu-type {name}=TYPE' for name in names)}."
        raise InvalidDocumentsError([problem_of(origin or "slurm.conf", "gpu-type", message, fix)])
    return {**source.types, names[0]: source.only_type}


def _with_types(machines: Machines, types: Mapping[str, str], source: ImportSource) -> list[SourceNode]:
    """Nodes with GPU types as they are called here; GPUs that no file gives a type have that of --gpu-type."""
    found = []
    for node in machines.nodes.values():
        kind = types.get(node.gpu_type, node.gpu_type) or source.only_type
        if node.gpus and not kind:
            message = f"node {node.name} has {count(node.gpus, 'GPU')} of no type"
            fix = "Say their type with --gpu-type TYPE, or write Type= into gres.conf."
            raise InvalidDocumentsError([problem_of(source.nodes_origin or "slurm.conf", "gpu-type", message, fix)])
        found.append(node._replace(gpu_type=kind if node.gpus else ""))
    return found


class _Reading:
    """The records by what they are about, and the draft that they become."""

    def __init__(self, drawing: Drawing, records: Sequence[SourceRecord], machines: Machines) -> None:
        self.drawing, self.account, self.draft = drawing, drawing.account, drawing.draft
        self.records, self.machines = records, machines
        self.settings = {record.name.lower(): record for record in records if record.kind == SETTING}

    def draw(self) -> None:
        name = self.value("clustername") or next((each.text("cluster") for each in self._associations()), "") or "slurm"
        root = self.draft.add(QueueDraft(self.drawing.queues.of("/", name), comments=[f"All of cluster {name}."]))
        classes = JobClasses(self.drawing, self.machines.partitions, self._of_kind(QOS), self._preemption())
        classes.draw(self._pools_of_partitions())
        associations = self._associations()
        if associations:
            by_shares = self._is_multifactor() and self.value("priorityweightfairshare").strip("0") != ""
            tree = AccountTree(self.drawing, associations, root, self.drawing.types.known, shares_count=by_shares)
            tree.draw(classes)
            self._note_scripts(associations[0])
        else:
            self._partition_queues(root, classes)
        self._access_of_partitions(with_accounts=bool(associations))
        self._per_user(root)
        self._settings(root)
        self._topology()
        draw_reservations(self.drawing, self._of_kind(RESERVATION), set(self.machines.nodes))
        for record in self._of_kind("Include"):
            self._include(record)
        for record in self.records:
            if record.kind in ("DownNodes", "FrontendName"):
                self.account.dropped(record, (), "how nodes stand is seen, not written")

    def value(self, name: str) -> str:
        """A setting as it is written; "" where it is left out."""
        record = self.settings.get(name)
        return record.text(name) if record else ""

    def _of_kind(self, kind: str) -> list[SourceRecord]:
        return [record for record in self.records if record.kind == kind]

    def _associations(self) -> list[SourceRecord]:
        """Those of the cluster that slurm.conf names, else of the first; the others are dropped."""
        found = self._of_kind(ASSOCIATION)
        clusters = list(dict.fromkeys(record.text("cluster") for record in found))
        wanted = self.value("clustername").lower()
        mine = wanted if wanted in clusters else next(iter(clusters), "")
        for record in found:
            if record.text("cluster") != mine:
                self.account.dropped(record, (), f"of another cluster: {mine or 'the one without a name'} is imported")
        return [record for record in found if record.text("cluster") == mine]

    def _preemption(self) -> Preemption:
        kind = (self.value("preempttype") or "preempt/none").removeprefix("preempt/")
        mode = self.value("preemptmode") or "OFF"
        kind = "none" if mode.upper() == "OFF" and kind != "qos" and not self._any_mode() else kind
        return Preemption(kind, mode, self._duration("preemptexempttime") or "0s")

    def _any_mode(self) -> bool:
        return any(each.fields.get("preemptmode", "OFF").upper() != "OFF" for each in self.machines.partitions)

    def _duration(self, name: str) -> str | None:
        record = self.settings.get(name)
        return None if record is None else parsed(record, (name,), duration, record.text(name))

    def _pools_of_partitions(self) -> dict[str, list[str]]:
        every = self.drawing.types.pools
        found = {}
        for partition in self.machines.partitions:
            inside = [pool.name for pool in every if any(node.name in partition.nodes for node in pool.nodes)]
            if inside and len(inside) < len(every):
                found[partition.name] = inside
        return found

    def _partition_queues(self, root: QueueDraft, classes: JobClasses) -> None:
        """Without accounts each partition is a queue, as jobs name it in --partition."""
        for partition in self.machines.partitions:
            name = self.drawing.queues.of(f"partition/{partition.name}", partition.name)
            queue = self.draft.add(QueueDraft(name, root.name))
            queue.comments.append(f"From {partition.record.label}, {partition.record.origin}.")
            names = classes.of_partition(partition)
            if len(names) < len(classes.all):
                queue.more["priorityClasses"] = names
            if groups := partition.listed("allowgroups"):
                queue.more["access"] = {"submitters": [f"group:{group}" for group in groups]}
            note = (
                "no accounts are among the files: each partition is a queue, and its nodes are shared by equal weights. \
Give sacctmgr's tables to share them by account"
            )
            self.account.unsaid("asked", partition.record, ("accounts",), "not given", f"Queue {name}", note)

    def _access_of_partitions(self, *, with_accounts: bool) -> None:
        for partition in self.machines.partitions:
            record = partition.record
            for key in ("allowaccounts", "denyaccounts"):
                if with_accounts:
                    self.account.carried(record, (key,), "priorityClasses of the accounts' queues")
                note = "accounts are not among the files: any user that may submit to the queue may use it"
                self.account.asked(record, (key,), "access.submitters", note)
            if with_accounts and partition.listed("allowgroups"):
                note = "any user of an account may use the classes of its queue"
                self.account.dropped(record, ("allowgroups",), note)
            self.account.carried(record, ("allowgroups",), "access.submitters")

    def _note_scripts(self, record: SourceRecord) -> None:
        note = "queues are accounts, and partitions are classes: scripts that say --partition need --queue and --class"
        self.account.unsaid("changed", record, ("account",), "scripts", "quorate submit --queue --class", note)

    def _per_user(self, root: QueueDraft) -> None:
        """A QOS' limit for one user holds in all queues: it is the cluster's where there is one QOS, and else has no equal."""
        found = self._of_kind(QOS)
        for record in found:
            key = "maxtrespu" if record.has("maxtrespu") else "maxtresperuser"
            if record.has(key) and len(found) == 1:
                self._limit_user(record, key, root)
            note = "a class has no limit for a user: write perUser at queues, or a queue that takes this class alone"
            self.account.dropped(record, (key,), note)

    def _limit_user(self, record: SourceRecord, key: str, root: QueueDraft) -> None:
        found, types = tres_of(record, key), self.drawing.types.known
        for kind, amount in found.gpus.items():
            for gpu_type in [self.drawing.types.named(kind)] if kind else types:
                root.quota_for(gpu_type).per_user = Fraction(amount)
        if found.gpus:
            note = "" if "" not in found.gpus or len(types) < 2 else "over all GPU types there; here for each by itself"
            self.account.note("changed" if note else "carried", record, (key,), f"Queue {root.name} perUser", note)

    # Settings.

    def _settings(self, root: QueueDraft) -> None:
        self.drawing.setting(None, reclaim="guaranteed")
        self._order(root)
        self._evictions()
        self._limits_enforced()
        said = {
            "clustername": "Queue of the cluster",
            "grestypes": "gpuType",
            "topologyplugin": "Topology",
            "topologyparam": "Topology",
        }
        for name, target in said.items():
            self._note("carried", name, target)
        self._note("carried", "accountingstoragetres", "", "GPUs are counted by type")
        for record in self._of_kind(SETTING):
            drop_setting(self.account, record)

    def _order(self, root: QueueDraft) -> None:
        multifactor = self._is_multifactor()
        if not multifactor:
            root.more["ordering"] = {"by": "fifo"}
        self._note("carried", "prioritytype", "ordering")
        half = self._duration("prioritydecayhalflife")
        never = "prioritydecayhalflife" in self.settings and half is None
        if multifactor and not never:
            self.drawing.setting(self.settings.get("prioritydecayhalflife"), usageHalfLife=half or _HALF_LIFE)
        if never:
            self._note(
                "dropped", "prioritydecayhalflife", "", "past use is always forgotten: only what is held now counts"
            )
        self._note("carried", "prioritydecayhalflife", "SchedulingPolicy usageHalfLife")
        fair = "queues, and users in each, share by weight and past use among jobs of one class: factors do not add up"
        self._note("changed", "priorityweightfairshare", "weight, users.fairShare, usageHalfLife", fair)
        for name in ("priorityweightqos", "priorityweightpartition"):
            self._note(
                "changed",
                name,
                "PriorityClass value",
                "a class comes before or after another whatever else counts: factors do not add up",
            )
        self._aging()

    def _is_multifactor(self) -> bool:
        return self.value("prioritytype").lower() != "priority/basic"

    def _aging(self) -> None:
        """Age counts up to PriorityMaxAge there; here in eight bands, which are spread over the same time."""
        weight = self.value("priorityweightage")
        if weight.isdecimal() and int(weight):
            record = self.settings.get("prioritymaxage")
            span = (
                parsed(record, ("prioritymaxage",), seconds, record.text("prioritymaxage")) if record else None
            ) or 7 * 24 * 3600
            rate = min(3600.0, round(_AGING_BANDS * 3600 / span, 3))
            for document in self.draft.documents:
                if document.kind == "PriorityClass":
                    document.spec["agingPerHour"] = rate
        note = "waiting moves a job up eight bands in that time, and never past another class"
        for name in ("priorityweightage", "prioritymaxage"):
            self._note("changed", name, "agingPerHour", note)

    def _evictions(self) -> None:
        how = self._preemption()
        if how.kind == "none":
            self.drawing.setting(self.settings.get("preempttype"), evictions={"perRound": 0, "movesPerRound": 0})
            if not self.settings:
                note = "slurm.conf is not among the files: no job is evicted for another, as without PreemptType"
                self.account.unsaid(
                    "asked", self.records[0], ("preempttype",), "not given", "evictions.perRound: 0", note
                )
            elif "preempttype" not in self.settings:
                first = next(iter(self.settings.values()))
                note = "no job is evicted for another: a guarantee is kept as jobs end"
                self.account.unsaid("carried", first, ("preempttype",), "preempt/none", "evictions.perRound: 0", note)
        else:
            note = "by partition or QOS there; here also work inside a queue's share takes back what others hold beyond theirs"
            self._note("changed", "preempttype", "preemptible, reclaim", note)
        if grace := self._longest_grace():
            self.drawing.setting(None, evictions={"grace": grace})
        self._note("carried", "preempttype", "evictions.perRound: 0")
        self._note("carried", "preemptexempttime", "protection.minRuntime")
        self._note("carried", "preemptparameters", "evictions", "which jobs leave is chosen by the least harm")
        if how.mode.upper() in ("REQUEUE", "OFF") or how.kind == "none":
            self._note("carried", "preemptmode", "evictions")
        note = "an evicted job has its grace, and waits to start again: none is suspended in place or ended for good"
        self._note("changed", "preemptmode", "evictions", note)

    def _longest_grace(self) -> str | None:
        spans = [each.number("gracetime", 0) for each in self.machines.partitions]
        for record in self._of_kind(QOS):
            written = record.text("gracetime")
            span = parsed(record, ("gracetime",), seconds, written) if written and not written.isdecimal() else written
            spans.append(int(span or 0))
        longest = max(spans, default=0)
        return str(Duration(longest * 1000)) if longest else None

    def _limits_enforced(self) -> None:
        record = self.settings.get("accountingstorageenforce")
        if record is None:
            return
        enforced = {"limits", "safe", "all"} & set(self.value("accountingstorageenforce").lower().split(","))
        note = "limits are not enforced there: here max and perUser are"
        self._note(
            "carried" if enforced else "changed",
            "accountingstorageenforce",
            "max, perUser, access",
            "" if enforced else note,
        )

    def _note(self, outcome: ImportOutcome, name: str, target: str, note: str = "") -> None:
        for record in self._of_kind(SETTING):
            if record.name.lower() == name:
                self.account.note(outcome, record, (name,), target, note)

    # Topology, and files that name others.

    def _topology(self) -> None:
        found = tree_of(self.account, self.records)
        if found is None:
            return
        tree, record = found
        missing = sorted(set(tree.places) - set(self.machines.nodes))
        if missing:
            shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
            note = f"nothing describes {len(missing)} of the nodes in it, which are left out: {shown}"
            self.account.unsaid("asked", record, ("nodes",), shown, "Topology", note)
        places = {name: tuple(at) for name, at in tree.places.items()}
        for pool in self.drawing.types.pools:
            comments = [f"From {record.label}, {record.origin}."]
            document = topology_document(pool, Tree(tree.levels, places), comments)
            self.draft.documents += [document] if document else []
        self._note_divided(tree, record)

    def _note_divided(self, tree: Tree, record: SourceRecord) -> None:
        """A domain lies in one pool: nodes of one switch that are in several partitions are not near each other here."""
        pools = defaultdict[str, set[str]](set)
        for pool in self.drawing.types.pools:
            for node in pool.nodes:
                pools[tree.places.get(node.name, ("",))[0]].add(pool.name)
        divided = sorted(name for name, inside in pools.items() if name and len(inside) > 1)
        if divided:
            shown = ", ".join(divided[:3]) + (", ..." if len(divided) > 3 else "")
            note = (
                "their nodes are in several pools, since they are in different partitions, or differ: a job that must be close \
is in one pool"
            )
            self.account.unsaid("changed", record, ("nodes",), shown, "Topology domains", note)

    def _include(self, record: SourceRecord) -> None:
        wanted = record.name.rsplit("/", 1)[-1]
        if any(each.file.rsplit("/", 1)[-1] == wanted for each in self.records):
            self.account.carried(record, ("include",), "", "the file is among those that were given")
        else:
            self.account.asked(record, ("include",), "", f"{wanted} is not among the files: give it too")
