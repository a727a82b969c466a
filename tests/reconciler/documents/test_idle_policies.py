"""IdlePolicy documents: compiled, shown in a review, and what is refused with its place."""

from __future__ import annotations

import pytest

from reconciler.gitops.review.meaning import document_changes
from reconciler.model.idle_policy import GpuActivityBelow, IdleEvidence, IdleExemption, IdlePolicy, idle_policy_of
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from tests.reconciler.documents.repository import POOL, codes, queue, reading

FILES = {
    "policies/a.yaml": queue("a", "{}"),
    "policies/b.yaml": queue("b", "{parent: a}"),
    "cluster-state/big.yaml": POOL,
}
GPUS = "idleWhen: {gpuActivity: {below: 5, for: 30m}}"


def idle(name: str, spec: str) -> str:
    return f"apiVersion: quorate.dev/v1\nkind: IdlePolicy\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def found(*texts: str) -> list[tuple[str, str]]:
    files = {f"policies/{number}.yaml": text for number, text in enumerate(texts, 1)}
    return sorted(set(codes(FILES | files)))


def test_a_policy_is_compiled_and_shown_in_a_review() -> None:
    exempt = 'exempt: [{queues: [b], until: 2026-12-24T00:00:00Z, reason: "moves data"}]'
    before = reading(FILES).checked()
    after = reading(FILES | {"policies/i.yaml": idle("hoarding", f"{GPUS}, queues: [a], action: lend, {exempt}")})
    (policy,) = after.checked().operations.idle
    assert policy == IdlePolicy(
        "hoarding",
        IdleEvidence(GpuActivityBelow(5, Duration(1_800_000))),
        (QueueName("a"),),
        action="lend",
        exempt=(IdleExemption(Instant.parse("2026-12-24T00:00:00Z"), "moves data", (QueueName("b"),)),),
        origin="policies/i.yaml:3",
    )
    assert after.checked().policy == before.policy
    (change,) = document_changes(before, after.checked())
    assert (change.document, change.change, change.origin) == ("IdlePolicy hoarding", "added", "policies/i.yaml:3")


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        (GPUS, []),
        ("action: end", ["missing-field"]),
        ("idleWhen: {}", ["no-evidence"]),
        (f"{GPUS}, queues: [nope]", ["unknown-queue"]),
        (f"{GPUS}, priorityClasses: [nope]", ["unknown-priority-class"]),
        (f"{GPUS}, action: kill", ["unknown-value"]),
        ("idleWhen: {gpuActivity: {below: 5, for: 90s}}", ["no-whole-minutes"]),
        ("idleWhen: {gpuActivity: {below: 5, for: 3d}}", ["longer-than-kept"]),
        ("idleWhen: {gpuActivity: {below: 0, for: 30m}}", ["out-of-range"]),
        ("idleWhen: {noTaskActivityFor: 30m}", ["task-activity-not-interactive"]),
        ("idleWhen: {noTaskActivityFor: 30m}, jobTypes: [interactive]", []),
        (f"{GPUS}, exempt: [{{queues: [nope], until: 2026-12-24T00:00:00Z, reason: x}}]", ["unknown-queue"]),
        (f"{GPUS}, exempt: [{{until: 2026-12-24T00:00:00Z, reason: x}}]", ["exempts-everything"]),
        (f"{GPUS}, exempt: [{{queues: [a], reason: x}}]", ["missing-field"]),
    ],
)
def test_what_is_refused(spec: str, problems: list[str]) -> None:
    assert [code for _, code in found(idle("x", spec))] == problems


def test_two_policies_for_the_same_jobs_are_refused_unless_one_is_nearer() -> None:
    assert found(idle("x", GPUS), idle("y", f"{GPUS}, queues: [a]"), idle("z", f"{GPUS}, queues: [b]")) == []
    assert found(idle("x", f"{GPUS}, jobTypes: [gang]"), idle("y", f"{GPUS}, jobTypes: [interactive]")) == []
    ((place, code),) = found(idle("x", f"{GPUS}, queues: [a]"), idle("y", f"{GPUS}, queues: [a, b]"))
    assert (place, code) == ("2.yaml:4:7", "overlapping-idle-policies")


def test_the_policy_with_the_nearest_queue_counts() -> None:
    def policy(name: str, *queues: str) -> IdlePolicy:
        return IdlePolicy(name, IdleEvidence(), tuple(map(QueueName, queues)))

    known, path = (policy("all"), policy("a", "a"), policy("b", "b")), (QueueName("b"), QueueName("a"))
    chosen = idle_policy_of(known, path, "", "gang")
    assert chosen is not None
    assert chosen.name == "b"
    above = idle_policy_of(known, path[1:], "", "gang")
    assert above is not None
    assert above.name == "a"
