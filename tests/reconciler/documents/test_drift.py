"""The types in code and the schemas say the same: names, required fields, defaults, enumerations, and how they nest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from reconciler.access.policy import AccessPolicy
from reconciler.alerts.policy import AlertPolicy
from reconciler.analysis.backtest.figures import Simulation
from reconciler.analysis.backtest.history_file import HistoryHead, RecordedJob
from reconciler.analysis.capacity.report import CapacityReport
from reconciler.documents.inventory import NodePoolSpec
from reconciler.documents.policy_test import PolicyTest
from reconciler.documents.schemas import KINDS, Schema, resolve_reference, schema_of
from reconciler.documents.topology import TopologySpec
from reconciler.gitops.policytests.conduct import PolicyTestReport
from reconciler.model.budget import GpuBudget
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.envelope import SavedPlan
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.idle_policy import IdlePolicy
from reconciler.model.pipelines import PipelineSpec
from reconciler.model.rate_card import Price, RateCard
from reconciler.model.retry_policy import RetryPolicy
from reconciler.model.review_findings import Review
from solver.model.amounts import Amounts
from solver.model.cluster import GpuType
from solver.model.document import encode
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobSpec
from solver.plan.plan import Plan
from solver.policy.division import MigGeometry, SharingPolicy
from solver.policy.policy import PriorityClass, Queue, SchedulingPolicy
from solver.policy.reservation import DeclaredReservation

# Where policy comes from in Git is noted by the reader, never written by a person.
INTERNAL = {
    Queue: {"name", "origin", "ahead", "in_hours"},
    PriorityClass: {"name", "origin"},
    SchedulingPolicy: {"origin"},
    SharingPolicy: {"name", "origin"},
    MigGeometry: {"name", "origin", "model"},
    DeclaredReservation: {"name", "origin", "job"},
    CheckpointPolicy: {"name", "origin"},
    RetryPolicy: {"name", "origin"},
    AccessPolicy: {"origin"},
    AlertPolicy: {"name", "origin"},
    HealthPolicy: {"origin"},
    RateCard: {"name", "origin"},
    IdlePolicy: {"name", "origin"},
    GpuBudget: {"name", "origin"},
    PolicyTest: {"name", "origin"},
}
INTERNAL_IN_LISTS = {
    "Quota": {"origin"},
    "CpuQuota": {"origin"},
    "MemoryQuota": {"origin"},
    "Protection": {"origin"},
    "UserShares": {"member_weights"},
    "Repeat": {"windows"},
    "Evictions": {"origin"},
    "NamespaceAccess": {"origin"},
    "QuotaHours": {"origin"},
    "QuotaRow": {"origin"},
}
QUANTITIES = {
    MilliGpu: "number of GPUs",
    Cpu: "number of CPU cores",
    Memory: "memory size",
    Duration: "duration",
    Instant: "time",
    Price: "price",
    Amounts: "amounts by name",
}
SCALARS: dict[type, str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
}
UNSET: tuple[Any, ...] = (None, "")
"""Defaults that mean `absent`; a schema gives them by giving none."""

SPECS = {
    "Queue": Queue,
    "PriorityClass": PriorityClass,
    "SchedulingPolicy": SchedulingPolicy,
    "SharingPolicy": SharingPolicy,
    "MigGeometry": MigGeometry,
    "Reservation": DeclaredReservation,
    "CheckpointPolicy": CheckpointPolicy,
    "RetryPolicy": RetryPolicy,
    "AccessPolicy": AccessPolicy,
    "AlertPolicy": AlertPolicy,
    "HealthPolicy": HealthPolicy,
    "RateCard": RateCard,
    "IdlePolicy": IdlePolicy,
    "Budget": GpuBudget,
    "PolicyTest": PolicyTest,
    "NodePool": NodePoolSpec,
    "Topology": TopologySpec,
    "Job": JobSpec,
    "Pipeline": PipelineSpec,
}


def differences(kind: inspect.Type, schema: Schema, base: str, at: str, internal: frozenset[str]) -> Iterator[str]:
    """Everything in which a type and a schema differ, with the path to it."""
    schema, base = resolve_reference(schema, base)
    if isinstance(kind, inspect.UnionType):
        yield from union_differences(kind, schema, base, at)
    elif isinstance(kind, inspect.StructType):
        yield from struct_differences(kind, schema, base, at, internal)
    elif isinstance(kind, inspect.VarTupleType):
        yield from differences(kind.item_type, schema["items"], base, f"{at}[]", frozenset())
    elif isinstance(kind, inspect.LiteralType):
        allowed = schema.get("enum", [schema.get("const")])
        if sorted(kind.values, key=str) != sorted(allowed, key=str):
            yield f"{at}: {kind.values} in the type, {allowed} in the schema"
    elif isinstance(kind, inspect.CustomType):
        if schema.get("title") != QUANTITIES[kind.cls]:
            yield f"{at}: {kind.cls.__name__} in the type, {schema.get('title')} in the schema"
    elif isinstance(kind, inspect.DictType):
        yield from differences(kind.value_type, schema["additionalProperties"], base, f"{at}.*", frozenset())
    elif schema.get("type") != SCALARS[type(kind)]:
        yield f"{at}: {SCALARS[type(kind)]} in the type, {schema.get('type')} in the schema"


def union_differences(kind: inspect.UnionType, schema: Schema, base: str, at: str) -> Iterator[str]:
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    if {"type": "null"} in schema.get("anyOf", ()):
        (schema,) = (way for way in schema["anyOf"] if way != {"type": "null"})
        schema, base = resolve_reference(schema, base)
    if len(members) == 1:
        yield from differences(members[0], schema, base, at, frozenset())
        return
    if "oneOf" not in schema:
        yield from one_or_list_differences(members, schema, base, at)
        return
    ways = {}
    for way in schema["oneOf"]:
        inner, inner_base = resolve_reference(way, base)
        tags = {name: field["const"] for name, field in inner["properties"].items() if "const" in field}
        ways[tuple(tags.items())] = (inner, inner_base)
    for member in members:
        assert isinstance(member, inspect.StructType)
        tag = ((str(member.tag_field), member.tag),)
        if tag not in ways:
            yield f"{at}: no schema for {tag}"
        else:
            inner, inner_base = ways.pop(tag)
            yield from struct_differences(member, inner, inner_base, f"{at}<{member.tag}>", frozenset())
    yield from (f"{at}: no type for {tag}" for tag in ways)


def one_or_list_differences(members: list[inspect.Type], schema: Schema, base: str, at: str) -> Iterator[str]:
    """A word or an object, or a list of such: the schema spells a word as a pattern."""
    one, more = sorted(members, key=lambda member: isinstance(member, inspect.VarTupleType))
    assert isinstance(one, inspect.LiteralType | inspect.StructType)
    assert isinstance(more, inspect.VarTupleType)
    shape = "object" if isinstance(one, inspect.StructType) else "string"
    if schema.get("type") != [shape, "array"]:
        yield f"{at}: {shape} or a list of them in the type, {schema.get('type')} in the schema"
    if isinstance(one, inspect.StructType):
        yield from struct_differences(one, schema, base, at, frozenset())
    elif sorted(schema.get("pattern", "")) != sorted(f"^({'|'.join(map(str, one.values))})$"):
        yield f"{at}: {one.values} or a list of them in the type, {schema.get('pattern')} in the schema"
    yield from differences(more.item_type, schema["items"], base, f"{at}[]", frozenset())


def struct_differences(
    kind: inspect.StructType, schema: Schema, base: str, at: str, internal: frozenset[str]
) -> Iterator[str]:
    internal = internal | INTERNAL_IN_LISTS.get(kind.cls.__name__, set())
    properties = dict(schema.get("properties", {}))
    required = set(schema.get("required", ()))
    if schema.get("additionalProperties") is not False:
        yield f"{at}: unknown fields are not refused"
    if kind.tag_field is not None:
        properties.pop(kind.tag_field)
        required.discard(kind.tag_field)
    for field in kind.fields:
        if field.name in internal:
            continue
        where = f"{at}.{field.encode_name}"
        inner = properties.pop(field.encode_name, None)
        if inner is None:
            yield f"{where}: not in the schema"
            continue
        if field.required != (field.encode_name in required):
            yield f"{where}: required in one of them only"
        if not field.required:
            yield from default_differences(field, inner, base, where)
        yield from differences(field.type, inner, base, where, frozenset())
    yield from (f"{at}.{name}: not in the type" for name in properties)


def default_differences(field: inspect.Field, schema: Schema, base: str, at: str) -> Iterator[str]:
    factory = field.default_factory
    default = field.default if factory is msgspec.NODEFAULT else factory()
    # Of a field that may be left out altogether, msgspec knows no default.
    written = None if default in (*UNSET, msgspec.NODEFAULT) else json.loads(encode(default))
    schema, _ = resolve_reference(schema, base)
    if schema.get("default") != written:
        yield f"{at}: default {written!r} in the type, {schema.get('default')!r} in the schema"


def undescribed(schema: Any, at: str) -> Iterator[str]:
    """Fields without a description of their own or of what they refer to."""
    if isinstance(schema, dict):
        for name, field in schema.get("properties", {}).items():
            if isinstance(field, dict) and "description" not in field and "$ref" not in field:
                yield f"{at}.{name}"
        for key, inner in schema.items():
            yield from undescribed(inner, f"{at}/{key}")


@pytest.mark.parametrize("kind", SPECS)
def test_a_specs_type_and_schema_agree(kind: str) -> None:
    spec = schema_of(kind)["properties"]["spec"]
    internal = frozenset(INTERNAL.get(SPECS[kind], ()))
    assert list(differences(inspect.type_info(SPECS[kind]), spec, f"{kind.lower()}.json", kind, internal)) == []


@pytest.mark.parametrize("kind", [Snapshot, Plan, PolicyTestReport, Review, SavedPlan, Simulation, CapacityReport])
def test_a_whole_documents_type_and_schema_agree(kind: type) -> None:
    name = kind.__name__
    assert list(differences(inspect.type_info(kind), schema_of(name), f"{name.lower()}.json", name, frozenset())) == []


def test_the_lines_of_a_history_agree_with_their_schema() -> None:
    head, job = schema_of("History"), schema_of("History")["$defs"]["recordedJob"]
    found = differences(inspect.type_info(HistoryHead), head, "history.json", "History", frozenset())
    assert [*found, *differences(inspect.type_info(RecordedJob), job, "history.json", "job", frozenset())] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described(kind: str) -> None:
    assert list(undescribed(schema_of(kind), kind)) == []


def test_the_comparison_notices_every_kind_of_drift() -> None:
    class Drifted(msgspec.Struct):
        missing: int
        changed: int = 2
        typed: GpuType = GpuType("")

    schema = {
        "additionalProperties": False,
        "required": ["changed"],
        "properties": {"changed": {"type": "integer", "default": 1}, "typed": {"type": "integer"}, "extra": {}},
    }
    assert list(differences(inspect.type_info(Drifted), schema, "common.json", "it", frozenset())) == [
        "it.missing: not in the schema",
        "it.changed: required in one of them only",
        "it.changed: default 2 in the type, 1 in the schema",
        "it.typed: string in the type, integer in the schema",
        "it.extra: not in the type",
    ]
