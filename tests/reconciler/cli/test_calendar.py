"""`quorate calendar`: the windows of a policy in files, for people, programs and calendars."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.reconciler.cli.conftest import Quorate
from tests.reconciler.documents.repository import POOL, queue

NIGHT = """apiVersion: quorate.dev/v1
kind: Reservation
metadata: {name: night}
spec:
  from: "2026-11-30T20:00:00+01:00"
  repeat: {rule: "FREQ=DAILY;COUNT=30", duration: 10h, timeZone: Europe/Berlin}
  queue: team
  users: ["grüße,mit;zeichen-und-einem-sehr-langen-namen-der-nicht-in-eine-zeile-passt"]
  nodes: [big-01, big-02]
  evict: preemptible
"""
ONCE = """apiVersion: quorate.dev/v1
kind: Reservation
metadata: {name: once}
spec: {from: "2026-12-01T12:00:00Z", until: "2026-12-01T18:00:00Z", queue: team, gpuType: H100, count: 2, gpusPerNode: 8}
"""
LATE = """
  quota: [{gpuType: H100, guaranteed: 8}]
  hours:
    - name: late
      from: "2026-12-24T20:00:00+01:00"
      repeat: {rule: "FREQ=DAILY;COUNT=2", duration: 10h, timeZone: Europe/Berlin}
      quota: [{gpuType: H100, guaranteed: 16, perUser: 8, shared: false}]
      weight: 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    files = {
        "policies/a.yaml": queue("team", "{}"),
        "policies/b.yaml": queue("other", LATE),
        "cluster-state/big.yaml": POOL,
    }
    for path, text in (files | {"policies/night.yaml": NIGHT, "policies/once.yaml": ONCE}).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return str(tmp_path)


def test_windows_that_lie_in_the_days_are_listed(quorate: Quorate, folder: str) -> None:
    listed = quorate("calendar", folder, "--from", "2026-12-01", "--days", "1", "-o", "json")
    found = json.loads(listed.out)
    assert [window["name"] for window in found["windows"]] == [
        "night@2026-11-30T19:00:00Z",  # it is not over
        "once",
        "night@2026-12-01T19:00:00Z",
    ]
    assert (found["kind"], found["since"], found["until"]) == (
        *("PolicyCalendar", "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"),
    )
    assert found["windows"][1] == {
        "name": "once",
        "reservation": "once",
        "hours": None,
        "start": "2026-12-01T12:00:00Z",
        "until": "2026-12-01T18:00:00Z",
        "keeps": "2 x 8 H100",
        "keptFor": "queue team",
        "evict": "none",
        "origin": "policies/once.yaml:3",
    }
    table = quorate("calendar", folder, "--from", "2026-12-01", "--days", "1", "--time-zone", "Europe/Berlin").out
    assert "2026-12-01 20:00:00 Europe/Berlin" in table
    assert quorate("calendar", folder, "--from", "2028-01-01", "--time-zone", "UTC").out == (
        "no windows until 2028-01-08 00:00:00 UTC\n"
    )


def test_a_calendar_reads_what_is_written_for_it(quorate: Quorate, folder: str) -> None:
    written = quorate("calendar", folder, "--from", "2026-12-01", "--days", "1", "-o", "ics").out.replace("\r\n", "\n")
    assert max(len(line.encode()) for line in written.splitlines()) <= 75
    lines = written.replace("\n ", "").splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("BEGIN:VCALENDAR", "VERSION:2.0", "END:VCALENDAR")
    assert lines.count("BEGIN:VEVENT") == lines.count("END:VEVENT") == 3
    assert "UID:night@2026-12-01T19:00:00Z" in lines
    assert {"DTSTART:20261201T190000Z", "DTEND:20261202T050000Z"} <= {*lines}
    assert r"SUMMARY:night: big-01\, big-02" in lines
    user = r"grüße\,mit\;zeichen-und-einem-sehr-langen-namen-der-nicht-in-eine-zeile-passt"
    assert rf"DESCRIPTION:kept for {user} in queue team\; evict: preemptible" in lines


def test_windows_of_quota_stand_beside_them(quorate: Quorate, folder: str) -> None:
    asked = ("calendar", folder, "--from", "2026-12-24T12:00:00Z", "--days", "1")
    night, late = json.loads(quorate(*asked, "-o", "json").out)["windows"]
    assert night["name"] == "night@2026-12-24T19:00:00Z"
    assert late == {
        "name": "other.late@2026-12-24T19:00:00Z",
        "reservation": None,
        "hours": "late",
        "start": "2026-12-24T19:00:00Z",
        "until": "2026-12-25T05:00:00Z",
        "keeps": "guaranteed 16 H100, per user 8 H100, H100 not shared, weight 2",
        "keptFor": "queue other",
        "evict": "none",
        "origin": "policies/b.yaml:7",
    }
    written = quorate(*asked, "-o", "ics").out.replace("\r\n ", "")
    assert r"SUMMARY:late\, queue other: guaranteed 16 H100\, per user 8 H100\, H100 not shared\, weight 2" in written


def test_a_policy_that_is_wrong_has_no_calendar(quorate: Quorate, folder: str) -> None:
    (Path(folder) / "policies" / "once.yaml").write_text(ONCE.replace("12-01T18", "12-01T08"))
    failed = quorate("calendar", folder)
    assert (failed.exit_code, failed.out) == (3, "")
    assert "is not after from" in failed.err
