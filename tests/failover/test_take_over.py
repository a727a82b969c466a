"""A synchronous standby of PostgreSQL takes over: nothing acknowledged is lost, and a former primary acknowledges nothing."""

from __future__ import annotations

from typing import get_args

import pytest

from hack.store_faults.standby import TakeOver, take_over


@pytest.mark.postgresql
@pytest.mark.long
@pytest.mark.parametrize("kind", get_args(TakeOver))
def test_nothing_is_lost_where_a_standby_takes_over(kind: TakeOver) -> None:
    for seed in range(3):
        assert take_over(seed, kind).problems == ()


@pytest.mark.postgresql
@pytest.mark.long
def test_a_standby_that_is_not_waited_for_is_found_out() -> None:
    assert take_over(0, "split", synchronous=False).late > 0
