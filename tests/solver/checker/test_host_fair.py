"""What the checker says where jobs without GPUs take more of others than their fair share of CPU and memory allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from solver.checker.check import violations
from solver.preemption.host_claim import HostClaim
from solver.quota.host_dues import HostDues
from solver.round.solve import solve
from tests.scenarios.loader import Scenario, read_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def scenario(name: str) -> Scenario:
    """One of those of tests/scenarios."""
    return read_scenario(SCENARIOS / f"{name}.yaml")


def rules_broken(known: Scenario) -> set[str]:
    """By the plan that the solver makes as it is now."""
    found = violations(known.snapshot, known.policy, solve(known.snapshot, known.policy, None))
    return {violation.rule for violation in found}


def test_a_job_beyond_its_fair_share_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = scenario("host-fair-share-takes-cores-back")
    assert rules_broken(known) == set()
    monkeypatch.setattr(HostDues, "lies_inside_fair", lambda *_: True)
    monkeypatch.setattr(HostClaim, "_is_fair", lambda *_: True)
    monkeypatch.setattr(HostClaim, "_above", lambda _, places: places)
    assert rules_broken(known) == {"S12"}


def test_a_queue_at_its_fair_share_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = scenario("host-fair-share-leaves-a-queue-at-its-share-alone")
    assert rules_broken(known) == set()
    monkeypatch.setattr(HostClaim, "_is_fair", lambda *_: True)
    monkeypatch.setattr(HostClaim, "_above", lambda _, places: places)
    assert rules_broken(known) == {"S12"}


def test_nothing_leaves_for_a_fair_share_where_guarantees_alone_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    known = scenario("host-fair-share-waits-where-guarantees-alone-are-taken-back")
    monkeypatch.setattr("solver.preemption.eviction.may_reclaim_fair_share", lambda *_: True)
    assert "S4" in rules_broken(known)
