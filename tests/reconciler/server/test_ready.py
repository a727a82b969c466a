"""Which control planes are ready: a rolling update waits for each new one, and takes the old one away then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import pytest

from reconciler.control.control import NoPolicyError
from reconciler.control.runner import Condition, LoopStatus
from reconciler.server.services import ControlPlaneView

CONDITIONS: tuple[Condition, ...] = get_args(Condition)
A_PASS: Any = SimpleNamespace()


def watch(status: LoopStatus, *, policy: bool = True) -> ControlPlaneView:
    """Of a control plane whose loop fares so. Nothing else of it is there: whether it is ready is known without asking a store."""

    def current() -> Any:
        if not policy:
            raise NoPolicyError("no revision has been fetched yet")

    standing: Any = SimpleNamespace(current=current)
    runner: Any = SimpleNamespace(status=status)
    nothing: Any = None
    return ControlPlaneView(nothing, standing, runner, nothing)


def ready_at_first(condition: Condition) -> bool:
    return watch(LoopStatus(condition)).ready()


def ready_after_a_round(condition: Condition) -> bool:
    return watch(LoopStatus(condition, last=A_PASS)).ready()


def test_before_its_first_round_one_that_stands_by_is_ready_and_no_other() -> None:
    assert {condition for condition in CONDITIONS if ready_at_first(condition)} == {"standing-by"}


def test_after_a_round_one_stays_ready_until_it_has_ended() -> None:
    """Whoever takes its place would find the same API server, database and policy."""
    assert {condition for condition in CONDITIONS if not ready_after_a_round(condition)} == {"ended", "store-unusable"}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_without_a_policy_none_is_ready(condition: Condition) -> None:
    """One that stands by and can't read Git would lead, and decide nothing."""
    assert not watch(LoopStatus(condition), policy=False).ready()
    assert not watch(LoopStatus(condition, last=A_PASS), policy=False).ready()
