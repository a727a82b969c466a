"""What fails between agents and control planes makes them slower: networks, stores, machines, disks and clocks, in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest

from hack.agents.bugs import BUGS, a_stop_is_sent_once, caught_by
from hack.agents.run import FAULTS, NETWORK, run_seed
from hack.crash.bugs import devices_are_released_before_the_stop_is_confirmed
from tests.drawn import DRAWING

SEEDS = range(1, 40 if DRAWING.everything else 6)
SOON = a_stop_is_sent_once, devices_are_released_before_the_stop_is_confirmed
"""What the first seed shows: the others are looked for by `make test-long`."""
MARKS = {True: pytest.mark.thorough, False: pytest.mark.long}


def test_a_network_that_fails_ends_nothing_and_heals() -> None:
    done = run_seed(0, NETWORK)
    assert done.violations == ()
    assert len(done.befell) == len(NETWORK)


@pytest.mark.thorough
def test_nor_does_it_with_more_seeds() -> None:
    done = [run_seed(seed, NETWORK) for seed in SEEDS]
    assert [problem for one in done for problem in one.violations] == []


@pytest.mark.thorough
def test_nothing_has_two_owners_and_all_comes_to_rest_whatever_fails() -> None:
    done = [run_seed(seed, FAULTS) for seed in SEEDS]
    assert [problem for one in done for problem in one.violations] == []
    assert set(sum((one.befell for one in done), Counter())) == set(FAULTS)


@pytest.mark.thorough
def test_a_run_is_the_same_every_time() -> None:
    assert run_seed(3) == run_seed(3)


@pytest.mark.parametrize("bug", [pytest.param(bug, marks=MARKS[bug in SOON], id=bug.__name__) for bug in BUGS])
def test_a_seeded_bug_is_caught(bug) -> None:  # type: ignore[no-untyped-def]
    assert caught_by(bug) is not None
