"""What befalls a request is drawn from a seed; what is left in the end is judged by what was wanted."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from hack.kubernetes.faults.judge import Standing, problems_of
from hack.kubernetes.faults.profile import HONEST, OF_ALL, OF_BINDINGS, OF_LISTS, OF_WATCHES, PROFILES, Draw, Profile
from hack.kubernetes.faults.world import Gang, Kind, script_of

PAIR = Gang("g", 2, 4, 0.0, refills=False, lives_s=None)


def standing(node: str, *devices: str, runs: bool = True) -> Standing:
    return Standing("g", node, devices, runs)


def kinds(pods: list[Standing], verdict: str = "waits", nodes: tuple[str, ...] = ("n1", "n2")) -> list[str]:
    return [problem.kind for problem in problems_of([PAIR], pods, nodes, {"g": verdict})]


def test_a_gang_runs_whole_or_waits_whole() -> None:
    waits, first, second = standing("", runs=False), standing("n1", "n1/0"), standing("n2", "n2/0")
    other = Standing("other", "n2", ("n2/3",), runs=True)
    assert kinds([first, second]) == []
    assert kinds([first, waits]) == ["partial"]
    assert kinds([first, standing("n2", runs=False)]) == ["partial"]
    assert kinds([waits, waits, other]) == []
    assert kinds([waits]) == ["lost"]


def test_a_gang_that_waits_has_a_verdict_and_no_room() -> None:
    waits, other = standing("", runs=False), Standing("other", "n2", ("n2/3",), runs=True)
    assert kinds([waits, waits]) == ["lost"]
    assert kinds([waits, waits, other], verdict="none") == ["lost"]
    assert kinds([waits, waits], nodes=("n1",)) == []


def test_the_same_request_always_meets_the_same() -> None:
    asked = [f"m0 GET /api/v1/pods/{number % 7}" for number in range(500)]
    first, again = Draw(5, 4.0), Draw(5, 4.0)
    drawn = [first(PROFILES[-1], OF_ALL, what) for what in asked]
    assert drawn == [again(PROFILES[-1], OF_ALL, what) for what in asked]
    assert drawn != [Draw(6, 4.0)(PROFILES[-1], OF_ALL, what) for what in asked]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_each_fault_comes_about_as_often_as_its_profile_says(profile: Profile) -> None:
    for among in (OF_ALL, OF_LISTS, OF_BINDINGS, OF_WATCHES):
        draw, count = Draw(1, 4.0), 4_000
        found = Counter(one.fault if (one := draw(profile, among, str(number))) else "" for number in range(count))
        for fault in among:
            rate = getattr(profile, fault.replace("-", "_"))
            assert abs(100 * found[fault] / count - rate) <= 0.5 + rate / 8, fault


def test_nothing_befalls_anybody_where_all_is_honest() -> None:
    draw = Draw(1, 4.0)
    assert not any(draw(HONEST, OF_ALL, str(number)) for number in range(500))


def test_scripts_are_of_their_seed_and_of_all_kinds() -> None:
    scripts = [script_of(seed) for seed in range(40)]
    assert scripts == [script_of(seed) for seed in range(40)]
    there = {happening.kind for script in scripts for happening in script.happenings}
    assert there == set(get_args(Kind))
    assert {script.members for script in scripts} == {1, 2}
