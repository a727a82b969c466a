"""A day of churn breaks no rule, and a soak notices what does; months are run by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hack.soak.bugs import BUGS, Patches, caught_by
from hack.soak.shards import added_up
from hack.soak.soak import Sample, Soak, growth, longest
from hack.soak.stretch import Stretch
from tests.drawn import DRAWING


def test_hours_of_churn_break_no_rule_and_go_on_where_they_were_put_by(tmp_path: Path) -> None:
    came = Soak(1, tmp_path / "whole.db").run(6)
    assert came.problems == []
    assert came.counts["Bind"] > 0

    half = Soak(1, tmp_path / "half.db")
    half.run(3)
    half.put_by(tmp_path / "kept")
    later = Soak.resumed(tmp_path / "kept", tmp_path / "later.db")
    assert (later.run(6).counts, later.outcome.steps, later.stretch) == (came.counts, came.steps, 1)


def test_a_stretch_is_taken_up_again_from_the_newest_that_is_whole(tmp_path: Path) -> None:
    said = list[str]()
    assert Stretch(2, 3, tmp_path).run(said.append)["hours"] >= 2
    (tmp_path / "seed-3" / "0000009.part").mkdir()
    again = Stretch(2, 3, tmp_path).run(said.append)
    assert (again["stretches"], again["problems"], again["growth"]["objects"]) == (2, [], None)
    assert len(said) >= 2
    assert len([kept for kept in (tmp_path / "seed-3").iterdir() if kept.name.isdigit()]) == 1


@pytest.mark.thorough
def test_neither_do_days_and_books_agree(tmp_path: Path) -> None:
    came = Soak(2, tmp_path / "quorate.db").run(1_000 if DRAWING.everything else 60)
    assert came.problems == []
    assert came.counts["gpuHours"] > 0


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
def test_a_soak_notices(bug: Callable[[], Patches]) -> None:
    assert caught_by(bug) != ""


@pytest.mark.long
def test_it_finds_nothing_where_all_is_well() -> None:
    assert caught_by(None) == ""


def test_shards_are_added_up_and_the_worst_memory_counts() -> None:
    growth = {"objects": 0.01, "rss_mb": None, "pass_ms": -0.5}
    one = {"seed": 1, "hours": 10, "Bind": 3, "growth": growth, "rssMb": 90.0, "storeMb": 2.0, "cpuSeconds": 30.0}
    one |= {"hoursPerCpuMinute": 20, "problems": ["double-bound: n1/0"]}
    other = one | {"seed": 2, "growth": growth | {"objects": 0.2}, "rssMb": 95.0, "cpuSeconds": 10.0, "problems": []}
    found = added_up([one, other])
    assert (found["seeds"], found["hours"], found["Bind"], found["rssMb"]) == ([1, 2], 20, 6, 95.0)
    assert found["growth"] == {"objects": 0.2, "rss_mb": None, "pass_ms": -0.5}
    assert found["hoursPerCpuMinute"] == 30
    assert found["problems"] == ["seed 1: double-bound: n1/0"]


def test_memory_is_compared_within_a_process() -> None:
    samples = [Sample(number, 0, 0.0, 0.0, 0.0, stretch) for number, stretch in enumerate([0, 0, 1, 1, 1, 2])]
    assert [sample.hours for sample in longest(samples)] == [2, 3, 4]
    assert longest([]) == []


def test_growth_leaves_the_warming_up_out() -> None:
    sizes = [10, 80, 90, 100, 100, 100, 110, 110, 110]
    samples = [Sample(number, size, 0.0, 0.0, 0.0) for number, size in enumerate(sizes)]
    assert growth(samples, lambda sample: sample.objects) == pytest.approx(0.1)
    assert growth([], lambda sample: sample.objects) == 0.0
