"""A settled draft as files: one Queue each, other documents by kind, with the comments that say where they come from."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from textwrap import wrap
from typing import Any, Final

import yaml

from reconciler.importers.draft import HOST_RESOURCES, DocumentDraft, PolicyDraft, QueueDraft, QuotaDraft
from solver.model.document import API_VERSION

_COLUMNS: Final = 120


def files_of(draft: PolicyDraft) -> dict[str, str]:
    """The text of each file by its path from the repository's top."""
    found = {f"policies/queues/{queue.name}.yaml": _queue_text(queue) for queue in draft.queues.values()}
    together = defaultdict[str, list[str]](list)
    for document in draft.documents:
        together[document.path].append(_document_text(document))
    return {**found, **{path: "---\n".join(parts) for path, parts in together.items()}}


def _queue_text(queue: QueueDraft) -> str:
    spec: dict[str, Any] = {}
    if queue.parent is not None:
        spec["parent"] = queue.parent
    types = sorted(set(queue.quota) - set(HOST_RESOURCES))
    if types:
        spec["quota"] = [{"gpuType": gpu_type, **_gpu_entry(queue.quota[gpu_type])} for gpu_type in types]
    host = [
        {"resource": name, **entry} for name in HOST_RESOURCES if (entry := _host_entry(name, queue.quota.get(name)))
    ]
    if host:
        spec["hostQuota"] = host
    if queue.weight is not None:
        spec["weight"] = int(queue.weight)
    return _text("Queue", queue.name, {**spec, **queue.more}, queue.comments)


def _document_text(document: DocumentDraft) -> str:
    return _text(document.kind, document.name, document.spec, document.comments)


def _text(kind: str, name: str, spec: dict[str, Any], comments: list[str]) -> str:
    lines = [f"# {line}" for comment in comments for line in wrap(comment, _COLUMNS - 2) or [""]]
    head = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    body = yaml.safe_dump(head, sort_keys=False, default_flow_style=None, width=_COLUMNS, allow_unicode=True)
    return "".join(f"{line}\n" for line in lines) + body


def _gpu_entry(entry: QuotaDraft) -> dict[str, int | float]:
    fields = {
        "guaranteed": entry.guaranteed,
        "lendable": entry.lendable,
        "max": entry.max,
        "perUser": entry.per_user,
    }
    said: dict[str, int | float] = {name: _number(value) for name, value in fields.items() if value is not None}
    return {**said, "shared": True} if entry.shared else said


def _host_entry(resource: str, entry: QuotaDraft | None) -> dict[str, int | str | bool]:
    if entry is None:
        return {}
    written = {
        "guaranteed": entry.guaranteed,
        "lendable": entry.lendable,
        "max": entry.max,
        "perUser": entry.per_user,
    }
    text = memory_text if resource == "memory" else cpu_text
    said: dict[str, int | str | bool] = {name: text(value) for name, value in written.items() if value is not None}
    return {**said, "shared": True} if entry.shared else said


def cpu_text(cores: Fraction) -> int | str:
    """Cores as documents write them."""
    return int(cores) if cores.denominator == 1 else f"{int(cores * 1000)}m"


def memory_text(size: Fraction) -> int | str:
    """Bytes as documents write them: in the largest binary unit that divides them."""
    whole = int(size)
    for unit, power in (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if whole and whole % (1 << power) == 0:
            return f"{whole >> power}{unit}"
    return whole


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
