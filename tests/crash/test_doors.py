"""What counts as a write by a leader that was followed: only what arrived."""

from __future__ import annotations

from hack.crash.doors import Gates
from reconciler.protocols.backend import AttemptKey, Epoch
from solver.model.workload import JobName

A, B = (JobName("a"), 1), (JobName("b"), 1)


def forgetting(lost: set[AttemptKey], *epochs: int) -> list[str]:
    """Both attempts are to be forgotten, under one epoch after the other, and the messages about some of them are lost."""
    gates = Gates(lambda *_: None)
    for epoch in epochs:
        gates.call("backend", "forget_all", lambda *_: dict.fromkeys(lost, "lost"), (A, B), Epoch(epoch))
    return gates.stale_accepted


def test_a_stale_message_that_arrives_is_a_write() -> None:
    assert forgetting(set(), 2, 1) == forgetting({A}, 2, 1) == ["backend.forget_all under epoch 1 after 2"]


def test_messages_that_are_all_lost_are_none() -> None:
    assert forgetting({A, B}, 2, 1) == []
