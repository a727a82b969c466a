"""Kueue: ClusterQueues and Cohorts become one tree of queues, LocalQueues its access, flavors GPU types, Topologies domains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from reconciler.importers.account import ImportOutcome
from reconciler.importers.classes import class_documents
from reconciler.importers.draft import HOST_RESOURCES, QueueDraft, QuotaDraft, ranked_values
from reconciler.importers.gpu_types import GPU_RESOURCES, MIG_RESOURCES
from reconciler.importers.inventory import HOSTNAME, Tree, topology_document
from reconciler.importers.kueue_rules import CLUSTER_QUEUE, CONTROLLER, FLAVOR, LOCAL_QUEUE
from reconciler.importers.quantities import quantity
from reconciler.importers.source import SourceRecord, nested_records, yaml_records
from reconciler.importers.system import OBJECT_RULES, Drawing, ImportSource, drawing_of, foreign
from reconciler.model.problem import InvalidDocumentsError, Path, problem_of

_KINDS: Final = ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass", "Topology")
_CONTROLLER: Final = "controller configuration"
_CONTROLLER_KEY: Final = "controller_manager_config.yaml"
_CLIQUES: Final = ("clique", "nvlink")
"""What labels of NVLink domains have in their names."""
_NEVER: Final = "Never"
_ABOVE_ALL: Final = 1_000_001
"""No class has so large a value."""
_WITHIN: Final = {_NEVER: "never", "LowerOrNewerEqualPriority": "lower-or-newer"}
"""What a ClusterQueue says of preemption inside it, as a queue says it; LowerPriority is what holds where nothing is said."""


def kueue(source: ImportSource) -> Drawing:
    """The draft of Kueue's objects. Raises InvalidDocumentsError."""
    records = [record for file in source.files for record in yaml_records(file)]
    inner = list[SourceRecord]()
    for record in records:
        if record.kind == "ConfigMap" and record.text("data", _CONTROLLER_KEY):
            inner += nested_records(record, ("data", _CONTROLLER_KEY), _CONTROLLER)
    drawing = drawing_of([*records, *inner], source)
    _Reading(drawing, [*records, *inner]).draw()
    return drawing


class _Reading:
    """The objects by kind, and the draft that they become."""

    def __init__(self, drawing: Drawing, records: Sequence[SourceRecord]) -> None:
        self.drawing, self.account, self.draft = drawing, drawing.account, drawing.draft
        self.records = records
        self.of_kind = defaultdict[str, list[SourceRecord]](list)
        for record in records:
            self.of_kind[_CONTROLLER if record.kind == "Configuration" else record.kind].append(record)
        self.flavors = {flavor.name: flavor for flavor in self.of_kind["ResourceFlavor"]}
        self.type_of = dict[str, str]()

    def draw(self) -> None:
        for record in self.of_kind["ClusterQueue"]:
            self._cluster_queue(record)
        for record in self.of_kind["Cohort"]:
            self._cohort(record)
        self._closed_types()
        self._shared()
        for record in self.of_kind["LocalQueue"]:
            self._local_queue(record)
        self._classes()
        self._topologies()
        self._controller()
        for record in self.records:
            self._rest(record)

    # Queues.

    def _cluster_queue(self, record: SourceRecord) -> None:
        queue = QueueDraft(self.drawing.queues.of(f"ClusterQueue/{record.name}", record.name))
        queue.comments.append(f"From {record.label}, {record.origin}.")
        field = "cohortName" if record.has("spec", "cohortName") else "cohort"
        if cohort := record.text("spec", field):
            queue.parent = self._queue_of_cohort(cohort, record)
            self.account.carried(record, ("spec", field), f"Queue {queue.name} parent {queue.parent}")
        pools = self._quota(record, queue, alone=not cohort)
        self._weight(record, queue)
        self._order(record, queue)
        self._reclaim(record, alone=not cohort)
        self._preemption(record, queue)
        self._namespaces(record)
        if stop := record.text("spec", "stopPolicy"):
            queue.more["stopPolicy"] = stop
            self.account.carried(record, ("spec", "stopPolicy"), "spec.stopPolicy")
        if pools is not None and pools < {pool.name for pool in self.drawing.types.pools}:
            queue.more["pools"] = sorted(pools)
        self.draft.add(queue)

    def _cohort(self, record: SourceRecord) -> None:
        queue = self.draft.queues[self._queue_of_cohort(record.name, record)]
        queue.comments[:] = [f"From {record.label}, {record.origin}."]
        field = "parentName" if record.has("spec", "parentName") else "parent"
        if parent := record.text("spec", field):
            queue.parent = self._queue_of_cohort(parent, record)
            self.account.carried(record, ("spec", field), f"Queue {queue.name} parent {queue.parent}")
        self._quota(record, queue, alone=False, extra=True)
        self._weight(record, queue)

    def _queue_of_cohort(self, name: str, record: SourceRecord) -> str:
        """The queue that a cohort is. One that no document describes is made by its name alone."""
        found = self.drawing.queues.of(f"Cohort/{name}", name)
        if found not in self.draft.queues:
            comment = f"From cohort {name}, which {record.label} names ({record.origin})."
            self.draft.add(QueueDraft(found, comments=[comment]))
        return found

    def _quota(self, record: SourceRecord, queue: QueueDraft, *, alone: bool, extra: bool = False) -> set[str] | None:
        """The quota of all flavors, and the pools that these mean, None where that is not known.

        `alone`: nothing can be borrowed. `extra`: quotas of a cohort come on top of those below it.
        """
        pools = set[str]()
        known = True
        for at, flavor, resource in self._resources(record):
            matched = self._pools(flavor)
            known, pools = known and matched is not None, pools | (matched or set())
            entry = _entry(record, at, alone=alone)
            target = self._resource(record, at, flavor, resource)
            if target is None:
                continue
            if extra:
                entry.extra, entry.guaranteed = entry.guaranteed, None
                if record.has(*at, "borrowingLimit"):
                    entry.borrowing, entry.max = quantity(record, (*at, "borrowingLimit")), None
            if target in queue.quota:
                queue.quota[target].add(entry)
                queue.comments.append(f"{target}: the sum of several flavors, {flavor} among them.")
            else:
                queue.quota[target] = entry
            self._note_quota(record, at, target, alone=alone, extra=extra)
        return pools if known and pools else None

    def _resources(self, record: SourceRecord) -> Iterator[tuple[Path, str, str]]:
        """Path, flavor and name of each resource with a quota."""
        for group, _ in enumerate(record.items("spec", "resourceGroups")):
            flavors: Path = ("spec", "resourceGroups", group, "flavors")
            for index, _ in enumerate(record.items(*flavors)):
                flavor = record.text(*flavors, index, "name")
                self.account.carried(record, (*flavors, index, "name"), self._flavor_target(flavor))
                for number, _ in enumerate(record.items(*flavors, index, "resources")):
                    at: Path = (*flavors, index, "resources", number)
                    yield at, flavor, record.text(*at, "name")

    def _resource(self, record: SourceRecord, at: Path, flavor: str, resource: str) -> str | None:
        """What a queue's entry is about; None for a resource that has no equal, which is noted."""
        if resource in GPU_RESOURCES:
            return self._gpu_type(flavor, record, at)
        if resource in HOST_RESOURCES:
            return resource
        if resource.startswith(MIG_RESOURCES):
            note = "MIG instances count as parts of a GPU: add the part to the GPU type's quota by hand"
            self.account.asked(record, at, "spec.quota", note)
        else:
            self.account.dropped(record, at, f"no queue has a quota of {resource}: nodes alone limit it")
        return None

    def _note_quota(self, record: SourceRecord, at: Path, target: str, *, alone: bool, extra: bool) -> None:
        nominal, host = (*at, "nominalQuota"), target in HOST_RESOURCES
        said = f"hostQuota of {target}" if host else f"quota of {target}"
        outcome: ImportOutcome = "changed" if host else "carried"
        of_host = "it is guaranteed to jobs without GPUs; GPUs bring the CPU and memory beside them" if host else ""
        self.account.carried(record, (*at, "name"), said)
        if extra:
            note = "a cohort's own quota comes on top: guaranteed is the sum of those below it and this"
            self.account.changed(record, nominal, f"{said}: guaranteed", note)
        else:
            self.account.note(outcome, record, nominal, f"{said}: guaranteed" + (", max" if alone else ""), of_host)
        self.account.carried(record, (*at, "borrowingLimit"), f"{said}: max", "guaranteed and this together")
        of_lent = "it is kept from jobs without GPUs of other queues" if host else ""
        self.account.note("carried", record, (*at, "lendingLimit"), f"{said}: lendable", of_lent)

    def _closed_types(self) -> None:
        """A GPU type that a ClusterQueue does not list can't be used from it: absent would be a share of it."""
        types = sorted({*self.draft.gpu_types(), *self.drawing.types.known})
        for record in self.of_kind["ClusterQueue"]:
            queue = self.draft.queues[self.drawing.queues.of(f"ClusterQueue/{record.name}", record.name)]
            missing = [gpu_type for gpu_type in types if gpu_type not in queue.quota]
            for gpu_type in missing:
                queue.quota[gpu_type] = QuotaDraft(guaranteed=Fraction(0), max=Fraction(0))
            if missing:
                queue.comments.append(f"No flavor of {', '.join(missing)}: none of it may be used.")
        # From the lowest up: each has what those below it have.
        for queue in sorted(self.draft.queues.values(), key=lambda each: -len(list(self._above(each)))):
            for child_type in sorted({each for child in self.draft.children(queue.name) for each in child.quota}):
                if child_type not in queue.quota:
                    queue.quota[child_type] = QuotaDraft(extra=Fraction(0))

    def _shared(self) -> None:
        """Let the queues of a cohort have its quota in common, as there: in the highest cohort that has others beside it."""
        cohorts = {queue.name for queue in self.draft.queues.values() if self.draft.children(queue.name)}
        for name in sorted(cohorts):
            queue, below = self.draft.queues[name], self.draft.children(name)
            is_top = queue.parent is None
            if (is_top and cohorts.isdisjoint(child.name for child in below)) or (
                not is_top and self.draft.queues[str(queue.parent)].parent is None
            ):
                for entry in queue.quota.values():
                    entry.shared = True
                queue.comments.append("The queues below it have its quota in common, as in a cohort: shared.")

        for record in self.of_kind["Cohort"]:
            self._nested(record)

    def _nested(self, record: SourceRecord) -> None:
        """There all cohorts of a tree have their quota in common, each level of its own; here one on each path has."""
        queue = self.draft.queues[self.drawing.queues.of(f"Cohort/{record.name}", record.name)]
        is_common = any(entry.shared for entry in queue.quota.values())
        if is_common or not self.draft.children(queue.name):
            return
        above = next((each for each in self._above(queue) if any(entry.shared for entry in each.quota.values())), None)
        if above is not None:
            note = f"its quota is in common in queue {above.name} above it: those below it have no right to it before others"
        else:
            note = "cohorts below it have their quota in common, each its own: between them guarantees alone are taken back"
        self.account.unsaid("changed", record, ("spec", "parentName"), "a cohort in a tree", "shared", note)

    def _above(self, queue: QueueDraft) -> Iterator[QueueDraft]:
        """The queues above one, the nearest first; in a circle, which is told where the policy is read, each at most once."""
        for _ in self.draft.queues:
            if queue.parent is None or queue.parent not in self.draft.queues:
                return
            queue = self.draft.queues[queue.parent]
            yield queue

    # What else a ClusterQueue says.

    def _weight(self, record: SourceRecord, queue: QueueDraft) -> None:
        at: Path = ("spec", "fairSharing", "weight")
        if not record.has(*at):
            return
        weight = quantity(record, at)
        if weight > 0:
            queue.weight = weight
            self.account.carried(record, at, "spec.weight", "whole numbers in the same proportion among siblings")
        else:
            self.account.dropped(record, at, "a queue of weight 0 borrows last of all there; here it has the weight 1")

    def _order(self, record: SourceRecord, queue: QueueDraft) -> None:
        at: Path = ("spec", "queueingStrategy")
        if record.text(*at) == "StrictFIFO":
            queue.more["ordering"] = {"by": "priority", "strict": True}
        self.account.carried(record, at, "spec.ordering", "by priority, then by time")
        scope: Path = ("spec", "admissionScope", "admissionMode")
        if record.text(*scope) == "UsageBasedAdmissionFairSharing":
            note = "its LocalQueues become queues below it, which share by weight; past use counts with usageHalfLife"
            self.account.changed(record, scope, "queues below", note)
        else:
            self.account.carried(record, scope, "spec.ordering", "jobs are served by the queue's order")

    def _reclaim(self, record: SourceRecord, *, alone: bool) -> None:
        reclaim: Path = ("spec", "preemption", "reclaimWithinCohort")
        policy = record.text(*reclaim) or _NEVER
        if alone:
            self.account.carried(record, reclaim, "", "without a cohort nothing is borrowed")
        elif policy == "Any":
            self.account.carried(record, reclaim, "guaranteed", "a guarantee takes back what others borrowed")
        else:
            note = "a guarantee always takes back what others borrowed, whatever the priorities: " + (
                "owners now get theirs back" if policy == _NEVER else "borrowed work of higher priority yields too"
            )
            self._say(record, reclaim, "changed", "guaranteed", note)

    def _preemption(self, record: SourceRecord, queue: QueueDraft) -> None:
        borrow: Path = ("spec", "preemption", "borrowWithinCohort")
        if record.text(*borrow, "policy") in ("", _NEVER):
            self.account.carried(record, borrow, "", "no job evicts others for what it would borrow")
        else:
            queue.more["reclaimBelow"] = self._value_above(record.get(*borrow, "maxPriorityThreshold"))
            note = "a queue that takes back for fair shares itself keeps its fair share"
            self.account.carried(record, borrow, f"spec.reclaimBelow: {queue.more['reclaimBelow']}", note)
        within: Path = ("spec", "preemption", "withinClusterQueue")
        mode = _WITHIN.get(record.text(*within) or _NEVER)
        if mode is None:
            self.account.carried(record, within, "PriorityClass value")
        else:
            queue.more["preemptWithin"] = mode
            self._say(record, within, "carried", f"spec.preemptWithin: {mode}", "")

    def _value_above(self, threshold: object) -> int:
        """The value below which a threshold of priority is: there work of the threshold itself leaves as well, without one all."""
        if not isinstance(threshold, int):
            return _ABOVE_ALL
        classes = [*self.of_kind["WorkloadPriorityClass"], *self.of_kind["PriorityClass"]]
        values = [value for record in classes if isinstance(value := record.get("value"), int)]
        ranks = ranked_values(values)
        if all(value == rank for value, rank in ranks.items()):
            return max(-_ABOVE_ALL + 1, min(threshold + 1, _ABOVE_ALL))
        return max((rank for value, rank in ranks.items() if value <= threshold), default=0) + 1

    def _say(self, record: SourceRecord, at: Path, outcome: ImportOutcome, target: str, note: str) -> None:
        """Of a field that is there, or of its default."""
        if record.has(*at):
            self.account.note(outcome, record, at, target, note)
        else:
            self.account.unsaid(outcome, record, at, _NEVER, target, note)

    def _namespaces(self, record: SourceRecord) -> None:
        at: Path = ("spec", "namespaceSelector")
        if not record.has(*at) or record.get(*at) is None:
            note = "without a selector no namespace may use it there; here those with a LocalQueue may"
            self.account.unsaid("changed", record, at, "none", "access.namespaces", note)
            self.account.changed(record, at, "access.namespaces", note)
        elif record.get(*at) == {}:
            self.account.carried(record, at, "access.namespaces", "those with a LocalQueue may use it")
        else:
            note = "those with a LocalQueue may use it, whatever their labels: access.namespaces has a selector too"
            self.account.changed(record, at, "access.namespaces", note)

    # LocalQueues.

    def _local_queue(self, record: SourceRecord) -> None:
        wanted = record.text("spec", "clusterQueue")
        above = self.drawing.queues.known(f"ClusterQueue/{wanted}")
        namespace = record.text("metadata", "namespace") or "default"
        if above is None:
            note = f"there is no ClusterQueue {wanted} in these files: give its file too"
            self.account.asked(record, ("spec", "clusterQueue"), "access.namespaces", note)
            return
        # A namespace without a LocalQueue can use no ClusterQueue.
        self.drawing.setting(None, unlistedNamespaces="refused")
        queue = self.draft.queues[above]
        if self._shares_by_use(record, wanted):
            queue = self._child(record, above, namespace)
        entry = next((each for each in _access(queue) if each["name"] == namespace), None)
        if entry is None:
            entry = {"name": namespace}
            _access(queue).append(entry)
            queue.comments.append(f"Namespace {namespace}: {record.label}, {record.origin}.")
        self.account.carried(record, ("spec", "clusterQueue"), f"Queue {queue.name} access.namespaces")
        self.account.carried(record, ("metadata", "namespace"), f"Queue {queue.name} access.namespaces")
        if record.name == "default":
            entry["default"] = True
        if record.name != queue.name:
            self._call(record, queue, entry)

    def _call(self, record: SourceRecord, queue: QueueDraft, entry: dict[str, Any]) -> None:
        """Let the namespace's pods go on calling the queue by its LocalQueue's name."""
        if record.name in self.draft.queues:
            note = f"{record.name} is also the name of another Queue: pods must name {queue.name} in the label"
            self.account.asked(record, ("metadata", "name"), f"Queue {queue.name}", note)
        else:
            entry.setdefault("localQueues", []).append(record.name)
            target = f"Queue {queue.name} access.namespaces localQueues"
            self.account.carried(record, ("metadata", "name"), target)

    def _shares_by_use(self, record: SourceRecord, wanted: str) -> bool:
        above = next(each for each in self.of_kind["ClusterQueue"] if each.name == wanted)
        return record.has("spec", "fairSharing") or above.has("spec", "admissionScope")

    def _child(self, record: SourceRecord, above: str, namespace: str) -> QueueDraft:
        name = self.drawing.queues.of(f"LocalQueue/{namespace}/{record.name}", f"{above}-{namespace}-{record.name}")
        queue = self.draft.add(QueueDraft(name, above, comments=[f"From {record.label}, {record.origin}."]))
        self._weight(record, queue)
        return queue

    # Everything beside queues.

    def _gpu_type(self, flavor: str, record: SourceRecord, at: Path) -> str:
        if flavor not in self.type_of:
            found = self._type_of_flavor(flavor)
            if not found:
                message = f"of which GPU type flavor {flavor} is can't be told from its labels"
                fix = f"Give the nodes with --nodes FILE (kubectl get nodes -o json), or say --gpu-type {flavor}=TYPE."
                place = f"{record.file}:{record.line_of(at)}"
                raise InvalidDocumentsError([problem_of(place, "gpu-type", message, fix)])
            self.type_of[flavor] = found
        return self.type_of[flavor]

    def _type_of_flavor(self, flavor: str) -> str:
        types = self.drawing.types
        if flavor in types.said:
            return types.said[flavor]
        labels = self._labels(flavor)
        found = types.of_labels(labels)
        return found or types.only or (types.known[0] if len(types.known) == 1 else "")

    def _labels(self, flavor: str) -> dict[str, str]:
        record = self.flavors.get(flavor)
        return (
            {} if record is None else {key: str(value) for key, value in record.mapping("spec", "nodeLabels").items()}
        )

    def _pools(self, flavor: str) -> set[str] | None:
        """The pools that a flavor means; None where that is not known, because no nodes are, or none have its labels."""
        if not self.drawing.types.pools:
            return None
        return self.drawing.types.pools_matching(self._labels(flavor)) or None

    def _flavor_target(self, flavor: str) -> str:
        pools = self._pools(flavor)
        return f"NodePool {', '.join(sorted(pools))}" if pools else "spec.quota"

    def _flavor(self, record: SourceRecord) -> None:
        at: Path = ("spec", "nodeLabels")
        pools = self._pools(record.name)
        if pools:
            self.account.carried(record, at, f"NodePool {', '.join(sorted(pools))}", "the nodes that have these labels")
        elif self.drawing.types.pools:
            self.account.asked(record, at, "NodePool", "no node that is known has these labels")
        else:
            kind = self.type_of.get(record.name)
            note = "the nodes are not known: give them with --nodes, so that NodePools are declared"
            self.account.asked(record, at, f"gpuType {kind}" if kind else "NodePool", note)
        self.account.carried(record, ("spec", "topologyName"), "Topology of the pool")
        self.account.settle(record, FLAVOR)

    def _classes(self) -> None:
        classes = [*self.of_kind["WorkloadPriorityClass"], *self.of_kind["PriorityClass"]]
        fields: dict[str, Any] = {}
        if any(
            record.has("spec", "cohort") or record.has("spec", "cohortName") for record in self.of_kind["ClusterQueue"]
        ):
            fields["scope"] = "cluster"
        class_documents(self.drawing, classes, lambda _: fields)

    def _topologies(self) -> None:
        for record in self.of_kind["Topology"]:
            labels = [
                record.text("spec", "levels", index, "nodeLabel")
                for index, _ in enumerate(record.items("spec", "levels"))
            ]
            levels = _levels(labels)
            for index, label in enumerate(labels):
                at: Path = ("spec", "levels", index)
                if label in levels:
                    self.account.carried(record, at, f"Topology level {levels[label]}")
                elif label == HOSTNAME:
                    self.account.carried(record, at, "node")
                else:
                    self.account.dropped(
                        record, at, "three levels fit (island, rack, block): this is one too many, too wide"
                    )
            self._topology_of_pools(record, levels)

    def _topology_of_pools(self, record: SourceRecord, levels: dict[str, str]) -> None:
        using = [flavor for flavor in self.flavors.values() if flavor.text("spec", "topologyName") == record.name]
        pools = {name for flavor in using for name in self._pools(flavor.name) or ()}
        if not pools:
            note = "no nodes are known that a flavor puts into it: give them with --nodes"
            self.account.unsaid("asked", record, ("spec", "levels"), "nodes", "Topology", note)
        for pool in self.drawing.types.pools:
            if pool.name in pools:
                places = {node.name: tuple(node.labels.get(label, "") for label in levels) for node in pool.nodes}
                comments = [f"From {record.label}, {record.origin}, by the labels of the nodes."]
                document = topology_document(pool, Tree(tuple(levels.values()), places), comments)
                self.draft.documents += [document] if document else []

    def _controller(self) -> None:
        found = self.of_kind[_CONTROLLER]
        for record in found:
            sharing = record.has("fairSharing") and record.get("fairSharing", "enable") is not False
            self.drawing.setting(record, reclaim="fair-share" if sharing else "guaranteed")
            if half := record.text("admissionFairSharing", "usageHalfLifeTime"):
                self.drawing.setting(record, usageHalfLife=half)
            if record.get("waitForPodsReady", "enable") is not False and (
                wait := record.text("waitForPodsReady", "timeout")
            ):
                self.drawing.setting(record, startDeadline=wait)
            self.account.settle(record, CONTROLLER)
        if not found and self.of_kind["ClusterQueue"]:
            first = self.of_kind["ClusterQueue"][0]
            self.drawing.setting(None, reclaim="guaranteed")
            note = (
                "Kueue's own configuration (ConfigMap kueue-manager-config) is not among the files: fair sharing is taken to \
be off; write reclaim: fair-share if it is on"
            )
            self.account.unsaid("asked", first, ("fairSharing",), "not given", "SchedulingPolicy reclaim", note)

    def _rest(self, record: SourceRecord) -> None:
        """What is left of a record, once its own fields are noted."""
        if record.kind == "ConfigMap" and record.text("data", _CONTROLLER_KEY):
            self.account.carried(record, ("data", _CONTROLLER_KEY), _CONTROLLER, "read as the fields below")
        elif record.kind == "ResourceFlavor":
            self._flavor(record)
        elif record.kind in ("ClusterQueue", "Cohort"):
            self.account.settle(record, CLUSTER_QUEUE)
        elif record.kind == "LocalQueue":
            self.account.settle(record, LOCAL_QUEUE)
        elif record.kind not in (*_KINDS, "PriorityClass", _CONTROLLER, "Configuration"):
            foreign(self.account, record, "Kueue")
        if record.kind == "Cohort" and record.get("spec") == {}:
            self.account.carried(record, ("spec",), "Queue")
        self.account.settle(record, OBJECT_RULES)


def _entry(record: SourceRecord, at: Path, *, alone: bool) -> QuotaDraft:
    entry = QuotaDraft(guaranteed=quantity(record, (*at, "nominalQuota")))
    if record.has(*at, "borrowingLimit") and record.get(*at, "borrowingLimit") is not None:
        entry.max = (entry.guaranteed or Fraction(0)) + quantity(record, (*at, "borrowingLimit"))
    elif alone:
        entry.max = entry.guaranteed
    if record.has(*at, "lendingLimit") and record.get(*at, "lendingLimit") is not None:
        entry.lendable = quantity(record, (*at, "lendingLimit"))
    return entry


def _access(queue: QueueDraft) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = queue.more.setdefault("access", {}).setdefault("namespaces", [])
    return found


def _levels(labels: Sequence[str]) -> dict[str, str]:
    """The level that each label stands for, the closest first. Labels come the widest first; an island is where NVLink reaches."""
    inside = [label for label in reversed(labels) if label != HOSTNAME]
    cliques = [label for label in inside if any(word in label.lower() for word in _CLIQUES)][:1]
    plain = [label for label in inside if label not in cliques][:2]
    return {**dict.fromkeys(cliques, "island"), **dict(zip(plain, ("rack", "block"), strict=False))}
