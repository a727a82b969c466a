"""Weights of GPU types in a SchedulingPolicy: what they compile to, and what is wrong with them beside the node pools."""

from __future__ import annotations

import pytest

from reconciler.gitops.review.meaning import document_changes
from tests.reconciler.documents.repository import POOL, codes, reading

OTHER = POOL.replace("big", "old").replace("H100", "A100")


def weights(*entries: str) -> dict[str, str]:
    """A repository of two pools, with these entries at line 4."""
    settings = "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: s}\nspec: {gpuTypes: [%s]}\n"
    pools = {"cluster-state/big.yaml": POOL, "cluster-state/old.yaml": OTHER}
    return pools | {"policies/s.yaml": settings % ", ".join(entries)}


def test_the_order_of_the_list_means_nothing() -> None:
    entries = ("{gpuType: H100, weight: 4}", "{gpuType: A100, weight: 0.5}")
    one, other = (reading(weights(*order)).checked().policy for order in (entries, entries[::-1]))
    assert [(known.gpu_type, known.weight) for known in one.scheduling.gpu_types] == [("A100", 0.5), ("H100", 4.0)]
    assert one.digest == other.digest


def test_another_weight_is_another_policy() -> None:
    one, other = (reading(weights(f"{{gpuType: H100, weight: {w}}}")).checked() for w in (4, 5))
    assert one.policy.digest != other.policy.digest
    assert list(document_changes(one, other))


@pytest.mark.parametrize(
    ("entries", "problems"),
    [
        (("{gpuType: H100, weight: 4}", "{gpuType: A100, weight: 1}"), []),
        (("{gpuType: H10, weight: 4}",), [("s.yaml:4:29", "unknown-gpu-type")]),
        (("{gpuType: H100, weight: 4}", "{gpuType: H100, weight: 2}"), [("s.yaml:4:57", "duplicate-gpu-type")]),
        (("{gpuType: H100, weight: 0}",), [("s.yaml:4:43", "out-of-range")]),
        (("{gpuType: H100, weight: -1}",), [("s.yaml:4:43", "out-of-range")]),
        (("{gpuType: H100}",), [("s.yaml:4:19", "missing-field")]),
        (("{gpuType: H100, price: 4}",), [("s.yaml:4:35", "unknown-field"), ("s.yaml:4:19", "missing-field")]),
    ],
)
def test_problems_are_found(entries: tuple[str, ...], problems: list[tuple[str, str]]) -> None:
    assert sorted(codes(weights(*entries))) == sorted(problems)


def peaks(*entries: str) -> dict[str, str]:
    """Likewise, with what GPUs can do at most."""
    settings = (
        "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: s}\nspec: {gpuUse: {peaks: [%s]}}\n"
    )
    pools = {"cluster-state/big.yaml": POOL, "cluster-state/old.yaml": OTHER}
    return pools | {"policies/s.yaml": settings % ", ".join(entries)}


@pytest.mark.parametrize(
    ("entries", "problems"),
    [
        (("{gpuType: H100, tflops: 989.4}", "{gpuType: A100, tflops: 312}"), []),
        (("{gpuType: H10, tflops: 4}",), [("s.yaml:4:35", "unknown-gpu-type")]),
        (("{gpuType: H100, tflops: 4}", "{gpuType: H100, tflops: 2}"), [("s.yaml:4:63", "duplicate-gpu-type")]),
        (("{gpuType: H100, tflops: 0}",), [("s.yaml:4:49", "out-of-range")]),
        (("{gpuType: H100}",), [("s.yaml:4:25", "missing-field")]),
    ],
)
def test_problems_of_peaks_are_found(entries: tuple[str, ...], problems: list[tuple[str, str]]) -> None:
    assert sorted(codes(peaks(*entries))) == sorted(problems)


def test_the_order_of_peaks_means_nothing() -> None:
    entries = ("{gpuType: H100, tflops: 800}", "{gpuType: A100, tflops: 300}")
    one, other = (reading(peaks(*order)).checked().policy for order in (entries, entries[::-1]))
    assert one.digest == other.digest
    assert [(known.gpu_type, known.tflops) for known in one.scheduling.gpu_use.peaks] == [("A100", 300), ("H100", 800)]


def test_an_unknown_type_is_told_with_the_nearest() -> None:
    (problem,) = reading(weights("{gpuType: H10, weight: 4}")).problems
    assert "H100" in problem.fix


def test_where_pools_are_not_known_no_type_is_called_unknown() -> None:
    files = {path: text for path, text in weights("{gpuType: H10, weight: 4}").items() if "policies" in path}
    assert codes(files) == []
