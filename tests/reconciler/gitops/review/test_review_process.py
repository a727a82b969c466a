"""A review in a process of its own is the same review, and one that dies is no answer."""

from __future__ import annotations

import multiprocessing.spawn
import os
import sys
from concurrent.futures import Future
from threading import Thread

import pytest

from reconciler.gitops.review import review_process
from reconciler.gitops.review.comparison import review
from reconciler.gitops.review.side import ReviewSide
from reconciler.gitops.source.errors import NotReadyToPlanError
from reconciler.model.review_findings import Review
from solver.milp.highs import optimise
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Cpu, Memory
from solver.model.snapshot import snapshot_of
from tests.reconciler.gitops.review.test_guardrails import NOW, compiled

BASE, HEAD = ReviewSide("base", "a" * 40, compiled()), ReviewSide("head", "b" * 40, compiled(guaranteed=8))
EMPTY = snapshot_of(NOW, BASE.compiled.nodes, ())


def dies(*_: object) -> None:
    os._exit(9)


def test_it_says_the_same() -> None:
    assert review_process.review_apart(EMPTY, BASE, HEAD) == review(EMPTY, BASE, HEAD, optimise)


def test_one_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_process, "_answer", dies)
    with pytest.raises(NotReadyToPlanError, match="could not be planned: exit code 9"):
        review_process.review_apart(EMPTY, BASE, HEAD)


def test_one_that_dies_before_it_has_heard_what_is_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # More than a pipe holds while nobody reads it.
    nodes = tuple(Node(NodeName(f"node-{number}"), "pool", Cpu(0), Memory(0)) for number in range(2_000))
    monkeypatch.setattr(multiprocessing.spawn, "get_command_line", lambda **_: [sys.executable, "-c", "exit(7)"])
    answer: Future[Review] = Future()

    def ask() -> None:
        try:
            answer.set_result(review_process.review_apart(snapshot_of(NOW, nodes, ()), BASE, HEAD))
        except BaseException as error:  # noqa: BLE001  (raised again below)
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    with pytest.raises(NotReadyToPlanError, match="could not be planned: exit code 7"):
        answer.result(30)
