"""First rounds of very tiny worlds beside the best that trying everything together finds: starts, evictions and moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest

from solver.plan.plan import Bind, Evict, Nominate, Shrink
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.script import scripted
from tests.solver.laws.together import beside_the_best, to_be_exact, very_tiny
from tests.solver.laws.worlds import world_of


def tally(worlds: int, decide: Decide, *, exact: bool) -> Counter[str]:
    """How first rounds compare. `missing`: thousandths of GPUs."""
    count = Counter[str]()
    for number, world in islice(very_tiny(), worlds):
        found = beside_the_best(to_be_exact(world) if exact else world, decide)
        layers = (found.entitled, found.fair)
        count["evicting"] += bool(found.held.evictions or found.held.moves)
        count["best"] += sum(sum(layer.best.values()) for layer in layers)
        count["missing"] += found.missing
        for what, is_so in (("fewer", found.missing > 0), ("more harm", not found.is_as_harmless)):
            count[what] += is_so
            if is_so:
                print(f"world {number}: {what}")
    return count


@pytest.mark.parametrize(
    ("worlds", "exact", "decide", "known"),
    [
        pytest.param(300, True, production, (0, 0), marks=pytest.mark.thorough, id="exact"),
        pytest.param(2000, True, production, (0, 3), marks=pytest.mark.long, id="exact-2000"),
        pytest.param(300, False, production, (0, 0), marks=pytest.mark.thorough, id="production"),
        pytest.param(2000, False, production, (0, 3), marks=pytest.mark.long, id="production-2000"),
        pytest.param(300, False, greedy, (1, 9), marks=pytest.mark.thorough, id="search"),
    ],
)
def test_first_rounds_are_as_good_as_trying_everything(
    worlds: int, exact: bool, decide: Decide, known: tuple[int, int], record_property: Callable[[str, object], None]
) -> None:
    count = tally(worlds, decide, exact=exact)
    record_property(
        "figure",
        f"of {worlds} first rounds, {count['evicting']} with evictions or moves: {count['fewer']} serve fewer GPUs than could be,"
        f" by {count['missing'] / 1000:g} of {count['best'] / 1000:g}; {count['more harm']} do more harm than must be",
    )
    assert count["fewer"] <= known[0]
    assert count["more harm"] <= known[1]
    assert count["missing"] <= (0.001 if decide is production else 0.01) * count["best"]


TWO = """nodes n1=4; queue a 3; queue b 0
run b1 b 3@n1 for 90m; run b2 b 1@n1 for 50m
wait a1 a 1 for 9m; wait a2 a 2 for 8m"""
SPREAD = """nodes n1=2 n2=2; queue a 2; queue b 0
run b1 b 1@n1 for 90m; run b2 b 1@n2 for 9m
wait a1 a 2 for 9m; wait c1 b 1 for 8m"""


def beside(text: str, *rounds: str) -> tuple[int, bool]:
    """Of a round by hand: how many GPUs are missing, and whether it is as harmless as can be."""
    found = beside_the_best(world_of(text), scripted(*rounds))
    return found.missing // 1000, found.is_as_harmless


def test_what_is_found_beside_rounds_by_hand() -> None:
    # One gang of three leaves for both of them, GPU for GPU.
    assert beside(TWO, "evict b1 for a2; promise a2 n1; promise a1 n1") == (0, True)
    assert beside(TWO, "evict b2 for a1; promise a1 n1") == (2, True)
    # The younger one would do for that one.
    assert beside(TWO.replace("; wait a2 a 2 for 8m", ""), "evict b1 for a1; promise a1 n1") == (0, False)
    # One could move to where another is free.
    assert beside(SPREAD, "move b2 n1 for a1; promise a1 n2") == (0, True)
    assert beside(SPREAD, "evict b2 for a1; promise a1 n2") == (1, False)
    assert beside(SPREAD) == (2, True)


MOVES_FIRST = """nodes n1=3 n2=2
queue b 5
queue x 0
queue x1 in x 0 max=3
queue x2 in x 0 weight=2
queue x3 in x 0
run j4 x1 1@n2 for 349.4m
run j3 x2 1@n1 for 192.3m
run j5 x2 1@n1 for 72.5m
wait j2 b 1 for 292.2m; wait j1 b 3 for 215.1m; wait j0 x3 1 for 142m"""
LEAVES = """nodes n1=4 n2=5
class high 1 minRuntime=90m
class low -1 coolDown=30m
class top 2
queue a 0 weight=2
queue b 5
run j3 a 1-3x1@n1,n1,n2 for 360.3m high
run j2 a 1@n1 for 344.2m high
run j4 a 2x1@n1,n2 for 205.4m high
run j5 b 2-3x1@n2,n2 for 390.5m high
wait j0 b 2x1 for 178m low
wait j1 b 2x2 for 71.1m top"""


def test_what_starts_leaves_free_places_to_jobs_that_move() -> None:
    plan = production(*world_of(MOVES_FIRST))
    assert {step.job for step in plan.steps if isinstance(step, Bind | Nominate)} >= {"j1", "j2"}


def test_nothing_leaves_for_the_growth_of_a_gang_that_leaves() -> None:
    plan = production(*world_of(LEAVES))
    evictions = [step for step in plan.steps if isinstance(step, Evict | Shrink)]
    assert "j5" in {step.job for step in evictions}
    assert "j5" not in {step.beneficiary for step in evictions}
