"""A window of time is what its address says, in words or as moments, and knows its neighbours."""

from __future__ import annotations

from itertools import pairwise

import pytest

from reconciler.api.problems import RequestRefusedError
from reconciler.web.time_window import LENGTHS, ShownWindow, address, window_asked
from solver.model.quantities import Instant

NOW = Instant.parse("2026-11-28T18:30:20Z")
"""Words count from the minute that has begun."""


@pytest.mark.parametrize(
    ("since", "to", "start", "end"),
    [
        ("12h ago", "in 12h", "2026-11-28T06:30:00Z", "2026-11-29T06:30:00Z"),
        ("90m", "now", "2026-11-28T17:00:00Z", "2026-11-28T18:30:00Z"),
        ("-1h", "+30m", "2026-11-28T17:30:00Z", "2026-11-28T19:00:00Z"),
        ("2026-11-27", "2026-11-28", "2026-11-27T00:00:00Z", "2026-11-28T00:00:00Z"),
        ("2026-11-27 06:00", "2026-11-27T07:30Z", "2026-11-27T06:00:00Z", "2026-11-27T07:30:00Z"),
        ("2026-11-27T06:00+02:00", "Now", "2026-11-27T04:00:00Z", "2026-11-28T18:30:00Z"),
        (" 2026-11-27T06:00:10.5z ", "now", "2026-11-27T06:00:10.500Z", "2026-11-28T18:30:00Z"),
    ],
)
def test_words_and_moments(since: str, to: str, start: str, end: str) -> None:
    shown = window_asked(since, to, NOW)
    assert (str(shown.start), str(shown.end)) == (start, end)


@pytest.mark.parametrize(
    ("since", "to"),
    [
        ("soon", "now"),
        ("now", "12h ago"),
        ("12 parsecs ago", "now"),
        ("2026-02-30", "now"),
        ("2026-11-27T25:00", "now"),
        ("4m ago", "now"),
        ("1900d ago", "now"),
        ("1h ago", "<img src=x onerror=alert(1)>"),
        ("99999999999d ago", "now"),
        ("in 99999999999d", "in 999999999999d"),
    ],
)
def test_what_is_no_window_is_told(since: str, to: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        window_asked(since, to, NOW)
    assert refused.value.status == 422
    assert "12h ago" in refused.value.problem.fix


def again(asked: dict[str, str]) -> ShownWindow:
    return window_asked(asked["from"], asked["to"], NOW)


def test_its_neighbours_can_be_asked_for_and_are_half_a_length_away() -> None:
    shown = window_asked("2026-11-27T00:00Z", "2026-11-27T08:00Z", NOW)
    earlier = again(shown.earlier())
    later = again(shown.later())
    assert shown.earlier() == {"from": "2026-11-26T20:00Z", "to": "2026-11-27T04:00Z"}
    assert (earlier.later(), later.earlier()) == (
        {"from": "2026-11-27T00:00Z", "to": "2026-11-27T08:00Z"},
        {"from": "2026-11-27T00:00Z", "to": "2026-11-27T08:00Z"},
    )
    assert shown.around_now() == {"from": "4h ago", "to": "in 4h"}
    assert shown.until_now() == {"from": "8h ago", "to": "now"}


def test_other_lengths_keep_its_middle_or_go_on_with_now() -> None:
    apart = window_asked("2026-11-27T00:00Z", "2026-11-28T00:00Z", NOW)
    found = {words: (is_this, asked) for words, is_this, asked in apart.lengths()}
    assert found["6 hours"] == (False, {"from": "2026-11-27T09:00Z", "to": "2026-11-27T15:00Z"})
    assert [words for words, (is_this, _) in found.items() if is_this] == ["1 day"]
    around = window_asked("12h ago", "in 12h", NOW)
    assert {words: asked for words, _, asked in around.lengths()}["1 week"] == {"from": "84h ago", "to": "in 84h"}
    until = window_asked("24h ago", "now", NOW)
    assert [asked["to"] for _, _, asked in until.lengths_of_past()] == ["now"] * len(LENGTHS)


@pytest.mark.parametrize(
    ("since", "to"), [("1h ago", "now"), ("12h ago", "in 12h"), ("30d ago", "now"), ("1800d", "now")]
)
def test_marks_are_few_and_lie_where_they_are(since: str, to: str) -> None:
    shown = window_asked(since, to, NOW)
    marks = shown.marks()
    assert 2 <= len(marks) <= 62
    assert all(shown.x(mark.at) == mark.x for mark in marks)
    assert len({after.at - before.at for before, after in pairwise(marks)}) == 1
    assert (shown.x(shown.start - 5), shown.x(shown.end), shown.x(shown.end + 5)) == (0, 100, 100)


def test_the_start_of_a_day_is_named() -> None:
    labels = [mark.label for mark in window_asked("2026-11-27T18:00Z", "2026-11-28T06:00Z", NOW).marks()]
    assert labels == ["18:00", "20:00", "22:00", "11-28 00:00", "02:00", "04:00", "06:00"]
    assert window_asked("2026-11-01", "2026-11-08", NOW).marks()[0].label == "2026-11-01"


def test_the_past_of_a_window() -> None:
    around = window_asked("1h ago", "in 1h", NOW)
    assert (around.past.start, around.past.end, around.has_past) == (around.start, NOW, True)
    ahead = window_asked("in 1h", "in 2h", NOW)
    assert (ahead.past.end - ahead.past.start, ahead.has_past) == (0, False)


def test_an_address_leaves_out_what_is_empty() -> None:
    assert address("/time") == "/time"
    assert address("/time", ("rack", "r 1&"), ("name", ""), {"from": "12h ago"}) == "/time?rack=r+1%26&from=12h+ago"
