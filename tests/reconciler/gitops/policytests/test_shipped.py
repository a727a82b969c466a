"""The example organisation's policy keeps its own requirements; and they notice when it is changed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reconciler.documents.files import Files, read_folder
from reconciler.documents.repository import Reading, read_repository
from reconciler.gitops.policytests.conduct import conduct
from solver.milp.highs import optimise
from tests.house.tracked import ROOT

SHIPPED = read_folder(ROOT)


def failing(reading: Reading, names: tuple[str, ...] | None = None) -> dict[str, list[str]]:
    """The tests that fail, with what they say."""
    compiled = reading.checked()
    results = [conduct(test, compiled, optimise) for test in reading.tests if names is None or test.name in names]
    return {result.name: [failure.message for failure in result.failures] for result in results if not result.passed}


def changed(edits: Mapping[str, tuple[str, str]]) -> Reading:
    """The shipped repository with a piece of some files replaced."""
    contents = dict(SHIPPED.contents)
    for path, (before, after) in edits.items():
        text = contents[path].decode()
        assert before in text
        contents[path] = text.replace(before, after).encode()
    return read_repository(Files(contents))


def test_the_example_organisation_keeps_its_requirements() -> None:
    reading = read_repository(SHIPPED)
    assert len(reading.tests) >= 12
    assert failing(reading) == {}


@pytest.mark.parametrize(
    ("edits", "noticed"),
    [
        (
            {"policies/queues/product-inference.yaml": ("guaranteed: 64", "guaranteed: 0")},
            {"inference-comes-before-training", "lenders-take-back-no-more-than-is-theirs"},
        ),
        (
            {"policies/priorities.yaml": ("sloClass: standard}", "sloClass: standard, preemptible: false}")},
            {"guarantees-come-back-within-the-hour", "idle-guarantees-are-lent"},
        ),
        (
            {
                "policies/priorities.yaml": (
                    "sloClass: standard}",
                    "sloClass: standard, protection: {minRuntime: 4h}}",
                ),
                "policies/scheduling.yaml": ("startDeadline: 5m", "reclaimWithin: 24h"),
            },
            {"guarantees-come-back-within-the-hour"},
        ),
        (
            {"policies/queues/product.yaml": (", max: 128", "")},
            {"burst-ceilings-hold"},
        ),
    ],
    ids=["no guarantee", "nobody may be evicted", "nothing is overdue", "no ceiling"],
)
def test_a_change_that_breaks_a_requirement_is_noticed(edits: dict[str, tuple[str, str]], noticed: set[str]) -> None:
    assert set(failing(changed(edits), tuple(noticed))) == noticed


def test_tests_are_no_part_of_the_policy() -> None:
    without = Files({path: raw for path, raw in SHIPPED.contents.items() if not path.startswith("policies/tests/")})
    assert read_repository(without).compiled == read_repository(SHIPPED).compiled
