"""PolicyTest documents: what is wrong with them, in which place."""

from __future__ import annotations

import pytest

from tests.reconciler.documents.repository import POOL, codes, queue, reading

REPOSITORY = {
    "cluster-state/pool.yaml": POOL,
    "policies/org.yaml": queue("org", "{quota: [{gpuType: H100}]}"),
    "policies/a.yaml": queue("a", "{parent: org}"),
    "policies/c.yaml": "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: high}\nspec: {value: 9}\n",
}
JOB = "{name: j, queue: a, gpus: 1}"
STAY = "{must: stay}"


def policy_test(jobs: str = JOB, then: str = STAY, more: str = "for: 2h") -> str:
    """Jobs begin in line 8, column 12; statements in line 9, column 10."""
    return (
        "apiVersion: quorate.dev/v1\nkind: PolicyTest\nmetadata: {name: t}\nspec:\n  why: w\n"
        f"  {more}\n  given:\n    jobs: [{jobs}]\n  then: [{then}]\n"
    )


def found(text: str) -> list[tuple[str, str]]:
    return codes(REPOSITORY | {"policies/tests/t.yaml": text})


def test_a_policy_test_lies_beside_the_policy_and_not_in_it() -> None:
    read = reading(REPOSITORY | {"policies/tests/t.yaml": policy_test()})
    assert [(test.name, test.value.why, test.origin) for test in read.tests] == [("t", "w", "policies/tests/t.yaml:3")]
    assert read.compiled == reading(REPOSITORY).compiled
    assert codes(REPOSITORY | {"policies/t.yaml": policy_test()}) == [("t.yaml:2:7", "wrong-folder")]


@pytest.mark.parametrize(
    ("job", "column", "code"),
    [
        ("{name: j, queue: b, gpus: 1}", 29, "unknown-queue"),
        ("{name: j, queue: org, gpus: 1}", 29, "not-a-leaf"),
        ("{name: j, queue: a}", 12, "missing-field"),
        ("{name: j, queue: a, gpus: 1, taskGroups: [{name: w, replicas: 1, shape: {}}]}", 12, "choose-one"),
        ("{name: j, queue: a, gpus: 1, priorityClass: hihg}", 56, "unknown-priority-class"),
        ("{name: j, queue: a, gpus: 1, gpuTypes: [H10]}", 52, "unknown-gpu-type"),
        ("{name: j, queue: a, gpus: 1, gpuType: H100}", 41, "unknown-field"),
        ("{name: j, queue: a, gpus: 1, minReplicas: 2}", 54, "min-above-replicas"),
        ("{name: j, queue: a, gpus: 1, running: {since: 1h, on: [big-99]}}", 67, "unknown-node"),
        ("{name: j, queue: a, gpus: 1, running: {}}", 41, "missing-field"),
        ("{name: j, queue: a, gpus: 1, submittedAt: 3h}", 54, "after-the-end"),
        ("{name: j, queue: a, gpus: 1, submittedAt: 1h, waited: 1h}", 54, "choose-one"),
        ("{name: j, queue: a, gpus: 1}, {name: j, queue: a, gpus: 1}", 49, "duplicate-name"),
        ("{name: j, queue: a, count: 2, gpus: 1}, {name: j-2, queue: a, gpus: 1}", 59, "duplicate-name"),
        (
            "{name: j, queue: a, replicas: 2, taskGroups: [{name: w, replicas: 1, shape: {gpus: 1}}]}",
            42,
            "choose-one",
        ),
        (
            "{name: j, queue: a, running: {since: 1h}, taskGroups: [{name: w, replicas: 1, shape: {gpuFraction: 0.5}}]}",
            41,
            "parts-run",
        ),
        (
            "{name: j, queue: a, taskGroups: [{name: w, replicas: 1, shape: {gpus: 1}, nodes: fast}]}",
            93,
            "nodes-in-snapshots",
        ),
    ],
)
def test_problems_of_jobs_are_found_in_their_place(job: str, column: int, code: str) -> None:
    assert found(policy_test(job)) == [(f"tests/t.yaml:8:{column}", code)]


@pytest.mark.parametrize(
    ("statement", "column", "code"),
    [
        ("{job: i, must: start}", 16, "unknown-job"),
        ("{job: j, must: begin}", 25, "unknown-value"),
        ("{job: j, must: start, because: held}", 41, "detail-unused"),
        ("{job: j, must: wait, because: quota-mx}", 40, "unknown-reason"),
        ("{job: j, must: start, before: i}", 40, "unknown-job"),
        ("{job: j, queue: a, must: stay}", 26, "choose-one"),
        ("{queue: b, must: stay}", 18, "unknown-queue"),
        ("{priorityClass: low, must: stay}", 26, "unknown-priority-class"),
        ("{job: j, must: hold, atLeast: 8}", 25, "of-queues"),
        ("{queue: a, must: hold}", 27, "missing-field"),
        ("{queue: a, must: hold, gpuType: V100, atLeast: 1}", 42, "unknown-gpu-type"),
        ("{queue: a, must: hold, atLeast: 1, after: 3h}", 52, "after-the-end"),
        ("{job: r, must: start}", 25, "runs-already"),
    ],
)
def test_problems_of_statements_are_found_in_their_place(statement: str, column: int, code: str) -> None:
    jobs = f"{JOB}, {{name: r, queue: a, gpus: 1, running: {{since: 1h}}}}"
    assert found(policy_test(jobs, statement)) == [(f"tests/t.yaml:9:{column}", code)]


@pytest.mark.parametrize(
    ("more", "column", "code"),
    [
        ("events: [{at: 1h, lose: [big-01]}]\n  for: 30m", 17, "after-the-end"),
        ("events: [{at: 1h}]\n  for: 2h", 12, "missing-field"),
        ("events: [{at: 1h, lose: [big-1]}]\n  for: 2h", 28, "unknown-node"),
        ("events: [{at: 1h, cancel: [k]}]\n  for: 2h", 30, "unknown-job"),
        ("events: [{at: 1h, cancel: [late]}]\n  for: 2h", 30, "not-there-yet"),
    ],
)
def test_problems_of_events_are_found_in_their_place(more: str, column: int, code: str) -> None:
    late = "{name: late, queue: a, gpus: 1, submittedAt: 90m}" if "late" in more else JOB
    assert found(policy_test(late, more=more)) == [(f"tests/t.yaml:6:{column}", code)]


def test_what_would_take_too_long_is_refused_before_anybody_counts() -> None:
    jobs = ", ".join(f"{{name: j{number}, queue: gone, gpus: 1, count: 1000}}" for number in range(11))
    assert found(policy_test(jobs, more="for: 9999w")) == [
        ("tests/t.yaml:6:8", "too-long"),
        ("tests/t.yaml:8:11", "too-many-jobs"),
    ]
    pools = ", ".join(f"{{name: p{number}, nodes: 10000}}" for number in range(2))
    text = policy_test().replace("  given:\n", f"  given:\n    pools: [{pools}]\n")
    assert found(text) == [("tests/t.yaml:8:12", "too-many-nodes")]


def test_the_nearest_reason_and_job_are_offered() -> None:
    statements = "{job: jj, must: start}, {job: j, must: wait, because: quota-mx}"
    problems = reading(REPOSITORY | {"policies/tests/t.yaml": policy_test(then=statements)}).problems
    assert [problem.fix for problem in problems] == ["Did you mean j?", "Did you mean quota-max?"]


def test_pools_written_in_place_count_instead_of_the_declared_ones() -> None:
    job = "{name: j, queue: a, gpus: 1, gpuTypes: [H100], running: {since: 1h, on: [n-1]}}"
    pools = "pools: [{name: n, nodes: 2, gpuType: A100}, {name: n, nodes: 1}]\n    lost: [big-01]"
    text = policy_test(job).replace("  given:\n", f"  given:\n    {pools}\n")
    assert found(text) == [
        ("tests/t.yaml:8:56", "duplicate-name"),
        ("tests/t.yaml:9:12", "unknown-node"),
        ("tests/t.yaml:10:52", "unknown-gpu-type"),
    ]


def test_nothing_is_called_unknown_where_a_file_can_not_be_read() -> None:
    unreadable = {
        "policies/b.yaml": "{",
        "policies/tests/t.yaml": policy_test("{name: j, queue: b, gpus: 1, gpuTypes: [X]}"),
    }
    assert [code for place, code in codes(REPOSITORY | unreadable) if "tests/" in place] == []
