"""Answers that say no, as types that say who must act."""

from __future__ import annotations

import json

import pytest

from reconciler.kubernetes.client.refusals import (
    ConflictError,
    GoneError,
    KubernetesError,
    NotAllowedError,
    RefusedError,
    TooManyRequestsError,
    UnreachableError,
    refusal,
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RefusedError), (401, NotAllowedError), (403, NotAllowedError), (409, ConflictError), (410, GoneError),
        (422, RefusedError), (500, UnreachableError), (503, UnreachableError), (302, RefusedError),
    ],
)  # fmt: skip
def test_the_status_says_the_type(status: int, kind: type[KubernetesError]) -> None:
    error = refusal("GET /a", status, json.dumps({"reason": "Why", "message": "because"}).encode())
    assert type(error) is kind
    assert str(error) == f"GET /a: {status} Why: because"


@pytest.mark.parametrize(("field", "kind"), [("metadata.uid", ConflictError), ("spec.nodeName", RefusedError)])
def test_a_patch_of_another_uid_is_a_conflict(field: str, kind: type[KubernetesError]) -> None:
    body = {"reason": "Invalid", "details": {"causes": [{"reason": "FieldValueInvalid", "field": field}]}}
    assert type(refusal("PATCH /a", 422, json.dumps(body).encode())) is kind


def test_in_a_watch_the_code_is_in_the_body() -> None:
    assert type(refusal("watch /a", 0, b'{"code": 410, "reason": "Expired"}')) is GoneError


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("7", {}, 7), (None, {"details": {"retryAfterSeconds": 3}}, 3), (None, {}, 1), ("", {"details": None}, 1),
        ("Fri, 21 Nov 2026 07:28:00 GMT", {}, 1),
    ],
)  # fmt: skip
def test_when_to_ask_again(header: str | None, body: dict[str, object], seconds: float) -> None:
    error = refusal("POST /a", 429, json.dumps(body).encode(), header)
    assert isinstance(error, TooManyRequestsError)
    assert error.retry_after_s == seconds
    assert not error.budget


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway", b"\xff\xfe", b'{"code": "x"}', b"9" * 100_000])
def test_what_a_proxy_says_in_its_own_words_is_shown_in_part(body: bytes) -> None:
    error = refusal("GET /a", 502, body)
    assert isinstance(error, UnreachableError)
    assert len(str(error)) < 600
