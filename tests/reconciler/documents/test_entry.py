"""What a queue lets in is written so that nothing is accepted and then ignored."""

from __future__ import annotations

import pytest

from tests.reconciler.documents.repository import codes, queue, reading

TRAINING = "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: training}\nspec: {}\n"


def repository(spec: str) -> dict[str, str]:
    return {"policies/a.yaml": queue("a", spec), "policies/classes.yaml": TRAINING}


def test_hold_classes_and_caps_are_compiled() -> None:
    spec = "{stopPolicy: Hold, priorityClasses: [training], quota: [{gpuType: H100, max: 8, perUser: 8}]}"
    (compiled,) = reading(repository(spec)).checked().policy.queues
    assert (compiled.stop_policy, compiled.priority_classes, str(compiled.quota[0].per_user)) == (
        "Hold",
        ("training",),
        "8",
    )


def test_the_order_of_the_classes_means_nothing() -> None:
    other = {"policies/other.yaml": TRAINING.replace("training", "other")}
    one, two = (
        reading(repository(f"{{priorityClasses: [{names}]}}") | other).checked().policy.digest
        for names in ("training, other", "other, training")
    )
    assert one == two


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("{stopPolicy: None}", []),
        ("{stopPolicy: null}", [("a.yaml:4:20", "unknown-value")]),
        ("{stopPolicy: HoldAndDrian}", [("a.yaml:4:20", "unknown-value")]),
        ("{priorityClasses: []}", [("a.yaml:4:25", "out-of-range")]),
        ("{priorityClasses: [training, trianing]}", [("a.yaml:4:36", "unknown-priority-class")]),
        ("{quota: [{gpuType: H100, perUser: -1}]}", [("a.yaml:4:41", "out-of-range")]),
    ],
)
def test_what_is_wrong_is_named_with_its_place(spec: str, problems: list[tuple[str, str]]) -> None:
    assert codes(repository(spec)) == problems


def test_an_unknown_class_is_answered_with_the_nearest() -> None:
    (problem,) = reading(repository("{priorityClasses: [trianing]}")).problems
    assert (problem.message, problem.fix) == ("there is no PriorityClass trianing", "Did you mean training?")


def test_a_stop_policy_that_does_not_exist_is_answered_with_those_that_do() -> None:
    (problem,) = reading(repository("{stopPolicy: HoldAndDrian}")).problems
    assert problem.fix == "Did you mean HoldAndDrain?"
