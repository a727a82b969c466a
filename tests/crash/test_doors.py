"""What counts as a write by a leader that was followed: only what arrived."""

from __future__ import annotations

import pytest

from hack.crash import doors
from hack.crash.doors import PROTOCOLS, USERS, WITHOUT_EPOCH, WRITES, Gates, writes_of
from hack.crash.harness import run_seed
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


WRITES_NOTHING = {"jobs.accepts", "ledger.renew"}
"""The one raises where none is taken; the other is for a thread of its own, which prolongs the lease."""


def test_every_write_of_a_protocol_has_a_gate() -> None:
    """One that carries an epoch, or returns nothing, changes something: it is the loop's, a user's, or said to be neither."""
    for door, protocol in PROTOCOLS.items():
        methods = {name: act for name, act in vars(protocol).items() if callable(act) and not name.startswith("_")}
        silent = {name for name, act in methods.items() if act.__annotations__.get("return") == "None"}
        known = {*WRITES[door], *USERS.get(door, ()), *(name for name in methods if f"{door}.{name}" in WRITES_NOTHING)}
        assert silent <= known, door
        assert set(writes_of(protocol)) <= set(WRITES[door]), door
        assert {*WITHOUT_EPOCH.get(door, ()), *USERS.get(door, ())} <= methods.keys(), door


def test_gates_are_read_off_the_protocol() -> None:
    once_without = {"call_off", "nominate", "withdraw", "unreserve", "keep_past_use", "keep_clocks"}
    assert once_without <= set(WRITES["ledger"])
    assert {"claims", "held_by", "past_use"}.isdisjoint(WRITES["ledger"])


def test_a_write_without_a_gate_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the protocols say: the store itself is watched."""
    fewer = tuple(each for each in WRITES["ledger"] if each != "claim_all")
    monkeypatch.setattr(doors, "WRITES", {**WRITES, "ledger": fewer})
    found = run_seed(3, lambda *_: "pass").violations
    assert [problem for problem in found if problem.startswith("ungated write")]
