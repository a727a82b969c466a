"""Imports of texts, and what tests ask of the documents that come of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from textwrap import dedent
from typing import Any

import yaml

from reconciler.documents.files import Files
from reconciler.documents.repository import read_repository
from reconciler.importers.account import ImportEntry
from reconciler.importers.conversion import Imported, convert
from reconciler.importers.inventory import nodes_of
from reconciler.importers.source import SourceFile
from reconciler.importers.system import ImportSource
from reconciler.model.problem import Problem


def imported(system: str, files: Mapping[str, str], nodes: object = None, **types: str) -> Imported:
    """An import that is valid, whatever it leaves out. `nodes`: what kubectl or scontrol prints as JSON."""
    sources = [SourceFile(name, dedent(text).encode()) for name, text in files.items()]
    known = nodes_of(SourceFile("nodes.json", json.dumps(nodes).encode())) if nodes else ()
    only = types.pop("only", "")
    found = convert(system, ImportSource(sources, known, "nodes.json" if nodes else "", types, only))
    assert [str(problem) for problem in errors_of(found)] == []
    return found


def errors_of(found: Imported) -> list[Problem]:
    reading = read_repository(Files({path: text.encode() for path, text in found.files.items()}))
    return [problem for problem in reading.problems if problem.severity == "error"]


def documents(found: Imported, kind: str) -> dict[str, dict[str, Any]]:
    """The specs of all documents of a kind, by name."""
    every = [each for text in found.files.values() for each in yaml.safe_load_all(text)]
    return {each["metadata"]["name"]: each["spec"] for each in every if each["kind"] == kind}


def quota(found: Imported, queue: str) -> dict[str, dict[str, Any]]:
    """The entries of a queue by GPU type or resource."""
    spec = documents(found, "Queue")[queue]
    rows = [*spec.get("quota", []), *spec.get("hostQuota", [])]
    return {row.pop("gpuType", None) or row.pop("resource"): row for row in rows}


def entry(found: Imported, field: str, record: str = "") -> ImportEntry:
    """The only entry of a field, of a record where several have it."""
    (one,) = (each for each in found.report.entries if each.field == field and record in each.record)
    return one


def outcomes(found: Imported) -> dict[str, int]:
    return {outcome: number for outcome, number in found.report.tally().items() if number}


def unknown(found: Imported) -> list[str]:
    """Fields that the importer does not know: none may be left of a real configuration."""
    return [f"{each.file}:{each.line}: {each.field}" for each in found.report.entries if each.outcome == "unknown"]


def kube_node(name: str, gpus: int = 0, **labels: str) -> dict[str, Any]:
    """A Node with H100s, 96 cores and 1 TiB. Underscores in label names stand for slashes, as keywords have none."""
    said = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
    product = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"} if gpus else {}
    amounts = {"cpu": "96", "memory": "1Ti", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **product, **said}},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }
