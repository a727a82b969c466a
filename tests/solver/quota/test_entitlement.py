"""What queues are guaranteed, in tables that can be checked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.model.cluster import GpuType
from solver.model.workload import QueueName
from solver.policy.policy import Queue, policy_of
from solver.policy.tree import QueueTree, QuotaLine
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.quota.guarantees import guarantees
from solver.quota.users import UserCaps
from tests.solver.worlds import quota_of

H = GpuType("H100")
Row = tuple[str, str | None, int | None, int]
"""Queue, parent, guaranteed (None: unset), weight."""


def tree(*rows: Row) -> QueueTree:
    queues = [
        Queue(
            QueueName(name),
            QueueName(parent) if parent else None,
            (quota_of(H, guaranteed),),
            weight,
        )
        for name, parent, guaranteed, weight in rows
    ]
    return QueueTree.of(policy_of(tuple(queues)))


@pytest.mark.parametrize(
    ("why", "rows", "expected"),
    [
        ("explicit guarantees stand", [("a", None, 4, 1), ("b", None, 6, 1)], {"a": 4, "b": 6}),
        ("unset is an equal share of the cluster", [("a", None, None, 1), ("b", None, None, 1)], {"a": 8, "b": 8}),
        ("unset is shared by weight", [("a", None, None, 3), ("b", None, None, 1)], {"a": 12, "b": 4}),
        ("unset shares what others left", [("a", None, 10, 1), ("b", None, None, 1)], {"a": 10, "b": 6}),
        ("an explicit 0 is none", [("a", None, 0, 1), ("b", None, None, 1)], {"a": 0, "b": 16}),
        (
            "what can't be divided is nobody's",
            [("a", None, None, 1), ("b", None, None, 1), ("c", None, None, 1)],
            {"a": 5, "b": 5, "c": 5},
        ),
        (
            "children share what their parent has",
            [("p", None, 8, 1), ("x", "p", 2, 1), ("y", "p", None, 1), ("z", "p", None, 2)],
            {"p": 8, "x": 2, "y": 2, "z": 4},
        ),
        ("nobody is guaranteed more than the parent has", [("p", None, 4, 1), ("x", "p", 6, 1)], {"p": 4, "x": 4}),
        ("nor more than there is", [("a", None, 99, 1)], {"a": 16}),
    ],
)
def test_guarantees(why: str, rows: list[Row], expected: dict[str, int]) -> None:
    assert guarantees(tree(*rows), {H: 16_000}) == {
        QuotaLine(QueueName(q), H): 1000 * n for q, n in expected.items()
    }, why


@given(st.integers(0, 10_000), st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_what_is_unset_is_shared_by_weight_and_rounded_down(gpus: int, weights: list[int]) -> None:
    rows = [(f"q{number}", None, None, weight) for number, weight in enumerate(weights)]
    split = guarantees(tree(*rows), {H: 1000 * gpus})
    total = sum(weights)
    for number, weight in enumerate(weights):
        assert split[QuotaLine(QueueName(f"q{number}"), H)] == (1000 * (gpus * weight // total) if total else 0)


def test_headroom_counts_every_level_and_says_which_ceiling_blocks() -> None:
    known = tree(("p", None, 8, 1), ("x", "p", 8, 1), ("y", "p", 8, 1))
    p = QuotaLine(QueueName("p"), H)
    shares = Shares(known, guarantees(known, {H: 16_000}), {p: 10_000}, {p: 2_000}, UserCaps(known, {}, {}), {p: 2_000})
    headroom = QuotaHeadroom(shares)
    x, y = QueueName("x"), QueueName("y")
    assert headroom.entitled.part(x, {H: 8_000}) == 6_000, "the parent's guarantee of 8 has 6 left"
    assert headroom.take(x, {H: 5_000}) == 5_000
    assert headroom.entitled.part(y, {H: 4_000}) == 1_000
    assert headroom.blocking(y, {H: 3_000}) == ()
    assert headroom.blocking(y, {H: 4_000}) == (QuotaLine(QueueName("p"), H),)
