"""What a review says of quotas of CPU and memory: which rows differ, and what queues may have of both."""

from __future__ import annotations

import msgspec

from reconciler.analysis.reports.paths import paths_of
from reconciler.analysis.reports.review_outline import outline_of
from reconciler.analysis.reports.text import text
from reconciler.gitops.review.comparison import review
from reconciler.model.queue_line import amount_text
from solver.model.quantities import Cpu
from solver.model.shape import Shape
from solver.model.snapshot import snapshot_of
from tests.reconciler.gitops.review.test_comparison import NOW, job, repository, side

BEFORE = "{quota: [{resource: cpu, guaranteed: 32}]}"
AFTER = "{quota: [{resource: cpu, guaranteed: 48, max: 64, shared: true}, {resource: memory, guaranteed: 256Gi}]}"


def test_rows_of_cpu_and_memory_are_told_by_their_resource_and_what_a_queue_may_have() -> None:
    base, head = (side(name, repository(1, builds=rows)) for name, rows in (("base", BEFORE), ("head", AFTER)))
    held = msgspec.structs.replace(job("held", "builds", on="n1"))
    spec = msgspec.structs.replace(held.spec.task_groups[0], shape=Shape(0, cpu=Cpu(40_000)))
    held = msgspec.structs.replace(held, spec=msgspec.structs.replace(held.spec, task_groups=(spec,)))
    tasks = tuple(msgspec.structs.replace(task, devices=()) for task in held.placement)
    held = msgspec.structs.replace(held, placement=tasks)
    found = review(snapshot_of(NOW, base.compiled.nodes, (held,)), base, head, None)
    (changed,) = found.documents
    assert {field.field: (field.before, field.after, field.origin) for field in changed.fields} == {
        "hostQuota[cpu].guaranteed": ("32", "48", "policies/builds.yaml:4"),
        "hostQuota[cpu].max": (None, "64", "policies/builds.yaml:4"),
        "hostQuota[cpu].shared": (None, "True", "policies/builds.yaml:4"),
        "hostQuota[memory].guaranteed": (None, "256Gi", "policies/builds.yaml:4"),
    }
    cpu, memory = found.host_queues
    assert (cpu.queue, cpu.resource, memory.resource) == ("builds", "cpu", "memory")
    assert cpu.before is not None
    assert cpu.after is not None
    assert (cpu.before.guaranteed, cpu.before.max, cpu.before.used) == ("32", None, "40")
    assert (cpu.after.guaranteed, cpu.after.max, cpu.after.used) == ("48", "64", "40")
    told = text(outline_of(found, paths_of(base.compiled, head.compiled), str))
    assert "guaranteed 32 → 48 CPU cores" in told
    assert "shared true CPU cores" in told
    assert "Queues: CPU and memory" in told


def test_amounts_are_told_as_rows_have_them() -> None:
    assert [amount_text("cpu", 96_000), amount_text("cpu", 500)] == ["96", "500m"]
    assert [amount_text("memory", 2**38), amount_text("memory", 2**38 // 3), amount_text("memory", 0)] == [
        "256Gi",
        "87381Mi",
        "0",
    ]
