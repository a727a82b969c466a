"""The namespaces that queues list: what they become, and what is wrong with them."""

from __future__ import annotations

import pytest

from solver.model.workload import KubernetesNamespace
from solver.policy.namespace_rules import NamespaceRules
from tests.reconciler.documents.repository import POOL, codes, queue, reading

CLASS = "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: batch}\nspec: {value: 1}\n"
FILES = {"policies/batch.yaml": CLASS, "cluster-state/big.yaml": POOL}


def listing(entries: str, more: str = "") -> str:
    return f"{{access: {{namespaces: [{entries}]}}{more}}}"


def selecting(labels: str, more: str = "") -> str:
    return listing(f"{{selector: {{matchLabels: {{{labels}}}}}{more}}}")


def files(**queues: str) -> dict[str, str]:
    return FILES | {f"policies/{name}.yaml": queue(name, spec) for name, spec in queues.items()}


def rules_of(**queues: str) -> NamespaceRules:
    return NamespaceRules.of(reading(files(**queues)).checked().policy)


def test_each_entry_knows_its_line() -> None:
    spec = "{access: {namespaces: [{name: vision},\n  {name: lab-*, priorityClasses: [batch], localQueues: [b, a]}]}}"
    (queue_a,) = reading(files(a=spec)).checked().policy.queues
    assert [(entry.name, entry.origin) for entry in queue_a.access.namespaces] == [
        ("lab-*", "policies/a.yaml:5"),
        ("vision", "policies/a.yaml:4"),
    ]
    assert queue_a.access.namespaces[0].local_queues == ("a", "b")


def test_lines_change_no_digest_and_namespaces_do() -> None:
    plain, spread, none = (
        reading(files(a=spec)).checked().policy.digest
        for spec in (listing("{name: vision}"), "\n  {access: {namespaces: [\n  {name: vision}]}}", "{}")
    )
    assert plain == spread != none


def test_the_closest_entry_gives_the_default_queue_and_the_names() -> None:
    rules = rules_of(
        a=listing("{name: '*', default: true, localQueues: [main]}"),
        b=listing("{name: lab-*, default: true}"),
        c=listing("{name: lab-7*, default: true, localQueues: [main]}"),
        d=listing("{name: lab-7, default: true}, {name: lab-8}"),
    )
    assert [
        rules.default_queue(KubernetesNamespace(name)) for name in ("x", "lab", "lab-1", "lab-77", "lab-7", "lab-8")
    ] == [
        *("a", "a", "b", "c", "d", "b"),
    ]
    assert [rules.local_queue(KubernetesNamespace(name), "main") for name in ("x", "lab-1", "lab-7")] == ["a", "a", "c"]
    assert rules.local_queue(KubernetesNamespace("x"), "other") is None
    assert rules_of(a="{}").default_queue(KubernetesNamespace("x")) is None


def test_a_name_is_closer_than_labels_and_more_labels_than_fewer_and_any_than_a_beginning() -> None:
    rules = rules_of(
        a=listing("{name: lab-*, default: true, localQueues: [main]}"),
        b=listing("{selector: {matchLabels: {team: vision}}, default: true, localQueues: [main]}"),
        c=listing("{selector: {matchLabels: {tier: gpu, team: vision}}, default: true}"),
        d=listing("{name: lab-7, default: true}"),
    )
    some, more = ("env=x", "team=vision"), ("team=vision", "tier=gpu")
    spaces = [("lab-1", ()), ("lab-1", some), ("lab-1", more), ("lab-7", more), ("x", some), ("x", ("team=vis",))]
    found = [rules.default_queue(KubernetesNamespace(*space)) for space in spaces]
    assert found == ["a", "b", "c", "d", "b", None]
    assert rules.local_queue(KubernetesNamespace("lab-1", more), "main") == "b"


@pytest.mark.parametrize(
    ("a", "b", "problems"),
    [
        (listing("{name: vision, default: true}, {name: vision-*}"), listing("{name: '*', default: true}"), []),
        (listing("{name: Vision}"), "{}", [("a.yaml:4:37", "malformed")]),
        (listing("{name: 'v*n'}"), "{}", [("a.yaml:4:37", "malformed")]),
        (listing("{name: vision-}"), "{}", [("a.yaml:4:37", "malformed")]),
        (listing("{namespace: vision}"), "{}", [("a.yaml:4:30", "missing-field"), ("a.yaml:4:31", "unknown-field")]),
        (listing("{name: v}, {name: v}"), listing("{name: v}"), [("a.yaml:4:48", "duplicate-namespace")]),
        (listing("{name: v, priorityClasses: [bach]}"), "{}", [("a.yaml:4:58", "unknown-priority-class")]),
        (
            listing("{name: v, priorityClasses: [batch]}", ", priorityClasses: [test]"),
            "{}",
            [("a.yaml:4:58", "class-not-taken"), ("a.yaml:4:87", "unknown-priority-class")],
        ),
        (listing("{name: v, default: true}"), "{parent: a}", [("a.yaml:4:49", "default-not-a-leaf")]),
        (
            listing("{name: v, default: true}"),
            listing("{name: v, default: true}"),
            [("b.yaml:4:49", "second-default-queue")],
        ),
        (listing("{name: v, localQueues: [b]}"), "{}", [("a.yaml:4:54", "local-queue-is-a-queue")]),
        (listing("{name: v, localQueues: [a]}"), "{}", []),
        (
            listing("{name: v, localQueues: [main]}"),
            listing("{name: v, localQueues: [other, main]}"),
            [("b.yaml:4:61", "second-local-queue")],
        ),
        (
            listing("{name: v, localQueues: [main]}"),
            listing("{name: w, localQueues: [main]}"),
            [],
        ),
        (selecting("team: a"), selecting("team: b"), []),
        (selecting("team: a, example.com/tier: ''"), "{}", []),
        (listing("{name: v, selector: {matchLabels: {team: a}}}"), "{}", [("a.yaml:4:30", "choose-one")]),
        (listing("{selector: {}}"), "{}", [("a.yaml:4:31", "missing-field")]),
        (selecting(""), "{}", [("a.yaml:4:55", "out-of-range")]),
        (selecting("team: a b"), "{}", [("a.yaml:4:62", "malformed")]),
        (selecting("Team/x/y: a"), "{}", [("a.yaml:4:56", "malformed")]),
        (selecting("team: 7"), "{}", [("a.yaml:4:62", "wrong-type")]),
        (selecting("kubernetes.io/metadata.name: v"), "{}", [("a.yaml:4:85", "label-is-the-name")]),
        (
            listing("{selector: {matchExpressions: []}}"),
            "{}",
            [("a.yaml:4:42", "unknown-field")],
        ),
        (
            listing("{selector: {matchLabels: {team: a}}}, {selector: {matchLabels: {team: a}}}"),
            "{}",
            [("a.yaml:4:79", "duplicate-namespace")],
        ),
        (
            selecting("team: a", ", default: true"),
            selecting("team: a", ", default: true"),
            [("b.yaml:4:76", "second-default-queue")],
        ),
        (
            selecting("team: a", ", default: true, localQueues: [m, main]"),
            selecting("tier: gpu", ", default: true, localQueues: [main]"),
            [("b.yaml:4:78", "second-default-queue"), ("b.yaml:4:98", "second-local-queue")],
        ),
        (selecting("team: a", ", default: true"), selecting("team: a, tier: gpu", ", default: true"), []),
        (selecting("team: a, tier: x", ", default: true"), selecting("team: b, env: y", ", default: true"), []),
    ],
)
def test_what_is_wrong_has_its_place(a: str, b: str, problems: list[tuple[str, str]]) -> None:
    assert codes(files(a=a, b=b)) == problems


def test_a_second_default_names_both_places() -> None:
    spec = listing("{name: lab-*, default: true}")
    (problem,) = reading(files(a=spec, b=spec)).problems
    assert problem.file == "policies/b.yaml"
    assert problem.message == "the default queue of namespace lab-* is a already, at policies/a.yaml:4"


def test_names_that_may_be_in_what_can_not_be_read_are_not_called_unknown() -> None:
    spec = listing("{name: v, priorityClasses: [bach]}")
    assert codes(files(a=spec) | {"policies/x.yaml": "a: ["}) == [("x.yaml:2:1", "syntax")]
