"""SharingPolicy documents, and the ways in which a job may ask for GPUs."""

from __future__ import annotations

import pytest

from reconciler.documents.job import read_job
from reconciler.model.problem import InvalidDocumentsError
from solver.model.quantities import Memory
from tests.reconciler.documents.repository import POOL, codes, queue, reading

FILES = {
    "policies/a.yaml": queue("a", "{}"),
    "policies/b.yaml": queue("b", "{}"),
    "cluster-state/big.yaml": POOL.replace("gpusPerNode: 8", "gpusPerNode: 8, gpuMemory: 80Gi"),
}


def sharing(spec: str, name: str = "parts") -> str:
    return f"apiVersion: quorate.dev/v1\nkind: SharingPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_a_sharing_policy_and_the_memory_of_gpus_are_compiled() -> None:
    spec = "{pools: [big], mode: mps, trustDomains: [{name: both, queues: [b, a]}]}"
    compiled = reading(FILES | {"policies/s.yaml": sharing(spec)}).checked()
    (known,) = compiled.policy.sharing
    assert (known.name, known.pools, known.mode) == ("parts", ("big",), "mps")
    assert known.trust_domains[0].queues == ("a", "b")
    assert {gpu.memory for node in compiled.nodes for gpu in node.gpus} == {Memory(80 * 2**30)}


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("{pools: [big], mode: mps}", []),
        ("{pools: [bgi], mode: mps}", [("s.yaml:4:16", "unknown-pool")]),
        ("{pools: [], mode: mps}", [("s.yaml:4:15", "out-of-range")]),
        ("{pools: [big], mode: mig}", [("s.yaml:4:28", "unknown-value")]),
        ("{pools: [big], mode: mps, overcommit: 2}", [("s.yaml:4:33", "unknown-field")]),
        ("{pools: [big], mode: mps, oversubscription: 2}", [("s.yaml:4:51", "oversubscribed-mps")]),
        ("{pools: [big], mode: time-slicing, oversubscription: 1.5}", []),
        ("{pools: [big], mode: time-slicing, oversubscription: 0.5}", [("s.yaml:4:60", "out-of-range")]),
        ("{pools: [big], mode: mps, trustDomains: [{name: x, queues: [c]}]}", [("s.yaml:4:67", "unknown-queue")]),
        (
            "{pools: [big], mode: mps, trustDomains: [{name: x, queues: [a]}, {name: y, queues: [a]}]}",
            [("s.yaml:4:91", "two-trust-domains")],
        ),
        (
            "{pools: [big], mode: mps, trustDomains: [{name: x, queues: [a]}, {name: x, queues: [b]}]}",
            [("s.yaml:4:79", "duplicate-name")],
        ),
    ],
)
def test_problems_are_found_in_their_place(spec: str, problems: list[tuple[str, str]]) -> None:
    assert codes(FILES | {"policies/s.yaml": sharing(spec)}) == problems


def test_a_pool_is_shared_by_one_policy() -> None:
    files = {f"policies/{name}.yaml": sharing("{pools: [big], mode: mps}", name) for name in ("one", "two")}
    assert codes(FILES | files) == [("two.yaml:4:16", "duplicate-pool")]


@pytest.mark.parametrize(
    ("shape", "problems"),
    [
        ("{gpuFraction: 0.5}", []),
        ("{gpuMemory: 10Gi}", []),
        ("{gpus: 0, gpuFraction: 0.5}", []),
        ("{gpus: 1, gpuFraction: 0.5}", ["7:74 choose-one"]),
        ("{gpuFraction: 0.5, gpuMemory: 1Gi}", ["7:81 choose-one"]),
        ("{gpuFraction: 1}", ["7:65 out-of-range"]),
        ("{gpuFraction: 0}", ["7:65 out-of-range"]),
        ("{gpuFraction: 0.0005}", ["7:65 out-of-range"]),
        ("{gpuFraction: 0.5005}", ["7:65 malformed"]),
        ("{gpuMemory: 0}", ["7:63 out-of-range"]),
    ],
)
def test_gpus_are_asked_for_in_one_way(shape: str, problems: list[str]) -> None:
    text = (
        "apiVersion: quorate.dev/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  queue: a\n  taskGroups:\n"
        f"    - {{name: w, replicas: 1, command: [x], shape: {shape}}}\n"
    )
    found = []
    try:
        read_job(text.encode(), "job.yaml")
    except InvalidDocumentsError as invalid:
        found = [f"{problem.line}:{problem.column} {problem.code}" for problem in invalid.problems]
    assert found == problems
