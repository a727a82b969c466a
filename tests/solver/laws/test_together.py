"""First rounds of very tiny worlds beside the best that trying everything together finds: starts, evictions, shrinking and moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest

from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.script import scripted
from tests.solver.laws.together import beside_the_best, to_be_exact, very_tiny
from tests.solver.laws.worlds import World, world_of


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
        pytest.param(2000, True, production, (0, 0), marks=pytest.mark.long, id="exact-2000"),
        pytest.param(300, False, production, (0, 0), marks=pytest.mark.thorough, id="production"),
        pytest.param(2000, False, production, (0, 0), marks=pytest.mark.long, id="production-2000"),
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
    assert (count["fewer"], count["more harm"]) <= known
    assert count["more harm"] <= known[1]
    assert count["missing"] <= 0.001 * count["best"]


TWO = "nodes n1=4; queue a 3; queue b 0; run b1 b 3@n1 for 90m; run b2 b 1@n1 for 50m; wait a1 a 1 for 9m; wait a2 a 2 for 8m"
SHARES = "nodes n1=4; queue a 0; queue b 0; run b1 b 1@n1 for 90m; run b2 b 1@n1 for 80m; run b3 b 2@n1 for 70m; wait a1 a 1 for 9m; wait a2 a 1 for 8m"


def beside(text: str, *rounds: str) -> tuple[bool, int, bool]:
    """Of a round by hand: whether what is missing lies inside guarantees, how many GPUs, and whether it is as harmless as can be."""
    found = beside_the_best(world_of(text), scripted(*rounds))
    return bool(found.entitled.missing), found.missing // 1000, found.is_as_harmless


def test_what_trying_everything_finds_beside_rounds_by_hand() -> None:
    # One gang of three for both of them, GPU for GPU.
    assert beside(TWO, "evict b1 for a2; promise a2 n1 n1; promise a1 n1") == (False, 0, True)
