"""PriorityClasses of Kubernetes and WorkloadPriorityClasses of Kueue as PriorityClass documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from reconciler.importers.draft import DocumentDraft, ranked_values
from reconciler.importers.source import SourceRecord
from reconciler.importers.system import CLASSES, Drawing

_SYSTEM: Final = "system-"


def class_documents(
    drawing: Drawing, classes: Sequence[SourceRecord], fields: Callable[[SourceRecord], dict[str, Any]]
) -> None:
    """Draw a document for each class. `fields`: what its spec has beside the value. Two of one name are one class."""
    for record in (each for each in classes if each.name.startswith(_SYSTEM)):
        drawing.account.dropped(record, (), "a class of Kubernetes' own pods: Quorate does not schedule them")
    classes = [each for each in classes if not each.name.startswith(_SYSTEM)]
    values = {record: _value(record) for record in classes}
    ranks = ranked_values(values.values())
    for record in classes:
        known = drawing.classes.known(record.name)
        name = drawing.classes.of(record.name)
        value = ranks[values[record]]
        if known is None:
            comments = [f"From {record.label}, {record.origin}."]
            spec = {"value": value, **fields(record)}
            drawing.draft.documents.append(DocumentDraft("PriorityClass", name, CLASSES, spec, comments))
        if value == values[record]:
            drawing.account.carried(record, ("value",), f"PriorityClass {name} value")
        else:
            note = "values are from -1,000,000 to 1,000,000: the order is kept, by rank"
            drawing.account.changed(record, ("value",), f"PriorityClass {name} value {value}", note)
        if record.get("globalDefault") is True:
            drawing.setting(record, defaultPriorityClass=name)
        drawing.account.carried(record, ("globalDefault",), "SchedulingPolicy defaultPriorityClass")
        drawing.account.carried(record, ("description",), "", "for people: it is not written")
        preemption = "it orders as any other; what may evict is for values and guarantees to say"
        drawing.account.dropped(record, ("preemptionPolicy",), preemption)
        drawing.account.carried(record, ("metadata", "name"), f"PriorityClass {name}")


def _value(record: SourceRecord) -> int:
    value = record.get("value")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
