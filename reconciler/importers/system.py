"""What the module of a system is handed, and what it hands back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from reconciler.importers.account import ImportAccount, Rules
from reconciler.importers.draft import HOST_RESOURCES, DocumentDraft, PolicyDraft, QuotaDraft
from reconciler.importers.gpu_types import GpuTypes
from reconciler.importers.inventory import SourceNode, pool_documents, pools_of
from reconciler.importers.slugs import Slugs
from reconciler.importers.source import SourceFile, SourceRecord
from solver.plan.words import with_article

CLASSES: Final = "policies/priorities.yaml"
SETTINGS: Final = "policies/scheduling.yaml"
RESERVATIONS: Final = "policies/reservations.yaml"


@dataclass(frozen=True)
class ImportSource:
    """The files of a system, and what else is known: nodes, read from `nodes_origin`, and GPU types by their names there."""

    files: Sequence[SourceFile]
    nodes: Sequence[SourceNode] = ()
    nodes_origin: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    only_type: str = ""


@dataclass
class Drawing:
    """A draft under way: with its account, and with the names that were given."""

    account: ImportAccount
    draft: PolicyDraft
    types: GpuTypes
    queues: Slugs
    classes: Slugs
    pools: Slugs

    def setting(self, record: SourceRecord | None, **fields: object) -> None:
        """Fields of the only SchedulingPolicy; `record` is what they come from."""
        found = next((each for each in self.draft.documents if each.kind == "SchedulingPolicy"), None)
        if found is None:
            found = DocumentDraft("SchedulingPolicy", "default", SETTINGS, {})
            self.draft.documents.append(found)
        for name, value in fields.items():
            first = name not in found.spec
            if isinstance(value, dict) and isinstance(found.spec.get(name), dict):
                found.spec[name] |= value
            elif first:
                found.spec[name] = value
        if record is not None and (said := f"From {record.label}, {record.origin}.") not in found.comments:
            found.comments.append(said)


def drawing_of(records: Sequence[SourceRecord], source: ImportSource) -> Drawing:
    """A new draft with the pools of the nodes that are known; which types they are is `types`."""
    names = Slugs("NodePool")
    pools = pools_of(source.nodes, names)
    draft = PolicyDraft(documents=list(pool_documents(pools, source.nodes_origin)))
    types = GpuTypes(source.types, source.only_type, pools)
    return Drawing(ImportAccount(records), draft, types, Slugs("Queue"), Slugs("PriorityClass"), names)


def close_types(drawing: Drawing) -> None:
    """For a source that counts GPUs of all types together: a queue with a quota of the one type has none of the others.

    Left out, they would be a share without a ceiling beside it.
    """
    for queue in drawing.draft.queues.values():
        others = sorted(set(drawing.types.known) - set(queue.quota))
        if others and set(queue.quota) - set(HOST_RESOURCES):
            for gpu_type in others:
                queue.quota[gpu_type] = QuotaDraft(guaranteed=Fraction(0), max=Fraction(0))
            said = ", ".join(others)
            queue.comments.append(
                f"GPUs have no types there: all of the quota is of one, and none of {said}. Divide it by hand."
            )


OBJECT_RULES: Final[Rules] = (
    (("apiVersion",), "carried", "apiVersion", ""),
    (("kind",), "carried", "kind", ""),
    (("metadata", "name"), "carried", "metadata.name", ""),
    (("metadata", "namespace"), "dropped", "", "documents have no namespace"),
    (("metadata", "labels"), "dropped", "", "labels of the object itself: nothing here reads them"),
    (("metadata", "annotations"), "dropped", "", "annotations of the object itself: nothing here reads them"),
    (("metadata",), "dropped", "", "written by the API server: no setting"),
    (("status",), "dropped", "", "written by the controller: no setting"),
)
"""What becomes of the fields that every object of Kubernetes has; those that a system noted before stay as noted."""


def foreign(account: ImportAccount, record: SourceRecord, system: str) -> None:
    """Note an object that is no part of a system's policy."""
    account.dropped(
        record, (), f"{with_article(record.kind)} is no policy of {system}: apply it, or leave it, as it is"
    )
