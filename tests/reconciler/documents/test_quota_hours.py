"""Quota that differs in windows: what is compiled, what is wrong with it alone, and at which moment the tree is wrong."""

from __future__ import annotations

import pytest

from reconciler.documents.ended_windows import ended_windows, ends_of_windows
from reconciler.documents.repeats import with_windows
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.policy.policy import Policy, Queue, QuotaHours
from solver.policy.repeat import Repeat
from solver.policy.tree import QueueTree
from solver.policy.windows import policies_ahead, policy_at
from tests.reconciler.documents.repository import POOL, codes, queue, reading

NIGHTS = (
    'repeat: {rule: "FREQ=DAILY;COUNT=10", duration: 10h, timeZone: Europe/Berlin}, from: "2026-12-01T20:00:00+01:00"'
)
EVENINGS = (
    'repeat: {rule: "FREQ=DAILY;COUNT=9", duration: 3h, timeZone: Europe/Berlin}, from: "2026-12-02T19:00:00+01:00"'
)

MOST_40, OWN_12 = "{gpuType: H100, max: 40}", "{gpuType: H100, guaranteed: 12}"


def nights(rows: str, name: str = "nights", when: str = NIGHTS) -> str:
    return f"{{name: {name}, {when}, quota: [{rows}]}}"


def files(
    team: str,
    other: str = "parent: org",
    org: str = "quota: [{gpuType: H100, guaranteed: 64}]",
    convergence: str = "convergence: {evict: none}",
) -> dict[str, str]:
    own = "parent: org, quota: [{gpuType: H100, guaranteed: 8, max: 32}]"
    return {
        "policies/org.yaml": queue("org", f"{{{org}}}"),
        "policies/other.yaml": queue("other", f"{{{other}}}"),
        "policies/team.yaml": queue("team", f"{{{own}, {team}, {convergence}}}"),
        "cluster-state/big.yaml": POOL,
    }


def team_at(at: str, team: str) -> Queue:
    policy = policy_at(reading(files(team)).checked().policy, Instant.parse(at))
    found = policy.queue("team")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("at", "guaranteed"),
    [
        ("2026-12-01T18:59:59Z", 8),
        ("2026-12-01T19:00:00Z", 16),
        ("2026-12-02T04:59:59Z", 16),
        ("2026-12-02T05:00:00Z", 8),
        ("2026-12-11T05:00:00Z", 8),
    ],
)
def test_rows_hold_while_a_window_is_open(at: str, guaranteed: int) -> None:
    hours = f"hours: [{nights('{gpuType: H100, guaranteed: 16, perUser: 4}')}]"
    (row,) = team_at(at, hours).quota
    assert (row.guaranteed, row.max, row.per_user) == (
        guaranteed * 1000,
        32_000,  # what a row does not say stays
        4_000 if guaranteed == 16 else None,
    )


def test_what_is_to_follow_is_known_and_comes_true() -> None:
    hours = f"hours: [{nights('{gpuType: H100, guaranteed: 16}')}]"
    policy = reading(files(hours)).checked().policy
    now = policy_at(policy, Instant.parse("2026-12-01T12:00:00Z"))
    assert now.queues[2].hours == ()
    assert [(str(change.at), change.quota[0].guaranteed, change.hours) for change in now.queues[2].ahead[:2]] == [
        ("2026-12-01T19:00:00Z", 16_000, ("nights",)),
        ("2026-12-02T05:00:00Z", 8_000, ()),
    ]
    assert policy_at(now, Instant.parse("2026-12-01T19:00:00Z")) is now  # it stands as it is
    ahead = policies_ahead(now)
    assert len(ahead) == 15  # two a day for a week after the first
    for at, then in ahead:
        assert [(known.quota, known.weight) for known in then.queues] == [
            (known.quota, known.weight) for known in policy_at(policy, at).queues
        ]


def test_the_same_policy_stands_until_a_window_begins_or_ends() -> None:
    policy = reading(files(f"hours: [{nights('{gpuType: H100, max: 64}')}]")).checked().policy
    seen = [policy_at(policy, Instant.parse(f"2026-12-02T{hour:02}:30:00Z")) for hour in range(5, 19)]
    assert all(one is seen[0] for one in seen)
    assert policy_at(policy, Instant.parse("2026-12-02T19:00:00Z")) is not seen[0]


def test_windows_begin_by_the_clock_through_summer_time() -> None:
    when = (
        'repeat: {rule: "FREQ=DAILY;COUNT=3", duration: 6h, timeZone: Europe/Berlin}, from: "2027-03-27T22:00:00+01:00"'
    )
    (hours,) = (
        reading(files(f"hours: [{nights('{gpuType: H100, max: 64}', when=when)}]")).checked().policy.queues[2].hours
    )
    assert [str(window.start) for window in hours.repeat.windows] == [
        "2027-03-27T21:00:00Z",
        "2027-03-28T20:00:00Z",
        "2027-03-29T20:00:00Z",
    ]


@pytest.mark.parametrize(
    ("team", "problems"),
    [
        (f"hours: [{nights('{gpuType: H100, guaranteed: 16}')}]", []),
        (f"hours: [{{name: nights, {NIGHTS}, weight: 3}}]", []),
        (f"hours: [{{name: nights, {NIGHTS}}}]", ["missing-field"]),
        (f"hours: [{nights('{gpuType: H100}')}]", ["missing-field"]),
        (f"hours: [{nights('{gpuType: H10, max: 1}')}]", ["unknown-gpu-type"]),
        (f"hours: [{nights('{gpuType: H100, max: 40}, {gpuType: H100, guaranteed: 9}')}]", ["duplicate-gpu-type"]),
        (f"hours: [{nights('{resource: cpu, max: 4}')}]", ["unknown-field"]),
        (f"hours: [{nights('{gpuType: H100, guaranteed: 33}')}]", ["max-below-guaranteed"]),
        (f"hours: [{nights('{gpuType: H100, max: 7}')}]", ["max-below-guaranteed"]),
        (f"hours: [{nights('{gpuType: H100, lendable: 9}')}]", ["lendable-above-guaranteed"]),
        (f"hours: [{nights('{gpuType: H100, perUser: 33}')}]", ["per-user-above-max"]),
        (f"hours: [{nights('{gpuType: H100, shared: true}')}]", ["shared-with-nobody"]),
        (f"hours: [{nights('{gpuType: H100, guaranteed: 65, max: 65}')}]", ["guarantees-exceed-parent"]),
        (f"hours: [{nights('{gpuType: H100, max: 64}')}, {nights(MOST_40)}]", ["hours-overlap", "duplicate-name"]),
        (f"hours: [{nights('{gpuType: H100, max: 64}')}, {nights(MOST_40, 'evenings', EVENINGS)}]", ["hours-overlap"]),
        (f"hours: [{nights('{gpuType: H100, max: 64}')}, {nights(OWN_12, 'evenings', EVENINGS)}]", []),
        ("hours: [{name: nights, weight: 2}]", ["missing-field", "missing-field"]),
        (f"hours: [{nights('{gpuType: H100, max: 64}', when=NIGHTS.replace('DAILY', 'HOURLY'))}]", ["wrong-rule"]),
        (f"hours: [{nights('{gpuType: H100, max: 64}', when=NIGHTS.replace('Berlin', 'Bärlin'))}]", ["malformed"]),
        (f"hours: [{nights('{gpuType: H100, max: 64}', when=NIGHTS.replace('Berlin', 'Berlyn'))}]", ["unknown-time-zone"]),
        (f"hours: [{nights('{gpuType: H100, max: 64}', when=NIGHTS.replace('10h', '25h'))}]", ["wrong-rule"]),
        (f"hours: [{nights('{gpuType: H100, max: 64}', when=NIGHTS.replace('10h', '0s'))}]", ["wrong-window"]),
    ],
)  # fmt: skip
def test_problems_are_found(team: str, problems: list[str]) -> None:
    assert [code for _, code in codes(files(team))] == problems


def test_guarantees_have_to_fit_at_every_moment() -> None:
    """By day and by night each alone they do; on the evening in which windows of both are open they don't."""
    hours = f"hours: [{nights('{gpuType: H100, guaranteed: 32}')}]"
    other = f"parent: org, hours: [{nights('{gpuType: H100, guaranteed: 33}', 'evenings', EVENINGS)}]"
    (problem,) = reading(files(hours, other)).problems
    assert str(problem) == (
        "policies/org.yaml:4:44: error[guarantees-exceed-parent]: from 2026-12-02T19:00:00Z on, in hours evenings of other, "
        "nights of team: guaranteed 64 H100, but the queues below it 65 (other 33, team 32). Raise it, or lower theirs."
    )
    assert reading(files(hours, other.replace("33", "32"))).problems == ()


def test_a_parent_that_falls_by_night_is_found_in_its_own_row() -> None:
    org = f"quota: [{{gpuType: H100, guaranteed: 64}}], hours: [{nights('{gpuType: H100, guaranteed: 7}')}]"
    (problem,) = reading(files("weight: 1", org=org)).problems
    assert problem.code == "guarantees-exceed-parent"
    assert problem.column > 60  # in hours
    assert problem.message == (
        "from 2026-12-01T19:00:00Z on, in hours nights of org: guaranteed 7 H100, but the queues below it 8 (team 8)"
    )


def test_a_max_of_the_parent_holds_for_its_children_by_night_too() -> None:
    org = "quota: [{gpuType: H100, guaranteed: 64, max: 64}]"
    found = reading(files(f"hours: [{nights('{gpuType: H100, max: 65}')}]", org=org)).problems
    assert [problem.code for problem in found] == ["above-parent-max"]


@pytest.mark.parametrize(
    ("convergence", "warned"),
    [
        ("", True),
        ("convergence: {within: 14h}", True),
        ("convergence: {within: 13h}", False),
        ("convergence: {evict: none}", False),
    ],
)
def test_a_max_that_rises_again_before_jobs_have_to_leave_is_warned_of(convergence: str, warned: bool) -> None:
    """By day it holds for 14 hours, and jobs may go on for 24 unless somebody says otherwise."""
    found = reading(files(f"hours: [{nights('{gpuType: H100, max: 64}')}]", convergence=convergence))
    assert [(problem.code, problem.severity) for problem in found.problems] == [("max-never-kept", "warning")] * warned
    assert found.compiled is not None
    if convergence == "weight: 1":
        assert str(found.problems[0]).endswith(
            "max 32 H100 holds from 2026-12-02T05:00:00Z for 14h alone, and jobs may go on for 24h: none ever leaves for it. "
            "Let convergence.within be less than 14h, or say evict: none."
        )


def test_a_guarantee_may_be_shared_by_night_alone() -> None:
    by_night = f"quota: [{{gpuType: H100, guaranteed: 64}}], hours: [{nights('{gpuType: H100, shared: true}')}]"
    policy = reading(files("weight: 2", org=by_night)).checked().policy
    moments = ("2026-12-01T12:00:00Z", "2026-12-01T20:00:00Z", "2026-12-02T12:00:00Z")
    assert [QueueTree.of(policy_at(policy, Instant.parse(at))).shares_any for at in moments] == [False, True, False]
    below = files("weight: 2", org=by_night) | {
        "policies/deep.yaml": queue("deep", "{parent: team}"),
        "policies/team.yaml": queue("team", "{parent: org, quota: [{gpuType: H100, guaranteed: 8, shared: true}]}"),
    }
    (found,) = reading(below).problems
    assert (found.code, found.file) == ("shared-below-shared", "policies/team.yaml")
    assert found.message.startswith("from 2026-12-01T19:00:00Z on, in hours nights of org: queue org above it shares")


@pytest.mark.parametrize(
    ("rule", "now", "told"),
    [
        ("FREQ=DAILY;COUNT=100", "2027-02-07T06:00:01+01:00", None),
        ("FREQ=DAILY;COUNT=100", "2027-02-08T06:00:00+01:00", "windows-end-soon"),
        ("FREQ=DAILY;COUNT=100", "2027-03-10T06:00:00+01:00", "windows-over"),
        ("FREQ=DAILY;COUNT=50", "2027-01-17T06:00:00+01:00", None),  # of so few nobody forgets the end
        ("FREQ=DAILY", "2030-01-01T00:00:00Z", None),
        ("FREQ=DAILY", "2036-11-20T00:00:00Z", "windows-end-soon"),
    ],
)
def test_windows_that_end_are_warned_of(rule: str, now: str, told: str | None) -> None:
    start = Instant.parse("2026-11-30T20:00:00+01:00")
    repeat = with_windows(Repeat(rule, Duration.parse("10h"), "Europe/Berlin"), start)
    hours = QuotaHours("nights", start, repeat, (), 2, origin="policies/a.yaml:7")
    policy = Policy((Queue(QueueName("a"), hours=(hours,)),), ())
    found = list(ended_windows(policy, Instant.parse(now)))
    assert [problem.code for problem in found] == ([told] if told else [])
    assert dict(ends_of_windows(policy)) == {"hours nights of queue a": repeat.windows[-1].until}


def test_what_is_shared_with_nobody_is_told_once() -> None:
    other = f"parent: org, quota: [{{gpuType: H100, guaranteed: 8, shared: true}}], hours: [{nights(OWN_12)}]"
    assert [code for _, code in codes(files("hours: []", other))] == ["shared-with-nobody"]
