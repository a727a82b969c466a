"""Reservations that repeat: an RRULE becomes windows as a calendar has them, or is refused with what to write instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reconciler.documents.recurrence import RecurrenceError, windows_of
from reconciler.gitops.review.meaning import document_changes
from solver.model.quantities import Duration, Instant
from tests.drawn import worlds
from tests.reconciler.documents.repository import POOL, codes, queue, reading

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
FILES = {"policies/a.yaml": queue("team", "{}"), "cluster-state/big.yaml": POOL}


def begins(rule: str, start: str, zone: str = "Europe/Berlin", duration: str = "1h") -> list[str]:
    windows = windows_of(rule, Instant.parse(start), Duration.parse(duration), zone)
    assert [window.until - window.start for window in windows] == [Duration.parse(duration)] * len(windows)
    return [str(window.start) for window in windows]


def test_a_window_begins_at_the_same_hour_in_summer_and_lasts_as_long() -> None:
    assert begins("FREQ=DAILY;COUNT=3", "2026-03-28T20:00:00+01:00", duration="10h") == [
        "2026-03-28T19:00:00Z",  # its night has nine hours on the clock, and the window ten in the world
        "2026-03-29T18:00:00Z",
        "2026-03-30T18:00:00Z",
    ]


def test_a_begin_that_clocks_skip_comes_as_much_later() -> None:
    there = begins("FREQ=DAILY;COUNT=3", "2026-03-28T02:30:00+01:00")
    assert there == ["2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]
    assert datetime.fromisoformat(there[1]).astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M") == "03:30"


def test_of_a_begin_that_is_there_twice_the_first_counts() -> None:
    there = begins("FREQ=DAILY;COUNT=3", "2026-10-24T02:30:00+02:00")
    assert there == ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]


def test_the_last_begin_may_be_until_itself() -> None:
    until = "FREQ=DAILY;UNTIL=20260328T013000Z"
    assert len(begins(until, "2026-03-26T02:30:00+01:00")) == 3
    assert len(begins(until.replace("3000Z", "2959Z"), "2026-03-26T02:30:00+01:00")) == 2


def test_months_end_when_they_end() -> None:
    assert begins("FREQ=MONTHLY;BYDAY=-1FR;COUNT=3", "2026-01-30T20:00:00Z", "UTC") == [
        "2026-01-30T20:00:00Z",
        "2026-02-27T20:00:00Z",
        "2026-03-27T20:00:00Z",
    ]
    assert begins("FREQ=MONTHLY;BYMONTHDAY=31;COUNT=2", "2026-01-31T20:00:00Z", "UTC")[1] == "2026-03-31T20:00:00Z"


@worlds(60)
@given(
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
    st.sets(st.integers(0, 6), min_size=1),
    st.integers(0, 23),
    st.sampled_from([0, 15, 30, 45]),
    st.sampled_from([datetime(2026, 3, 3), datetime(2026, 10, 1), datetime(2026, 10, 20), datetime(2026, 3, 25)]),
)
def test_a_week_is_what_looking_at_the_clock_every_quarter_of_an_hour_says(
    zone: str, days: set[int], hour: int, minute: int, first: datetime
) -> None:
    there, seen = ZoneInfo(zone), dict[datetime, int]()
    at = first.replace(tzinfo=UTC)
    for _ in range(40 * 96):
        local = at.astimezone(there).replace(tzinfo=None, fold=0)
        if local.weekday() in days and (local.hour, local.minute) == (hour, minute):
            seen.setdefault(local, int(at.timestamp()) * 1_000)  # of two only the first
        at += timedelta(minutes=15)
    assume(len(seen) > 3)
    begin, last = min(seen.values()), max(seen.values())
    until = datetime.fromtimestamp(last / 1_000, UTC)
    rule = f"FREQ=WEEKLY;BYDAY={','.join(DAYS[day] for day in sorted(days))};UNTIL={until:%Y%m%dT%H%M%SZ}"
    found = [int(window.start) for window in windows_of(rule, Instant(begin), Duration(60_000), zone)]
    skipped = [one for one in found if one not in seen.values()]
    assert sorted({*found} - {*skipped}) == sorted(seen.values())
    for one in skipped:  # the clock never showed this time; without the change of clocks it would have been now
        local = datetime.fromtimestamp(one / 1_000, there)
        assert (local.hour, local.minute) != (hour, minute)
        before = datetime.fromtimestamp(one / 1_000 - 7_200, there).utcoffset()
        assert before is not None
        as_before = datetime.fromtimestamp(one / 1_000, UTC) + before
        assert (as_before.weekday() in days, as_before.hour, as_before.minute) == (True, hour, minute)


def test_a_rule_without_an_end_goes_on_for_ten_years() -> None:
    daily = begins("FREQ=DAILY", "2026-11-30T20:00:00+01:00")
    assert (len(daily), daily[-1]) == (3661, "2036-12-07T19:00:00Z")
    assert len(begins("FREQ=WEEKLY;BYDAY=MO", "2026-11-30T20:00:00+01:00")) == 523
    often = begins("FREQ=DAILY;BYHOUR=0,6,12,20", "2026-11-30T20:00:00+01:00")
    assert len(often) == 4000
    two_years = begins("FREQ=DAILY;COUNT=700", "2026-11-30T20:00:00+01:00")
    assert daily[:700] == two_years


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "it does not give Mon 2026-11-30 20:00, from which on it counts"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270101T000000Z", "it has UNTIL and COUNT"),
        ("FREQ=SECONDLY;COUNT=2", "FREQ=SECONDLY; windows begin on days"),
        ("FREQ=HOURLY;COUNT=2", "FREQ=HOURLY; windows begin on days"),
        ("COUNT=2", "FREQ is missing"),
        ("FREQ=DAILY;UNTIL=20270101", "UNTIL=20270101 is not in UTC"),
        ("FREQ=DAILY;UNTIL=20270101T000000", "UNTIL=20270101T000000 is not in UTC"),
        ("FREQ=DAILY;UNTIL=20271399T000000Z", "it can't be read"),
        ("FREQ=DAILY;COUNT=0", "COUNT=0 is not how often"),
        ("FREQ=DAILY;COUNT=2;COUNT=3", "COUNT is there twice"),
        ("FREQ=DAILY;INTERVAL=0;COUNT=2", "INTERVAL=0 never goes on"),
        ("FREQ=DAILY;INTERVAL=-2;COUNT=2", "it can't be read"),
        ("FREQ=DAILY;BYDAY=XX;COUNT=2", "it can't be read"),
        ("FREQ=DAILY;EVERY=2;COUNT=2", "RFC 5545 has no EVERY"),
        ("RRULE:FREQ=DAILY;COUNT=2", "'RRULE:FREQ=DAILY' is not NAME=VALUE"),
        ("every monday", "'every monday' is not NAME=VALUE"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;COUNT=2", "it gives 0 of 2 windows"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=2", "it gives 0 of 2 windows"),
        ("FREQ=YEARLY;COUNT=9", "it gives 3 of 9 windows"),
        ("FREQ=DAILY;UNTIL=20300101T000000Z", "it ends more than 732 days after from"),
        ("FREQ=DAILY;BYHOUR=0,6,12,20;COUNT=1001", "it has more than 1000 windows"),
        ("FREQ=WEEKLY;BYDAY=TU;COUNT=2", "it does not give Mon 2026-11-30 20:00, from which on it counts"),
        ("FREQ=DAILY;BYHOUR=20,21;COUNT=4", "the window from 2026-11-30T19:00:00Z lasts until 2026-11-30T22:00:00Z"),
    ],
)
def test_what_can_not_be_followed_is_refused(rule: str, message: str) -> None:
    with pytest.raises(RecurrenceError) as refused:
        windows_of(rule, Instant.parse("2026-11-30T20:00:00+01:00"), Duration.parse("3h"), "Europe/Berlin")
    assert str(refused.value).startswith(message)
    assert refused.value.fix


NIGHT = 'from: "2026-11-30T20:00:00+01:00", queue: team'
DAILY = "rule: FREQ=DAILY;COUNT=30, duration: 10h, timeZone: Europe/Berlin"


def reservation(spec: str, name: str = "night") -> str:
    return f"apiVersion: quorate.dev/v1\nkind: Reservation\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY}}}", []),
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY}}}, evict: preemptible", []),
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY}}}, evict: some", ["unknown-value"]),
        (f'{NIGHT}, nodes: [big-01], until: "2027-01-01T00:00:00Z", repeat: {{{DAILY}}}', ["choose-one"]),
        (f"{NIGHT}, nodes: [big-01]", ["missing-field"]),
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY.replace('10h', '25h')}}}", ["wrong-rule"]),
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY.replace('10h', '0s')}}}", ["wrong-window"]),
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY.replace('10h', '91d')}}}", ["wrong-window"]),
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY.replace('Berlin', 'Berlyn')}}}", ["unknown-time-zone"]),
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY.replace(';COUNT=30', '')}}}", []),
        (f"{NIGHT}, nodes: [big-01], repeat: {{rule: FREQ=DAILY;COUNT=3, duration: 1h}}", ["missing-field"]),
        (f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY}, windows: []}}", ["unknown-field"]),
    ],
)
def test_problems_are_found(spec: str, problems: list[str]) -> None:
    assert [code for _, code in codes(FILES | {"policies/r.yaml": reservation(spec)})] == problems


def test_a_problem_says_where_and_what_to_write() -> None:
    rule = "FREQ=DAILY;COUNT=2;UNTIL=20270101T000000Z"
    spec = f"{NIGHT}, nodes: [big-01], repeat: {{rule: {rule}, duration: 1h, timeZone: UTC}}"
    (problem,) = reading(FILES | {"policies/r.yaml": reservation(spec)}).problems
    assert str(problem) == (
        "policies/r.yaml:4:88: error[wrong-rule]: it has UNTIL and COUNT: a rule says in one way when it ends. "
        "Keep one of them; without both it has no end."
    )


def test_it_is_compiled_with_its_windows() -> None:
    spec = f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY}}}"
    (known,) = reading(FILES | {"policies/r.yaml": reservation(spec)}).checked().policy.reservations
    windows = list(known.occurrences())
    assert len(windows) == 30
    assert (windows[0].name, windows[0].series) == ("night@2026-11-30T19:00:00Z", "night")
    assert (windows[0].start, windows[0].until) == (known.start, known.start.after(36_000_000))
    assert (windows[-1].until, known.origin) == (known.until, "policies/r.yaml:3")


OTHER = 'from: "2026-12-{day:02}T{hour}:00:00+01:00", queue: team'


@pytest.mark.parametrize(
    ("day", "hour", "problems"), [(2, "05", ["kept-twice"]), (2, "06", []), (29, "21", ["kept-twice"])]
)
def test_a_node_is_not_kept_twice_in_any_window(day: int, hour: str, problems: list[str]) -> None:
    start = OTHER.format(day=day, hour=hour)
    until = f'until: "2026-12-{day:02}T{int(hour) + 1:02}:00:00+01:00"'
    files = FILES | {
        "policies/r.yaml": reservation(f"{NIGHT}, nodes: [big-01], repeat: {{{DAILY}}}"),
        "policies/s.yaml": reservation(f"{start}, {until}, nodes: [big-01]", "other"),
    }
    assert [code for _, code in codes(files)] == problems


def test_two_that_repeat_and_keep_too_much_are_told_once() -> None:
    counted = f"{NIGHT}, gpuType: H100, count: 6, gpusPerNode: 8, repeat: {{{DAILY}}}"
    files = FILES | {"policies/r.yaml": reservation(counted), "policies/s.yaml": reservation(counted, "other")}
    (problem,) = reading(files).problems
    assert "at 2026-11-30T19:00:00Z it and night keep 96 of 80 H100" in str(problem)


def test_a_change_is_told_as_its_owner_wrote_it() -> None:
    def compiled(daily: str) -> object:
        spec = f"{NIGHT}, nodes: [big-01], repeat: {{{daily}}}"
        return reading(FILES | {"policies/r.yaml": reservation(spec)}).checked()

    (change,) = document_changes(compiled(DAILY), compiled(DAILY.replace("10h", "9h")))  # type: ignore[arg-type]
    assert [(field.field, field.before, field.after) for field in change.fields] == [("repeat.duration", "10h", "9h")]
