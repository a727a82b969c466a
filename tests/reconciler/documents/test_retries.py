"""RetryPolicy documents: what they become, and what is wrong with them in which place."""

from __future__ import annotations

import pytest

from reconciler.documents.job import read_job
from reconciler.model.problem import InvalidDocumentsError
from reconciler.model.retry_policy import NO_RETRIES, Backoff, FailurePattern, RetryPolicy, RetryRule
from solver.model.quantities import Duration
from tests.reconciler.documents.repository import codes, queue, reading

QUEUE = {"policies/a.yaml": queue("a", "{}")}


def retry_policy(spec: str, name: str = "training") -> str:
    return f"apiVersion: quorate.dev/v1\nkind: RetryPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_a_retry_policy_is_compiled_and_found_by_its_name() -> None:
    spec = "{maxRetries: 5, backoff: {initial: 1m, jitter: 0}, rules: [{on: {exitCodes: [77]}, action: fail}]}"
    operations = reading(QUEUE | {"policies/r.yaml": retry_policy(spec)}).checked().operations
    rules = (RetryRule(FailurePattern(exit_codes=(77,)), "fail"),)
    backoff = Backoff(Duration(60_000), jitter=0.0)
    assert operations.retry_policy("training") == RetryPolicy("training", 5, backoff, rules, "policies/r.yaml:3")
    assert operations.retry_policy("gone") == operations.retry_policy("") == NO_RETRIES


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("{}", []),
        ("{maxRetries: -1}", [("r.yaml:4:20", "out-of-range")]),
        ("{maxRetry: 1}", [("r.yaml:4:8", "unknown-field")]),
        ("{backoff: {initial: 0s}}", [("r.yaml:4:27", "malformed")]),
        ("{backoff: {initial: 20m}}", [("r.yaml:4:17", "rest-shrinks")]),
        ("{backoff: {initial: 20m, max: 10m}}", [("r.yaml:4:37", "rest-shrinks")]),
        ("{rules: [{on: {signals: [SIGSEGV, SIGKIL]}, action: retry}]}", [("r.yaml:4:41", "unknown-signal")]),
        ("{rules: [{on: {exitCodes: [], kinds: [node]}, action: retry}]}", [("r.yaml:4:33", "out-of-range")]),
        ("{rules: [{on: {kinds: [nodes]}, action: retry}]}", [("r.yaml:4:30", "unknown-value")]),
        ("{rules: [{on: {}, action: retry}]}", [("r.yaml:4:21", "out-of-range")]),
        ("{rules: [{on: {exitCodes: [1], signals: [SIGHUP]}, action: fail}]}", [("r.yaml:4:47", "never-both")]),
        (
            "{rules: [{on: {exitCodes: [1]}, action: fail}, {on: {exitCodes: [1]}, action: retry}]}",
            [("r.yaml:4:54", "unreachable-rule")],
        ),
    ],
)
def test_problems_are_found_in_their_place(spec: str, problems: list[tuple[str, str]]) -> None:
    assert codes(QUEUE | {"policies/r.yaml": retry_policy(spec)}) == problems


def test_a_service_names_no_retry_policy() -> None:
    text = (
        "apiVersion: quorate.dev/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  queue: a\n  type: service\n"
        "  retryPolicy: training\n  taskGroups:\n    - {name: w, replicas: 1, command: [x], shape: {}}\n"
    )
    with pytest.raises(InvalidDocumentsError) as invalid:
        read_job(text.encode(), "job.yaml")
    assert [(problem.line, problem.code) for problem in invalid.value.problems] == [(7, "service-never-fails")]
    assert read_job(text.replace("service", "gang").encode(), "job.yaml").spec.retry_policy == "training"
