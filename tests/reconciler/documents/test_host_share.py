"""What GPUs carry of CPU and memory, in a SchedulingPolicy: what it compiles to, and what is wrong with it beside the pools."""

from __future__ import annotations

import pytest

from reconciler.gitops.review.meaning import document_changes
from solver.model.quantities import Cpu, Memory
from tests.reconciler.documents.repository import POOL, codes, reading

OTHER = POOL.replace("big", "old").replace("H100", "A100")


def carried(*entries: str) -> dict[str, str]:
    """A repository of two pools, with these entries at line 4."""
    settings = "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: s}\nspec: {hostShare: [%s]}\n"
    pools = {"cluster-state/big.yaml": POOL, "cluster-state/old.yaml": OTHER}
    return pools | {"policies/s.yaml": settings % ", ".join(entries)}


def test_the_order_of_the_list_means_nothing() -> None:
    entries = ("{pool: old, cpu: 12}", "{pool: big, memory: 64Gi}")
    one, other = (reading(carried(*order)).checked().policy for order in (entries, entries[::-1]))
    found = [(known.pool, known.cpu, known.memory) for known in one.scheduling.host_share]
    assert found == [("big", None, Memory.parse("64Gi")), ("old", Cpu.parse(12), None)]
    assert one.digest == other.digest


def test_another_share_is_another_policy_and_none_is_the_same_as_before() -> None:
    one, other, none = (
        reading(carried(*entries)).checked() for entries in (["{pool: big, cpu: 4}"], ["{pool: big, cpu: 5}"], [])
    )
    assert len({one.policy.digest, other.policy.digest, none.policy.digest}) == 3
    assert list(document_changes(one, other))
    silent = {path: text.replace("hostShare: []", "") for path, text in carried().items()}
    assert reading(silent).checked().policy.digest == none.policy.digest


def test_pools_that_nobody_declares_are_problems_of_queues_and_classes() -> None:
    head = "apiVersion: quorate.dev/v1\nkind: %s\nmetadata: {name: %s}\nspec: {pools: [big, bigg]}\n"
    more = {"policies/q.yaml": head % ("Queue", "q"), "policies/c.yaml": head % ("PriorityClass", "c")}
    assert sorted(codes(carried() | more)) == [("c.yaml:4:21", "unknown-pool"), ("q.yaml:4:21", "unknown-pool")]


@pytest.mark.parametrize(
    ("entries", "problems"),
    [
        (("{pool: big, cpu: 4}", "{pool: old, memory: 1Gi}"), []),
        (("{pool: bigg, cpu: 4}",), [("s.yaml:4:27", "unknown-pool")]),
        (("{pool: big, cpu: 4}", "{pool: big, cpu: 5}"), [("s.yaml:4:48", "duplicate-pool")]),
        (("{cpu: 4}",), [("s.yaml:4:20", "missing-field")]),
    ],
)
def test_problems_are_found(entries: tuple[str, ...], problems: list[tuple[str, str]]) -> None:
    assert sorted(codes(carried(*entries))) == sorted(problems)
