"""A review in a process of its own is the same review, and one that dies is no answer."""

from __future__ import annotations

import os

import pytest

from reconciler.gitsource.errors import NotReadyToPlanError
from reconciler.review import apart
from reconciler.review.compare import review
from reconciler.review.side import Side
from solver.program.highs import optimise
from solver.world.snapshot import snapshot_of
from tests.review.test_guardrails import NOW, compiled

BASE, HEAD = Side("base", "a" * 40, compiled()), Side("head", "b" * 40, compiled(guaranteed=8))
EMPTY = snapshot_of(NOW, BASE.compiled.nodes, ())


def dies(*_: object) -> None:
    os._exit(9)


def test_it_says_the_same() -> None:
    assert apart.review_apart(EMPTY, BASE, HEAD) == review(EMPTY, BASE, HEAD, optimise)


def test_one_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_answer", dies)
    with pytest.raises(NotReadyToPlanError, match="could not be planned: exit code 9"):
        apart.review_apart(EMPTY, BASE, HEAD)
