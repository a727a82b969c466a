"""A review for people: what it says, how it folds, and that names can't reach the terminal."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import msgspec
from hypothesis import given, settings

from reconciler.analysis.reports.outline import Outline
from reconciler.analysis.reports.paths import UNKNOWN
from reconciler.analysis.reports.review_outline import outline_of
from reconciler.analysis.reports.text import text
from tests.reconciler.analysis.reports.reviews import PATHS, RANKING, job, moved_quota, of_strangers, side, unchanged
from tests.reconciler.analysis.reports.strangers import HOSTILE, strangers

GOLDEN = Path(__file__).parent / "golden"


def outline(names: list[str]) -> Outline:
    return outline_of(of_strangers(names), UNKNOWN, str)


def test_a_quota_that_is_moved() -> None:
    assert text(outline_of(moved_quota(), PATHS, str)) == (GOLDEN / "plan.txt").read_text()


def test_a_change_without_effect() -> None:
    said = text(outline_of(unchanged(), PATHS, str)).splitlines()
    assert said[:2] == [
        "main → main: no job fares differently",
        "The change has no effect: same policy, same inventory.",
    ]
    assert "  sweep  product/ranking     8   in 6h" in said


def test_commits_that_are_planned_by_their_own_names_are_told_short() -> None:
    commit = "36a9f4c2d1b0" + "0" * 28
    by_commit = msgspec.structs.replace(unchanged(), base=side(commit, commit))
    said = text(outline_of(by_commit, PATHS, str)).splitlines()
    assert said[0] == "36a9f4c2d1b0 → main: no job fares differently"
    assert "36a9f4c2d1b0 (36a9f4c2d1b0): nothing to decide" in said


def test_long_lists_are_folded_and_sums_are_of_all() -> None:
    jobs = tuple(job(f"sweep-{number}", RANKING, 8, "waits", "starts", starts=(6, 0)) for number in range(47))
    found = outline_of(msgspec.structs.replace(unchanged(), jobs=jobs), PATHS, str)
    folded, whole = text(found), text(found, unfold=True)
    assert "47 jobs start now that would not" in folded
    assert "  … and 37 more; --all shows them, -o json has all\n" in folded
    assert (folded.count("sweep-"), whole.count("sweep-")) == (10, 47)
    assert "more;" not in whole


def test_colour_is_for_terminals() -> None:
    found = outline_of(moved_quota(), PATHS, str)
    assert "\x1b" not in text(found, columns=80)
    assert "\x1b[1;31mRefused" in text(found, columns=80, colour=True)


@settings(max_examples=10)
@given(strangers)
def test_nothing_that_others_wrote_reaches_the_terminal(names: list[str]) -> None:
    said = text(outline(names))
    assert {char for char in said if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn"}} <= {"\n"}
    assert len(said.splitlines()) == len(text(outline(["name"])).splitlines())


def test_hostile_names_are_shown_as_what_they_are() -> None:
    said = text(outline(list(HOSTILE)), unfold=True)
    for shown in (
        "<script>alert(1)</script>",
        "\\x1b[31mred",
        "admin\\x202egnp.exe",
        "line\\x0aline\\x0d\\x0a",
        "[red]rich markup[/red] :smile:",
    ):
        assert shown in said
