"""The JSON Schemas of the document kinds: loaded once, compiled once, and followed through their references.

Where they and the other data files of Quorate lie, installed or in a checkout, is found here, too (`data_folder`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry
from referencing.jsonschema import DRAFT202012

Schema = Mapping[str, Any]

FOLDER_OF_KIND: Final = {
    "Queue": "policies",
    "PriorityClass": "policies",
    "SchedulingPolicy": "policies",
    "SharingPolicy": "policies",
    "MigGeometry": "policies",
    "Reservation": "policies",
    "CheckpointPolicy": "policies",
    "RetryPolicy": "policies",
    "AccessPolicy": "policies",
    "AlertPolicy": "policies",
    "HealthPolicy": "policies",
    "RateCard": "policies",
    "IdlePolicy": "policies",
    "Budget": "policies",
    "PolicyTest": "policies/tests",
    "NodePool": "cluster-state",
    "Topology": "cluster-state",
}
"""The kinds that live in Git, and the folder that each belongs to: different users may change policy and inventory."""

KINDS: Final = (
    *FOLDER_OF_KIND,
    "Job",
    "Pipeline",
    "Snapshot",
    "Plan",
    "PolicyTestReport",
    "Review",
    "SavedPlan",
    "History",
    "Simulation",
    "CapacityReport",
)

_Validator: Final[Any] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    # JSON Schema takes 1e3 and 2.0 for whole numbers; no field here does.
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)


@cache
def schema_of(kind: str) -> Schema:
    """The schema of a kind; raises KeyError for an unknown one."""
    if kind not in KINDS:
        raise KeyError(kind)
    return _load(f"{kind.lower()}.json")


@cache
def validator_of(kind: str) -> Validator:
    """The compiled schema of a kind; raises KeyError for an unknown one."""
    made: Validator = _Validator(schema_of(kind), registry=_registry())
    return made


def resolve_reference(schema: Schema, base: str) -> tuple[Schema, str]:
    """A schema with its reference replaced by what it refers to, and the file in which that stands.

    What stands beside a `$ref` (a description, a default) wins over what the target says.
    """
    while "$ref" in schema:
        file, _, pointer = str(schema["$ref"]).partition("#")
        base = file or base
        target: Any = _load(base)
        for step in pointer.split("/")[1:]:
            target = target[step]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **beside}
    return schema, base


@cache
def _load(file: str) -> Schema:
    loaded: Schema = json.loads((data_folder("schemas") / file).read_text("utf-8"))
    return loaded


@cache
def _registry() -> Registry[Any]:
    files = ["common.json", *(f"{kind.lower()}.json" for kind in KINDS)]
    return Registry().with_resources((file, DRAFT202012.create_resource(_load(file))) for file in files)


def data_folder(folder: str) -> Path:
    """The folder `schemas`, `policies` or `cluster-state`; in a wheel they lie inside the package, in a checkout beside it."""
    package = Path(str(files("reconciler")))
    installed = package / "shipped" / folder
    return installed if installed.is_dir() else package.parent / folder
