"""The control plane is killed and held up at every write, over many seeds; what really ran is judged afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hack.crash.__main__ import gates
from hack.crash.bugs import (
    BUGS,
    SEEDS_MAX,
    Patches,
    a_gang_is_started_before_it_is_claimed,
    a_gpu_obeys_orders_that_are_older_than_its_last,
    a_growth_on_its_way_starts_what_was_told_to_leave,
    an_act_and_its_event_are_two_writes,
    an_unanswered_start_counts_as_refused,
    caught_by,
    devices_are_released_before_the_stop_is_confirmed,
    tasks_start_before_their_gpu_is_partitioned,
    the_backend_ignores_the_epoch,
    the_stores_ignore_the_epoch,
)
from hack.crash.doors import LOOP_WRITES, Moment
from hack.crash.harness import Outcome, killed_at, run_seed
from reconciler.store.ledger import SqlLedger
from tests.drawn import DRAWING

SEEDS = range(4)
MORE_SEEDS = range(4, 48 if DRAWING.everything else 14)
CHUNKS = 3
"""So that they spread over the workers of pytest-xdist."""

SELDOM_WRITES = {"health.keep"}
"""What happens so seldom in these worlds that it need not come in them: a node that is judged anew."""
FORCED = (
    "ledger.call_off",
    "ledger.nominate",
    "ledger.withdraw",
    "ledger.unreserve",
    "ledger.keep_past_use",
    "ledger.stage",
)
"""What the workload sees to: an eviction that is called off because whoever it was for does not wait any more, and the like."""
FORCED_IN = 18, 66, 1
DEEDS = (
    "ledger.claim_all",
    "ledger.grow",
    "ledger.release_all",
    "checkpoints.record",
    "backend.submit",
    "backend.partition",
)
"""Those between which most can go wrong: the others are tried by `make test-long`."""


MARKS = {True: pytest.mark.thorough, False: pytest.mark.long}
"""By whether it is tried with every commit."""


def clean(outcomes: list[Outcome]) -> bool:
    found = [(outcome.seed, outcome.violations) for outcome in outcomes if outcome.violations]
    assert not found
    return True


def test_crashes_and_stale_leaders_break_nothing() -> None:
    outcomes = [run_seed(seed) for seed in SEEDS]
    assert clean(outcomes)
    assert sum(outcome.kills for outcome in outcomes) >= len(outcomes), "too few crashes to show anything"
    assert sum(outcome.stale_refused for outcome in outcomes) >= 1, "no stale leader was ever refused"


@pytest.mark.thorough
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nor_with_more_seeds(chunk: int) -> None:
    assert clean([run_seed(seed) for seed in MORE_SEEDS[chunk::CHUNKS]])


@pytest.mark.thorough
def test_evictions_are_called_off_and_promises_taken_back_while_control_planes_are_killed() -> None:
    outcomes = [run_seed(seed) for seed in FORCED_IN]
    assert clean(outcomes)
    at_gates = gates(outcomes)
    assert [write for write in FORCED if not at_gates[write][0]] == []


@pytest.mark.long
def test_every_gate_is_come_to() -> None:
    """The command says so of each, and fails where one is missed."""
    found = gates([run_seed(seed) for seed in range(100)])
    assert [write for write, (passed, _) in found.items() if not passed] == []


@pytest.mark.parametrize(
    ("write", "moments"),
    [
        pytest.param(write, moments, id="-".join((write, *moments)), marks=MARKS[write in DEEDS and len(moments) > 1])
        for write in LOOP_WRITES
        for moments in (("after", "before"), ("before",), ("after",))
    ],
)
def test_a_crash_at_this_write_breaks_nothing(write: str, moments: tuple[Moment, ...]) -> None:
    """At each of these moments, the next time at the next; then two writes of the kind are left in peace."""
    tries = 0
    killed: set[str] = set()

    def fate(_number: int, gate: str, moment: Moment) -> str:
        nonlocal tries
        if gate != write:
            return "pass"
        tries += moment == "before"
        turn = (tries - 1) % (len(moments) + 2)
        if moment not in moments[turn : turn + 1]:
            return "pass"
        killed.add(moment)
        return "kill"

    for number, seed in enumerate((2, 3, 7, 13, 9, *range(14, 24 if write in SELDOM_WRITES else 90))):
        if killed == set(moments) and (number >= 3 or not DRAWING.everything):
            break
        assert clean([run_seed(seed, fate)])
    assert killed == set(moments) or write in SELDOM_WRITES


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, 4])
def test_one_crash_at_any_gate_breaks_nothing(seed: int) -> None:
    undisturbed = run_seed(seed, lambda *_: "pass")
    assert clean([undisturbed])
    assert clean([run_seed(seed, killed_at(gate)) for gate in range(1, undisturbed.gates + 1)])


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(20))
def test_many_more_seeds(chunk: int) -> None:
    assert clean([run_seed(seed) for seed in range(1_000 + chunk * 100, 1_100 + chunk * 100)])


SOON = (
    the_stores_ignore_the_epoch,
    the_backend_ignores_the_epoch,
    devices_are_released_before_the_stop_is_confirmed,
    an_unanswered_start_counts_as_refused,
    a_gang_is_started_before_it_is_claimed,
    tasks_start_before_their_gpu_is_partitioned,
    an_act_and_its_event_are_two_writes,
)
"""What a few seeds find: that the harness can fail is shown with every commit, that it finds all the others by `make test-long`."""
SELDOM = (a_growth_on_its_way_starts_what_was_told_to_leave, a_gpu_obeys_orders_that_are_older_than_its_last)
"""What more than a hundred seeds do not find any more, since gangs live less evenly: it needs many more."""


@pytest.mark.long
@pytest.mark.parametrize("bug", SELDOM, ids=lambda bug: bug.__name__)
def test_a_seldom_bug_is_caught(bug: Callable[[], Patches]) -> None:
    assert caught_by(bug, 10 * SEEDS_MAX) is not None


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=MARKS[bug in SOON], id=bug.__name__) for bug in BUGS if bug not in SELDOM],
)
def test_a_seeded_bug_is_caught(bug: Callable[[], Patches]) -> None:
    assert caught_by(bug) is not None, f"{SEEDS_MAX} seeds did not find it"


def test_a_run_is_the_same_every_time() -> None:
    assert run_seed(7) == run_seed(7)


def test_the_harness_sees_a_loop_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: SqlLedger) -> dict[str, int]:
        raise RuntimeError("out of cheese")

    monkeypatch.setattr(SqlLedger, "attempts", broken)
    assert run_seed(0).violations[0] == "the loop died: RuntimeError: out of cheese"
