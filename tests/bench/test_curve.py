"""The curve of a round's cost: points are measured apart, once, and not for ever; exponents and plots are made of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from click.testing import CliRunner

from hack.bench_round import main
from hack.rounds.cases import Case, measure
from hack.rounds.curve import (
    AT_GPUS,
    AT_PENDING,
    Measured,
    Point,
    PointFailedError,
    fits,
    measured,
    measured_apart,
    series,
)
from hack.rounds.plots import GOALS, draw
from hack.rounds.timing import Figures

SVG = "{http://www.w3.org/2000/svg}"


@cache
def some() -> Figures:
    return measure("curve", Case(512, 10), 1, None)


def at(point: Point) -> Figures:
    """As if a round's time grew with the power 0.75 of GPUs, and with what waits, and its memory not at all."""
    cold_s = 11 * (point.gpus / AT_GPUS) ** 0.75 * point.pending / AT_PENDING
    sizes = {"gpus": point.gpus, "pending": point.pending}
    return msgspec.structs.replace(some(), **sizes, cold_s=cold_s, warm_p50_s=cold_s / 2, rss_mb=200)


@pytest.fixture
def known() -> list[Measured]:
    points = {point for axis in series(1, None).values() for point in axis}
    return [Measured(point, at(point)) for point in points]


def test_exponents_are_those_by_which_figures_grow(known: list[Measured]) -> None:
    found = {(fit.over, fit.figure): (fit.exponent, fit.points) for fit in fits(known, series(1, None))}
    assert found["gpus", "cold_s"] == found["gpus", "warm_p50_s"] == (0.75, 5)
    assert found["pending", "cold_s"] == (1.0, 4)
    assert found["gpus", "rss_mb"] == (0.0, 5)


def test_a_point_that_was_not_reached_is_left_out_of_a_fit(known: list[Measured]) -> None:
    some = [each if each.point.gpus < 200_000 else Measured(each.point, None) for each in known]
    assert fits(some, series(1, None))[0].points == 4
    (alone,) = [each for each in known if each.point.gpus == 4_096]
    assert fits([alone], series(1, None))[0].exponent is None


def test_plots_have_every_point_and_every_goal(known: list[Measured], tmp_path: Path) -> None:
    along = series(1, None)
    files = draw(tmp_path, known, along)
    assert {file.name for file in files} == {
        f"{kind}-by-{axis}.svg" for kind in ("time", "memory") for axis in ("gpus", "pending")
    }
    time = ElementTree.parse(tmp_path / "time-by-gpus.svg").getroot()
    assert time.tag == f"{SVG}svg"
    circles = time.findall(f"{SVG}circle")
    assert sum("dot" in circle.get("class", "") for circle in circles) == 2 * len(along["gpus"])
    goals = [circle for circle in circles if "goal" in circle.get("class", "")]
    here = [goal for goal in GOALS if goal.figure != "rss_mb" and goal.pending == AT_PENDING]
    assert len(goals) == len(here)
    # The goal of the first round is below what was measured at the same size: further down, and neither left nor right.
    reached = next(circle for circle in circles if (circle[0].text or "").startswith("100,000: 11"))
    wanted = next(circle for circle in goals if circle[0].text == "100,000: 0.5")
    assert reached.get("cx") == wanted.get("cx")
    assert float(wanted.get("cy", 0)) > float(reached.get("cy", 0))
    assert any("power 0.75" in (text.text or "") for text in time.findall(f"{SVG}text"))


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    file, asked = tmp_path / "new" / "curve.json", list[Point]()

    def ask(point: Point, limit_s: float) -> Figures | None:
        assert limit_s == 5
        asked.append(point)
        return at(point) if point.gpus < 2_000 else None

    small, large = Point(1_000, 10), Point(2_000, 10)
    assert [each.figures for each in measured([small, large], file, 5, ask=ask)] == [at(small), None]
    assert asked == [small, large]
    assert [each.figures for each in measured([small, large], file, 5, ask=ask)] == [at(small), None]
    assert asked[2:] == [large], "what was not reached is tried again, what was is not"
    measured([small], file, 5, afresh=True, ask=ask)
    measured([Point(1_000, 10, seed=2)], file, 5, ask=ask)
    assert asked[3:] == [small, Point(1_000, 10, seed=2)]


def test_points_before_one_that_fails_are_kept(tmp_path: Path) -> None:
    def ask(point: Point, _: float) -> Figures | None:
        if point.gpus == 2_000:
            raise PointFailedError
        return at(point)

    file = tmp_path / "curve.json"
    with pytest.raises(PointFailedError):
        measured([Point(1_000, 10), Point(2_000, 10)], file, 5, ask=ask)
    (kept,) = measured([Point(1_000, 10)], file, 5, ask=ask)
    assert kept.figures == at(kept.point)


def test_a_file_of_points_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "curve.json").write_text('[{"point": 1}]')
    refused = CliRunner().invoke(main, ["--curve", "--smaller", "400", "--plots", str(tmp_path)])
    assert refused.exit_code == 1
    assert "curve.json: Expected `object`, got `int`" in refused.stderr
    assert "Delete it" in refused.stderr


def test_a_point_that_takes_too_long_is_given_up() -> None:
    assert measured_apart(Point(AT_GPUS, AT_PENDING), 0.1) is None


def test_a_process_that_dies_says_so() -> None:
    with pytest.raises(PointFailedError, match="0 GPUs, 1 waiting: its process ended with 1"):
        measured_apart(Point(0, 1), 600)


@pytest.mark.thorough
def test_the_script_measures_draws_and_goes_on(tmp_path: Path) -> None:
    arguments = ["--curve", "--smaller", "400", "--plots", str(tmp_path), "-o", "json"]
    first, second = (CliRunner().invoke(main, arguments, catch_exceptions=False) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    found = json.loads(first.stdout)
    assert [known["pending"] for known in found["points"]] == [12, 10, 50, 125]
    assert all(known["cold_s"] > 0 and known["rss_mb"] > 0 and known["warm_p50_s"] for known in found["points"])
    assert {fit["figure"] for fit in found["fits"] if fit["over"] == "pending" and fit["exponent"] is not None} == {
        "cold_s", "warm_p50_s", "rss_mb"
    }  # fmt: skip
    assert found["not_reached"] == []
    assert [Path(plot).read_text()[:4] for plot in found["plots"]] == ["<svg"] * 4
    assert second.stdout == first.stdout, "measured again: times would differ"
