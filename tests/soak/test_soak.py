"""A day of churn breaks no rule, and a soak notices what does; months are run by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hack.soak.bugs import BUGS, Patches, caught_by
from hack.soak.soak import Sample, Soak, growth
from tests.drawn import DRAWING


def test_hours_of_churn_break_no_rule(tmp_path: Path) -> None:
    came = Soak(1, tmp_path / "quorate.db").run(8)
    assert came.problems == []
    assert came.counts["Bind"] > 0


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


def test_growth_leaves_the_warming_up_out() -> None:
    sizes = [10, 80, 90, 100, 100, 100, 110, 110, 110]
    samples = [Sample(number, size, 0.0, 0.0, 0.0) for number, size in enumerate(sizes)]
    assert growth(samples, lambda sample: sample.objects) == pytest.approx(0.1)
    assert growth([], lambda sample: sample.objects) == 0.0
