"""Many agents together: their beats are spread evenly at any time, also when a control plane has just come back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from reconciler.node.agent.pace import AgentPace

AGENTS = 4_000
PACE = AgentPace()


def beats(connected_s: float, until_s: float, chance: random.Random) -> Iterator[float]:
    """When an agent beats that has connected then."""
    at_s = connected_s + PACE.until_first_beat_s(chance.random())
    while at_s < until_s:
        yield at_s
        at_s += PACE.until_beat_s(chance.random())


@pytest.mark.parametrize("failures", [0, 1, 3, 12])
def test_beats_do_not_fall_together_after_an_outage(failures: int) -> None:
    """`failures`: so many tries had every agent behind it when the control plane came back."""
    chance = random.Random(failures)
    connected = [PACE.rest_s(failures, chance.random()) for _ in range(AGENTS)]
    # From when on all of them beat, for six beats.
    begin_s = int(max(connected) + PACE.beat_s) + 1
    seconds = Counter(int(at_s) for each in connected for at_s in beats(each, begin_s + 30, chance) if at_s >= begin_s)
    expected = AGENTS / PACE.beat_s
    assert len(seconds) == 30
    # Five standard deviations of a count are a sixth of it. Together they would be five times as many in one second.
    assert all(abs(count - expected) < expected / 6 for count in seconds.values()), seconds


def test_beats_keep_the_pace_on_average() -> None:
    chance = random.Random(7)
    count = sum(len(list(beats(0.0, 500.0, chance))) for _ in range(100))
    assert abs(count / 100 - 100) < 1
    for drawn in (0.0, 0.5, 0.999):
        assert 0 <= PACE.until_first_beat_s(drawn) < PACE.beat_s
        assert 0.8 * PACE.beat_s <= PACE.until_beat_s(drawn) < 1.2 * PACE.beat_s
