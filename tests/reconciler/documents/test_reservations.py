"""Reservation documents: what they say, what is wrong with them, and what counts as their meaning."""

from __future__ import annotations

import pytest

from reconciler.gitops.review.meaning import document_changes
from solver.model.quantities import Instant
from tests.reconciler.documents.repository import POOL, codes, queue, reading

FILES = {
    "policies/a.yaml": queue("team", "{}"),
    "cluster-state/big.yaml": POOL,
}
WINDOW = 'from: "2026-12-01T08:00:00+01:00", until: "2026-12-03T08:00:00Z"'


def reservation(spec: str, name: str = "demo") -> str:
    return f"apiVersion: quorate.dev/v1\nkind: Reservation\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def test_a_reservation_is_compiled_with_its_place() -> None:
    spec = f"{WINDOW}, queue: team, users: [bob, ada], gpuType: H100, count: 2, gpusPerNode: 8"
    (known,) = reading(FILES | {"policies/r.yaml": reservation(spec)}).checked().policy.reservations
    assert (known.start, known.until) == (Instant.parse("2026-12-01T07:00:00Z"), Instant.parse("2026-12-03T08:00:00Z"))
    assert (known.queue, known.users) == ("team", ("ada", "bob"))
    assert (known.gpu_type, known.count, known.gpus_per_node) == ("H100", 2, 8)
    assert (known.holder, known.origin) == ("reservation:demo", "policies/r.yaml:3")


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        (f"{WINDOW}, queue: team, nodes: [big-01, big-02]", []),
        (f"{WINDOW}, users: [ada], nodes: [big-01]", []),
        ("queue: team, nodes: [big-01]", ["missing-field"]),
        ('from: "2026-12-01T08:00:00", until: "2026-12-03T08:00:00Z", queue: team, nodes: [big-01]', ["malformed"]),
        ('from: "2026-12-03T08:00:00Z", until: "2026-12-03T08:00:00Z", queue: team, nodes: [big-01]', ["wrong-window"]),
        ('from: "2026-12-01T08:00:00Z", until: "2027-03-01T08:00:00Z", queue: team, nodes: [big-01]', []),
        ('from: "2026-12-01T08:00:00Z", until: "2027-03-01T08:00:01Z", queue: team, nodes: [big-01]', ["wrong-window"]),
        (f"{WINDOW}, nodes: [big-01]", ["missing-field"]),
        (f"{WINDOW}, queue: taem, nodes: [big-01]", ["unknown-queue"]),
        (f"{WINDOW}, queue: team", ["missing-field"]),
        (f"{WINDOW}, queue: team, gpuType: H100, count: 2", ["missing-field"]),
        (f"{WINDOW}, queue: team, nodes: [big-01], count: 2", ["choose-one"]),
        (f"{WINDOW}, queue: team, nodes: [big-1]", ["unknown-node"]),
        (f"{WINDOW}, queue: team, gpuType: H10, count: 2, gpusPerNode: 8", ["unknown-gpu-type"]),
        (f"{WINDOW}, queue: team, gpuType: H100, count: 20, gpusPerNode: 4", []),
        (f"{WINDOW}, queue: team, gpuType: H100, count: 11, gpusPerNode: 8", ["more-than-there-is"]),
        (f"{WINDOW}, queue: team, gpuType: H100, count: 11, gpusPerNode: 5", ["more-than-there-is"]),
        (f"{WINDOW}, queue: team, gpuType: H100, count: 1, gpusPerNode: 9", ["more-than-there-is"]),
        (f"{WINDOW}, queue: team, gpuType: H100, count: 0, gpusPerNode: 8", ["out-of-range"]),
        (f"{WINDOW}, queue: team, nodes: [big-01], drain: true", ["unknown-field"]),
    ],
)
def test_problems_are_found(spec: str, problems: list[str]) -> None:
    assert [code for _, code in codes(FILES | {"policies/r.yaml": reservation(spec)})] == problems


def test_a_problem_says_where_and_what_to_do() -> None:
    spec = f"{WINDOW}, queue: taem, nodes: [big-01]"
    (problem,) = reading(FILES | {"policies/r.yaml": reservation(spec)}).problems
    assert str(problem) == "policies/r.yaml:4:81: error[unknown-queue]: there is no Queue taem. Did you mean team?"


LATER = 'from: "2026-12-03T08:00:00Z", until: "2026-12-04T08:00:00Z"'
INSIDE = 'from: "2026-12-02T08:00:00Z", until: "2026-12-02T09:00:00Z"'


@pytest.mark.parametrize(
    ("one", "other", "problems"),
    [
        (f"{WINDOW}, nodes: [big-01]", f"{LATER}, nodes: [big-01]", []),
        (f"{WINDOW}, nodes: [big-01]", f"{INSIDE}, nodes: [big-02, big-01]", ["kept-twice"]),
        (f"{WINDOW}, gpuType: H100, count: 6, gpusPerNode: 8", f"{LATER}, gpuType: H100, count: 6, gpusPerNode: 8", []),
        (
            f"{WINDOW}, gpuType: H100, count: 6, gpusPerNode: 8",
            f"{INSIDE}, gpuType: H100, count: 6, gpusPerNode: 8",
            ["more-than-there-is"],
        ),
        (f"{WINDOW}, gpuType: H100, count: 9, gpusPerNode: 8", f"{INSIDE}, nodes: [big-01]", []),
        (
            f"{WINDOW}, gpuType: H100, count: 9, gpusPerNode: 8",
            f"{INSIDE}, nodes: [big-01, big-02]",
            ["more-than-there-is"],
        ),
    ],
)
def test_documents_that_can_not_all_be_kept_are_problems_of_the_later(
    one: str, other: str, problems: list[str]
) -> None:
    files = {
        "policies/one.yaml": reservation(f"users: [ada], {one}", "one"),
        "policies/two.yaml": reservation(f"users: [ada], {other}", "two"),
    }
    found = codes(FILES | files)
    assert [code for _, code in found] == problems
    assert all(place.startswith("two.yaml") for place, _ in found)


def test_layout_is_not_meaning_and_everything_else_is() -> None:
    spec = f"{WINDOW}, queue: team, users: [ada, bob], nodes: [big-01, big-02]"
    same = 'until: "2026-12-03T08:00:00Z", from: "2026-12-01T07:00:00Z", queue: team, users: [bob, ada], nodes: [big-02, big-01]'
    other = spec.replace("2026-12-03", "2026-12-04")
    before, after, longer = (
        reading(FILES | {"policies/r.yaml": text}).checked()
        for text in (reservation(spec), "# a comment\n" + reservation(same), reservation(other))
    )
    assert before.policy.digest == after.policy.digest != longer.policy.digest
    assert list(document_changes(before, after)) == []
    (changed,) = document_changes(before, longer)
    assert (changed.document, [field.field for field in changed.fields]) == ("Reservation demo", ["until"])
