"""Queues make a tree whose guarantees and ceilings can all be kept."""

from __future__ import annotations

import pytest

from reconciler.documents.repository import Reading
from reconciler.model.near_names import NearNames
from tests.reconciler.documents.repository import POOL, codes, queue, reading


def tree(**specs: str) -> dict[str, str]:
    """Queues by name, in files of their own, on 80 H100."""
    return {"cluster-state/p.yaml": POOL} | {f"policies/{name}.yaml": queue(name, spec) for name, spec in specs.items()}


ACCESS = {
    "policies/access.yaml": "apiVersion: quorate.dev/v1\nkind: AccessPolicy\nmetadata: {name: access}\n"
    "spec: {groups: {leads: [ada, bob], vision: [ada, carol]}, roles: [{role: viewer, subjects: ['user:dora']}]}\n"
}
"""Whom Git knows."""


def h100(guaranteed: int | None = None, most: int | None = None, parent: str = "") -> str:
    above = f"parent: {parent}, " if parent else ""
    numbers = (f", guaranteed: {guaranteed}" if guaranteed is not None else "") + (
        f", max: {most}" if most is not None else ""
    )
    return f"{{{above}quota: [{{gpuType: H100{numbers}}}]}}"


@pytest.mark.parametrize(
    "valid",
    [
        tree(org=h100(64), a=h100(32, parent="org"), b=h100(32, parent="org")),
        tree(org=h100(64), a=h100(0, parent="org"), b="{parent: org}"),
        tree(org=h100(most=64), a=h100(64, 64, parent="org")),
        tree(a=h100(80, 80)),
        {"policies/a.yaml": queue("a", h100(7))},
        tree(
            a="{quota: [{gpuType: H100, guaranteed: 8, lendable: 8}]}",
            b="{quota: [{gpuType: H100, guaranteed: 1, lendable: 0.125}]}",
        ),
        tree(
            org="{users: {fairShare: true, weights: {ada: 2, bob@example.com: 3}}}",
            a="{parent: org, users: {fairShare: false}, ordering: {by: shortest, turns: {}}}",
        ),
    ],
)
def test_what_can_be_kept_is_valid(valid: dict[str, str]) -> None:
    assert codes(valid) == []


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        (tree(a="{parent: b}"), [("a.yaml:4:16", "unknown-parent")]),
        (tree(a="{parent: a}"), [("a.yaml:4:16", "parent-cycle")]),
        (tree(a="{parent: c}", b="{parent: a}", c="{parent: b}", d="{parent: a}"), [("a.yaml:4:16", "parent-cycle")]),
        (tree(a=h100(8, 4)), [("a.yaml:4:52", "max-below-guaranteed")]),
        (tree(a="{quota: [{gpuType: H200}]}"), [("a.yaml:4:26", "unknown-gpu-type")]),
        (tree(a="{users: {weights: {ada: 2}}}"), [("a.yaml:4:8", "missing-field")]),
        (tree(a="{users: {fairShare: true, weights: {ada: 0}}}"), [("a.yaml:4:48", "out-of-range")]),
        (
            tree(a="{users: {fairShare: true, weight: {ada: 2}}}"),
            [("a.yaml:4:33", "unknown-field")],
        ),
        (tree(a="{users: {fairShare: false, weights: {ada: 2}}}"), [("a.yaml:4:43", "weights-without-fair-share")]),
        (
            tree(org="{users: {fairShare: true}}", a="{parent: org, ordering: {by: shortest, turns: {}}}"),
            [("a.yaml:4:53", "turns-beside-user-shares")],
        ),
        (
            tree(a="{users: {fairShare: false, groupWeights: {leads: 2}}}") | ACCESS,
            [("a.yaml:4:48", "weights-without-fair-share")],
        ),
        (tree(a="{users: {fairShare: false, reclaim: true}}"), [("a.yaml:4:43", "reclaim-without-fair-share")]),
        (
            tree(org="{users: {fairShare: true, reclaim: true}}", a="{parent: org, ordering: {by: gittins}}"),
            [("a.yaml:4:36", "reclaim-by-gittins")],
        ),
        (
            tree(a="{users: {fairShare: true}, ordering: {by: gittins, turns: {}}}"),
            [("a.yaml:4:27", "turns-beside-user-shares")],
        ),
        (
            tree(org="{ordering: {by: gittins, turns: {}}}", a="{parent: org, users: {fairShare: true}}"),
            [("a.yaml:4:40", "turns-beside-user-shares")],
        ),
        (tree(a="{quota: [{gpuType: H100}, {gpuType: H100}]}"), [("a.yaml:4:43", "duplicate-gpu-type")]),
        (
            tree(org=h100(8), a=h100(5, parent="org"), b=h100(4, parent="org")),
            [("org.yaml:4:44", "guarantees-exceed-parent")],
        ),
        (
            tree(org=h100(8), mid="{parent: org}", a=h100(9, parent="mid")),
            [("org.yaml:4:44", "guarantees-exceed-parent")],
        ),
        (tree(org=h100(most=8), a=h100(9, parent="org")), [("a.yaml:4:57", "above-parent-max")]),
        (
            tree(org=h100(most=8), mid="{parent: org}", a=h100(most=9, parent="mid")),
            [("a.yaml:4:50", "above-parent-max")],
        ),
        (tree(a=h100(81)), [("a.yaml:4:44", "guarantee-above-capacity")]),
        (tree(a="{ordering: {by: fifo, turns: {}}}"), [("a.yaml:4:36", "turns-without-cost")]),
        (tree(a="{quota: [{gpuType: H100, max: 8, perUser: 9}]}"), [("a.yaml:4:49", "per-user-above-max")]),
        (tree(a="{quota: [{gpuType: H100, lendable: 0}]}"), [("a.yaml:4:42", "lendable-without-guaranteed")]),
        (
            tree(a="{quota: [{gpuType: H100, guaranteed: 8, lendable: 8.5}]}"),
            [("a.yaml:4:57", "lendable-above-guaranteed")],
        ),
        (
            tree(
                org="{quota: [{gpuType: H100, guaranteed: 8, shared: true}]}",
                mid="{parent: org, quota: [{gpuType: H100, shared: true}]}",
                a="{parent: mid, preemptWithin: never, reclaimedFor: guaranteed, reclaimBelow: 50}",
            ),
            [("mid.yaml:4:53", "shared-below-shared")],
        ),
        (tree(a="{quota: [{gpuType: H100, shared: true}]}"), [("a.yaml:4:40", "shared-with-nobody")]),
    ],
)
def test_what_cannot_be_kept_is_reported_where_it_stands(
    files: dict[str, str], problems: list[tuple[str, str]]
) -> None:
    assert codes(files) == problems


def test_a_sum_names_its_parts() -> None:
    (problem,) = reading(tree(org=h100(8), a=h100(5, parent="org"), b=h100(4, parent="org"))).problems
    assert problem.message == "guaranteed 8 H100, but the queues below it 9 (a 5, b 4)"


def test_a_cycle_is_shown_whole() -> None:
    (problem,) = reading(tree(a="{parent: c}", b="{parent: a}", c="{parent: b}")).problems
    assert problem.message == "the queue is its own ancestor: a -> c -> b -> a"


def test_a_guarantee_that_hardware_cannot_keep_is_only_a_warning() -> None:
    assert reading(tree(a=h100(81))).compiled is not None


def test_a_chain_of_thousands_of_queues_is_refused() -> None:
    chain = {f"q{number}": f"{{parent: q{number - 1}}}" if number else "{}" for number in range(2000)}
    assert [code for _, code in codes(tree(**chain))] == ["too-deep"]


def shared(weights: str, **more: str) -> Reading:
    return reading(tree(a=f"{{users: {{fairShare: true, {weights}}}}}", **more) | ACCESS)


def test_a_user_weighs_what_its_own_entry_says_else_the_most_of_its_groups() -> None:
    compiled = shared("weights: {bob: 1}, groupWeights: {vision: 3, leads: 5}").checked()
    (users,) = (queue.users for queue in compiled.policy.queues)
    assert users is not None
    weights = {user: users.weight(user) for user in ("ada", "bob", "carol", "dora", "")}
    assert weights == {"ada": 5, "bob": 1, "carol": 3, "dora": 1, "": 1}


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ("groupWeights: {leads: 2}, weights: {ada: 1, new: 2}", None),
        (
            "groupWeights: {lead: 2}",
            "lists no members of group lead: its weight counts for no user. Did you mean leads?",
        ),
        ("groupWeights: {staff: 2}", "List them in its groups: rounds know no groups that tokens state."),
        ("weights: {'user:ada': 2}", "user:ada is weighed as a user of this very name. Write ada alone."),
        ("weights: {'group:leads': 2}", "Write leads in groupWeights."),
        ("weights: {caro: 2}", "no document gives access to a user caro. Did you mean carol?"),
        ("weights: {doar: 2}", "Did you mean dora?"),
        ("weights: {caro: 2, carol: 2}", None),
    ],
)
def test_weights_that_count_for_no_user_are_warned_of(weights: str, told: str | None) -> None:
    problems = shared(weights).problems
    assert [problem.severity for problem in problems] == ["warning"] * (told is not None)
    assert all(told is not None and f"{problem.message}. {problem.fix}".endswith(told) for problem in problems)


def test_three_thousand_weights_are_checked_against_as_many_names() -> None:
    """Comparing each with each would take a minute."""
    known = NearNames(f"student{number:05}@example.com" for number in range(3_000))
    wrong = [known.nearest(f"studnt{number:05}@example.com") for number in range(3_000)]
    assert wrong[7] == "student00007@example.com"
