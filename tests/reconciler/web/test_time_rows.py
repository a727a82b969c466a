"""Rows of a picture of time: what held which GPU lies where that GPU does, as the user may see it, and no row is without bounds."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.access.caller import Caller
from reconciler.access.rights import Rights
from reconciler.api import timeline
from reconciler.protocols.placements import Steps
from reconciler.web import time_rows
from reconciler.web.memo import PassMemo
from reconciler.web.node_index import NodeRows
from reconciler.web.outlook import Outlook
from reconciler.web.past import HeldOverTime, PastReader
from reconciler.web.queue_colours import QueueColours
from reconciler.web.time_bars import BarMaker, BarSpot, area_of
from reconciler.web.time_rows import TimeRow, node_rows, packed, queue_rows
from reconciler.web.time_window import ShownWindow
from solver.model.cluster import NodeName
from solver.model.inflight import InFlight, Intent, Reservation, declared_holder
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from tests.reconciler.api.conftest import NOW, POLICY, Site, spec
from tests.reconciler.web.test_cluster_map import job
from tests.reconciler.web.test_cluster_summary import node, task

HOUR = 3_600_000
ROOT = Rights(Caller("root", owner=True), POLICY, None)
STRANGER = Rights(Caller("stranger"), POLICY, None)
LATER = NOW.after(HOUR)
TEAM = QueueName("team")


def window(before: int = 2 * HOUR, after: int = 2 * HOUR) -> ShownWindow:
    return ShownWindow(LATER.after(-before), LATER.after(after), LATER, "", "")


def snapshot(*jobs: Job, in_flight: InFlight = InFlight()) -> Snapshot:
    return snapshot_of(LATER, (node("n1", "r1"), node("n2", "r1")), jobs, in_flight)


def rows_of(
    site: Site,
    of: Snapshot,
    shown: ShownWindow | None = None,
    rights: Rights = ROOT,
    names: tuple[str, ...] = ("n1",),
    *,
    is_kept: bool = True,
) -> list[TimeRow]:
    shown, known = shown or window(), replace(site.services(), snapshot=lambda: of)
    known = known if is_kept else replace(known, placements=None)
    outlook = Outlook.of(of, POLICY, {})
    maker = BarMaker(outlook, QueueColours.of(POLICY), rights, shown)
    past = PastReader(known, PassMemo(known))
    return node_rows(tuple(map(NodeName, names)), NodeRows.of(of), past, outlook, maker, shown)


def submit(site: Site, name: str, *tasks: TaskPlacement, queue: str = "team") -> None:
    site.store.jobs.submit(JobName(name), spec(queue=queue), "ada", NOW, f"key-{name}")
    site.bind(name, *tasks)


def test_a_bar_lies_where_its_gpus_do_and_goes_on_until_its_limit(site: Site) -> None:
    tasks = task("n1", 0, 1), msgspec.structs.replace(task("n1", 3), index=1)
    submit(site, "runs", *tasks)
    (row,) = rows_of(site, snapshot(job("runs", *tasks, started_at=NOW, time_limit=Duration(2 * HOUR))))
    (drawn,) = row.bars
    assert (row.height, drawn.bar.spots) == (32, (BarSpot(0, 15), BarSpot(24, 7)))
    # From one hour ago, of four: held until now, expected for one hour more.
    assert (drawn.x, drawn.width, drawn.ahead_x, drawn.ahead_width) == (25, 25, 50, 25)
    assert (drawn.bar.gpus, drawn.bar.until, drawn.bar.told) == (3_000, NOW.after(2 * HOUR), "its time limit")
    assert (drawn.bar.kind, drawn.label, drawn.bar.colour, drawn.bar.is_vague) == ("runs", "runs", "c1", False)
    assert drawn.words.startswith("runs of team: runs, 3 GPUs, from 2023-11-14 22:13 UTC until 2023-11-15 00:13 UTC")


def test_one_without_a_limit_is_drawn_to_the_edge_and_said_to_be_open(site: Site) -> None:
    submit(site, "open", task("n1", 0))
    (row,) = rows_of(site, snapshot(job("open", task("n1", 0), started_at=NOW)))
    (drawn,) = row.bars
    assert (drawn.ahead_x + drawn.ahead_width, drawn.bar.until, drawn.bar.is_vague) == (100, None, True)
    assert "on, open end" in drawn.words


def test_what_ended_says_why(site: Site) -> None:
    submit(site, "done", task("n1", 0))
    site.store.ledger.release(site.epoch(), JobName("done"), 1, NOW.after(HOUR // 2))
    (row,) = rows_of(site, snapshot())
    (drawn,) = row.bars
    assert (drawn.bar.kind, drawn.x, drawn.width, drawn.ahead_width) == ("ran", 25, 12.5, 0)
    assert rows_of(site, snapshot(), window(HOUR // 3, 0))[0].bars == ()
    assert rows_of(site, snapshot(), names=("n2",))[0].bars == ()


def test_what_a_user_may_not_see_has_no_name(site: Site) -> None:
    submit(site, "secret", task("n1", 0))
    promise = Intent("nominate", JobName("hidden"), 1, NOW, LATER, (task("n1", 1),))
    hidden = Job(JobName("hidden"), NOW, spec(), "ada")
    world = snapshot(job("secret", task("n1", 0), started_at=NOW), hidden, in_flight=InFlight(intents=(promise,)))
    (row,) = rows_of(site, world, rights=STRANGER)
    assert [(drawn.bar.name, drawn.bar.is_link, drawn.bar.queue) for drawn in row.bars] == [("", False, "team")] * 2
    assert "secret" not in str(row)
    assert "hidden" not in str(row)
    (seen,) = rows_of(site, world)
    assert {drawn.bar.name for drawn in seen.bars} == {"secret", "hidden"}


def test_what_is_kept_lies_where_it_is_kept(site: Site) -> None:
    waits = Job(JobName("waits"), NOW, msgspec.structs.replace(spec(), time_limit=Duration(HOUR)), "ada")
    kept = Reservation(JobName("waits"), (task("n1", 2),), LATER.after(HOUR))
    by_git = Reservation(declared_holder("fair"), (task("n1", 3),), NOW, LATER.after(2 * HOUR))
    gone = Reservation(JobName("gone"), (task("n1", 1),), LATER)
    (row,) = rows_of(site, snapshot(waits, in_flight=InFlight(reservations=(by_git, gone, kept))))
    assert [(d.bar.name, d.bar.kind, d.bar.is_link, d.ahead_x, d.ahead_width) for d in row.bars] == [
        ("fair", "closed", False, 25, 75),
        ("waits", "reserved", True, 75, 25),
    ]
    assert [d.width for d in row.bars] == [0, 0]


def test_parts_of_a_gpu_share_its_lane_while_they_are_held_at_once(site: Site) -> None:
    half = MilliGpu(500)
    for name in ("one", "two"):
        submit(site, name, task("n1", 1, share=half))
    (row,) = rows_of(site, snapshot())
    assert [drawn.bar.spots for drawn in row.bars] == [(BarSpot(8, 3.5),), (BarSpot(12, 3.5),)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)).map(lambda at: (Instant(at[0]), Instant(sum(at))))))
def test_spans_in_one_lane_are_apart_and_there_are_no_more_lanes_than_spans_at_once(
    spans: list[tuple[Instant, Instant]],
) -> None:
    lanes = packed(spans)
    for number, (since, end) in enumerate(spans):
        beside = [spans[at] for at, lane in enumerate(lanes) if lane == lanes[number] and at != number]
        assert all(end <= other[0] or other[1] <= since for other in beside)
    at_once = max((sum(since <= at < end for since, end in spans) for at, _ in spans), default=0)
    assert len(set(lanes)) == at_once


def test_no_row_is_without_bounds_and_what_is_left_out_is_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_rows, "BARS_MAX", 2)
    for at, name in enumerate(("first", "second", "third")):
        submit(site, name, task("n1", 0))
        site.store.ledger.release(site.epoch(), JobName(name), 1, NOW.after((at + 1) * 1_000))
    submit(site, "runs", task("n1", 1))
    (row,) = rows_of(site, snapshot())
    assert {drawn.bar.name for drawn in row.bars} == {"runs", "third"}
    assert row.left_out == 2
    # What was left out is in what was held in all.
    assert row.area is not None
    assert rows_of(site, snapshot(), window(HOUR // 2, 0))[0].area is None


def test_too_much_to_be_drawn_is_added_up_beside_what_runs_now(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.web.past.SPANS_MAX", 1)
    submit(site, "runs", task("n1", 0, 1))
    submit(site, "other", task("n1", 2))
    (row,) = rows_of(site, snapshot(job("runs", task("n1", 0, 1), started_at=NOW)))
    assert row.area is not None
    # Half of the window is over; three of four GPUs were held in the second half of that.
    assert (row.area.width, row.area.steps) == (50, 60)
    assert "L29 100.0L30 100.0L30 25.0L31 25.0" in row.area.path
    assert [drawn.bar.name for drawn in row.bars] == ["runs"]


def test_where_no_placements_are_kept_what_runs_is_known_all_the_same(site: Site) -> None:
    submit(site, "runs", task("n1", 0))
    (row,) = rows_of(site, snapshot(job("runs", task("n1", 0), started_at=NOW)), is_kept=False)
    assert [(drawn.bar.name, drawn.x) for drawn in row.bars] == [("runs", 25)]


def test_an_area_ends_with_what_is_over() -> None:
    shown = window(HOUR, HOUR)
    steps = Steps(shown.start, Duration(HOUR * 3 // 4), 2)
    area = area_of((1_000, 2_000), 2_000, HeldOverTime(steps, shown.past.end, {}), shown)
    assert (area.steps, area.width) == (1.333, 50)
    assert area.path == "M0 100L0 50.0L1 50.0L1 0.0L1.333 0.0L1.333 100Z"


# Queues.


def of_queues(
    site: Site, of: Snapshot, outlook: Outlook | None = None, shown: ShownWindow | None = None
) -> dict[str, TimeRow]:
    shown, known = shown or window(), replace(site.services(), snapshot=lambda: of)
    outlook = outlook or Outlook.of(of, POLICY, {})
    maker = BarMaker(outlook, QueueColours.of(POLICY), ROOT, shown)
    row_of = timeline.rows_below(POLICY, QueueName("org"))
    guaranteed = {TEAM: MilliGpu.gpus(4)}
    found = queue_rows(row_of, guaranteed, PastReader(known, PassMemo(known)), outlook, maker, shown)
    return {row.name: row for row in found}


def test_a_queue_has_what_it_held_its_biggest_jobs_and_those_that_wait(site: Site) -> None:
    submit(site, "big", task("n1", 0, 1))
    submit(site, "small", task("n1", 2))
    submit(site, "elsewhere", task("n1", 3), queue="other")
    waits = Job(JobName("waits"), NOW, spec(), "ada")
    forecast = {JobName("waits"): None}
    of = snapshot(job("big", task("n1", 0, 1), started_at=NOW), waits)
    rows = of_queues(site, of, Outlook.of(of, POLICY, forecast))
    assert list(rows) == ["other", "team", "org"]
    team = rows["team"]
    assert [(drawn.bar.name, drawn.bar.spots[0].y) for drawn in team.bars] == [("big", 30), ("small", 44)]
    assert (team.height, team.note, team.line) == (58, "1 wait, until when is not known", 1.0)
    assert team.area is not None
    # Of four that are guaranteed, three are held.
    assert "L29 100.0L30 100.0L30 25.0L31 25.0" in team.area.path
    assert [drawn.bar.name for drawn in rows["other"].bars] == ["elsewhere"]
    assert (rows["org"].bars, rows["org"].area) == ((), None)


def test_lanes_of_a_queue_are_few_and_those_that_wait_have_their_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_rows, "HELD_LANES_MAX", 2)
    monkeypatch.setattr(time_rows, "PLANNED_LANES_MAX", 1)
    for at in range(4):
        submit(site, f"runs-{at}", task("n1", at))
    waits = [Job(JobName(f"waits-{at}"), NOW, spec(), "ada") for at in range(3)]
    kept = tuple(Reservation(each.name, (task("n2", at),), LATER) for at, each in enumerate(waits))
    team = of_queues(site, snapshot(*waits, in_flight=InFlight(reservations=kept)))["team"]
    assert [drawn.bar.kind for drawn in team.bars] == ["runs", "runs", "reserved"]
    assert team.left_out == 4


def test_too_many_in_a_queue_leave_those_that_run_now(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.web.past.SPANS_MAX", 1)
    submit(site, "runs", task("n1", 0))
    submit(site, "done", task("n1", 1))
    site.store.ledger.release(site.epoch(), JobName("done"), 1, LATER)
    team = of_queues(site, snapshot(job("runs", task("n1", 0), started_at=NOW)))["team"]
    assert [drawn.bar.name for drawn in team.bars] == ["runs"]
    assert team.area is not None
