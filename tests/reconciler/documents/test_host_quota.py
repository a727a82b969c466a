"""Rows of CPU and memory in the quota of queues: what they compile to, and what is wrong with them."""

from __future__ import annotations

import pytest

from solver.model.quantities import Cpu, Memory
from tests.reconciler.documents.repository import codes, reading


def queues(**specs: str) -> dict[str, str]:
    """A file for each queue, with its spec in line 4."""
    head = "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: %s}\nspec: %s\n"
    return {f"policies/{name}.yaml": head % (name, spec) for name, spec in specs.items()}


ROWS = "{resource: cpu, guaranteed: 64, max: 128}, {resource: memory, max: 1Ti}"


@pytest.mark.parametrize(
    "spec",
    [
        f"{{quota: [{{gpuType: H100, guaranteed: 8}}, {ROWS}]}}",
        f"{{quota: [{ROWS}, {{gpuType: H100, guaranteed: 8}}]}}",
    ],
)
def test_rows_of_quota_may_name_a_resource(spec: str) -> None:
    (queue,) = reading(queues(a=spec)).checked().policy.queues
    assert [entry.gpu_type for entry in queue.quota] == ["H100"]
    cpu, memory = queue.host_quota_for("cpu"), queue.host_quota_for("memory")
    assert cpu is not None
    assert memory is not None
    assert (cpu.guaranteed, cpu.max, memory.guaranteed, memory.max) == (Cpu(64_000), Cpu(128_000), None, Memory(2**40))
    assert {cpu.origin, memory.origin} == {"policies/a.yaml:4"}


def test_they_mean_the_same_apart_and_a_policy_without_any_is_what_it_was() -> None:
    one, other, none = (
        reading(queues(a=spec)).checked().policy for spec in (f"{{quota: [{ROWS}]}}", f"{{hostQuota: [{ROWS}]}}", "{}")
    )
    assert one.digest == other.digest != none.digest
    assert none.queues[0].host_quota == ()


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        (
            queues(a="{quota: [{resource: cpu, max: 4}, {resource: cpu, max: 5}]}"),
            [("a.yaml:4:41", "duplicate-resource")],
        ),
        (
            queues(a="{quota: [{gpuType: H100}, {resource: cpu, guaranteed: 5, max: 4}]}"),
            [("a.yaml:4:69", "max-below-guaranteed")],
        ),
        (
            queues(
                a="{quota: [{resource: memory, guaranteed: 1Gi}]}",
                b="{parent: a, quota: [{resource: memory, guaranteed: 2Gi}]}",
            ),
            [("a.yaml:4:47", "guarantees-exceed-parent")],
        ),
    ],
)
def test_problems_are_found(files: dict[str, str], problems: list[tuple[str, str]]) -> None:
    assert codes(files) == problems


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{resource: cpus, max: 4}", ("a.yaml:4:31", "unknown-value", "Did you mean cpu?")),
        ("{resource: cpu, max: 4Gi}", ("a.yaml:4:41", "malformed", "Write it like 96 or 0.5 or 500m.")),
        ("{resource: memory, max: lots}", ("a.yaml:4:44", "malformed", "Write it like 64Gi or 512Mi or 2T.")),
        ("{resource: cpu, maximum: 4}", ("a.yaml:4:36", "unknown-field", "Did you mean max?")),
        ("{max: 4}", ("a.yaml:4:20", "missing-field", "Add resource.")),
    ],
)
def test_what_is_no_such_row_is_told_of_the_resource_that_it_names(row: str, problem: tuple[str, str, str]) -> None:
    (found,) = reading(queues(a=f"{{hostQuota: [{row}]}}")).problems
    assert (f"{found.file.removeprefix('policies/')}:{found.line}:{found.column}", found.code, found.fix) == problem


def test_what_is_no_such_row_is_refused() -> None:
    assert codes(queues(a="{quota: [{resource: cpu, lendable: 4}]}"))
    assert codes(queues(a="{quota: [{resource: disk, max: 4}]}"))
    assert codes(queues(a="{quota: [{resource: memory, max: lots}]}"))


ORG = "{quota: [{resource: cpu, guaranteed: 48, shared: true}]}"


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        (queues(org=ORG, a="{parent: org}"), []),
        (queues(org=ORG), [("org.yaml:4:56", "shared-with-nobody")]),
        (
            queues(org="{hostQuota: [{resource: memory, shared: true}]}", a="{parent: org}"),
            [("org.yaml:4:47", "shared-without-guaranteed")],
        ),
        (
            queues(
                org=ORG,
                a="{parent: org}",
                b="{parent: a, hostQuota: [{resource: cpu, guaranteed: 8, shared: true}]}",
                c="{parent: b, hostQuota: [{resource: memory, guaranteed: 8Gi}]}",
            ),
            [("b.yaml:4:70", "shared-below-shared")],
        ),
    ],
)
def test_what_is_shared_is_a_guarantee_with_queues_below_and_none_above_that_shares(
    files: dict[str, str], problems: list[tuple[str, str]]
) -> None:
    assert codes(files) == problems


def test_a_row_is_named_by_its_resource_wherever_it_stands() -> None:
    rows = "{quota: [{gpuType: H100}, {resource: disk, max: 1Gi}, {resource: cpu, maximum: 4, max: lots}]}"
    assert [(found.line, found.column, found.message) for found in reading(queues(a=rows)).problems] == [
        (4, 44, "spec.hostQuota[disk].resource can't be 'disk'"),
        (4, 77, "there is no field 'maximum' in spec.hostQuota[cpu]"),
        (4, 94, "spec.hostQuota[cpu].max: 'lots' is not a number of CPU cores"),
    ]


def test_memory_without_a_unit_is_asked_about() -> None:
    (found,) = reading(queues(a="{quota: [{resource: memory, guaranteed: 256}]}")).problems
    assert (found.severity, found.code, found.message, found.fix) == (
        "warning",
        "bare-size",
        "guaranteed of memory is 256 bytes",
        "Write 256Gi, if GiB are meant.",
    )
    assert codes(queues(a="{quota: [{resource: memory, guaranteed: 0, max: 1Mi}]}")) == []


def test_a_row_of_cpu_in_hours_is_told_once() -> None:
    repeat = "{rule: 'FREQ=DAILY;COUNT=9', duration: 10h, timeZone: UTC}"
    hours = f"{{name: nights, from: '2026-11-30T20:00:00Z', repeat: {repeat}, quota: [{{resource: cpu, max: 4}}]}}"
    (found,) = reading(queues(a=f"{{hours: [{hours}]}}")).problems
    assert (found.code, found.message) == ("unknown-field", "there is no field 'resource' in spec.hours[0].quota[0]")
    assert found.fix == "Quota of CPU and memory is the same at all hours: write the row into hostQuota of the queue."
