"""What GPUs do, on the pages of the fleet, a queue and a job: shares, the gap, who holds idle GPUs, budgets; unknown is not 0."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from reconciler.api.gpu_payloads import JobUsePoint
from reconciler.api.services import Services
from reconciler.control.use_summary import GpuUtilisation, KnownUse, LatestUse
from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.model.budget import BudgetStanding
from reconciler.model.clock import VirtualClock
from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from reconciler.protocols.backend import Progress, TaskStatus
from reconciler.web.gpu_use_rows import idle_holders, type_rows
from reconciler.web.job_use import job_use_picture
from reconciler.web.renderer import with_times
from reconciler.web.time_window import ShownWindow
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName
from solver.policy.policy import GpuPeak, GpuUseRecords
from tests.reconciler.api.conftest import H100, NOW, Site, spec
from tests.reconciler.web.conftest import Console, serving_console
from tests.reconciler.web.tables import cells
from tests.reconciler.web.test_cluster_summary import task

MINUTE, HOUR = 60_000, 3_600_000
FIRST = Instant(-(-NOW // MINUTE) * MINUTE)
LATER = FIRST.after(30 * MINUTE)


def told(start: Instant, **active: float) -> NodeMinute:
    """`g0=50.0`: GPU 0 of n1 is half active."""
    return NodeMinute(
        start,
        tuple(
            GpuMinute(
                DeviceId(f"n1/{name[1:]}"), f"GPU-{name}", record_of(UseFigures("gpm", 12, active=UseSpread(value)))
            )
            for name, value in active.items()
        ),
    )


def standing(**also: object) -> BudgetStanding:
    made = {
        "budget": "team-month",
        "origin": "policies/budget.yaml:4",
        "subject": "queue team",
        "queue": QueueName("team"),
        "user": "",
        "start": NOW,
        "end": NOW.after(300 * HOUR),
        "at": NOW,
        "unit": "GPU-hours",
        "limit": Decimal(500),
        "spent": Decimal(410),
        "unpriced": Decimal(0),
        "percent": 82,
        "per_day": Decimal(24),
        "over": Duration(24 * HOUR),
        "runs_out_at": NOW.after(90 * HOUR),
        "when_spent": "no-borrowing",
    }
    return BudgetStanding(**(made | also))  # type: ignore[arg-type]


def services_of(site: Site, *budgets: BudgetStanding) -> Services:
    clock = VirtualClock(LATER)
    use = KnownUse(LatestUse(lambda: site.minutes, clock), site.store.gpu_uses if site.keeps_use else None)
    return replace(site.services(), clock=clock, use=use, budgets=lambda: budgets)


@pytest.fixture
def busy(site: Site, tmp_path: Path) -> Iterator[Console]:
    """`train` has three GPUs of n1, of which one is not measured; `hoards` of bob has an idle one, `dark` an unknown one of n2."""
    for name, queue, user, *tasks in (
        ("train", "team", "ada", task("n1", 0, 1, 2)),
        ("hoards", "other", "bob", task("n1", 3)),
        ("dark", "team", "ada", task("n2", 0)),
    ):
        site.store.jobs.submit(JobName(name), spec(queue=queue), user, NOW, f"key-{name}")
        site.bind(name, *tasks)
    minutes = [told(FIRST.after(at * MINUTE), g0=90.0, g1=40.0, g3=0.0) for at in (*range(10), *range(20, 29))]
    site.store.gpu_uses.keep(site.epoch(), {NodeName("n1"): minutes})
    site.minutes[NodeName("n1")] = minutes[-1]
    budgets = (
        standing(),
        standing(
            budget="bobs", queue=None, user="bob", subject="user bob", percent=100, spent=Decimal(500), runs_out_at=None
        ),
    )
    with serving_console(site, tmp_path, services=services_of(site, *budgets)) as running:
        yield running


def test_both_shares_and_the_gap_between_them(busy: Console) -> None:
    with busy.browser() as browser:
        text = browser.get("/use").text
    assert cells(text, "Table of GPU types") == [["H100", "", "8", "5", "62 %", "43 %", "1.3", "1.7", "2"]]
    assert cells(text, "Table of queues") == [
        ["other", "H100", "", "1", "0 %", "0.0", "1.0", "0"],
        ["team", "H100", "", "4", "65 %", "1.3", "0.7", "2"],
    ]
    assert "Nothing is known" not in text


def test_jobs_that_hold_idle_gpus_and_none_of_which_nothing_is_known(busy: Console) -> None:
    with busy.browser() as browser:
        text = browser.get("/use").text
    assert cells(text, "Table of jobs that hold idle GPUs") == [
        ["hoards", "other", "bob", "1.0", "1", "0 %", "0"],
        ["train", "team", "ada", "0.7", "3", "65 %", "1"],
    ]


def test_budgets_with_their_forecast_the_fullest_first(busy: Console) -> None:
    with busy.browser() as browser:
        text = browser.get("/use").text
        of_queue = browser.get("/queues/team").text
    until = str(NOW.after(300 * HOUR))
    team = [
        "team-month",
        "team",
        "",
        "82",
        "410.0",
        "500.0",
        "GPU-hours",
        "24.0",
        f"spent at {NOW.after(90 * HOUR)}",
        until,
        "nothing more is borrowed",
    ]
    bobs = ["bobs", "bob", "", "100", "500.0", "500.0", "GPU-hours", "24.0", "spent", until, "nothing more is borrowed"]
    assert cells(text, "Table of budgets") == [bobs, team]
    assert 'href="/policy/documents/policies/budget.yaml#L4"' in text
    assert cells(of_queue, "Table of budgets") == [team]


def test_a_queue_with_those_below_it_says_what_its_gpus_do(busy: Console) -> None:
    with busy.browser() as browser:
        org, team = browser.get("/queues/org").text, browser.get("/queues/team").text
    assert cells(org, "Table of what its GPUs do") == [["H100", "", "5", "43 %", "1.3", "1.7", "2"]]
    assert cells(team, "Table of what its GPUs do") == [["H100", "", "4", "65 %", "1.3", "0.7", "2"]]


def test_a_job_says_what_its_gpus_do_and_did(busy: Console) -> None:
    with busy.browser() as browser:
        train, dark = browser.get("/jobs/train").text, browser.get("/jobs/dark").text
    assert (
        "<b>65 %</b> active, of 2 of its 3 GPUs: of the others that is not known. <b>0.7</b> of its GPUs are idle."
        in train
    )
    steps = cells(train, "Table of what its GPUs did")
    assert len(steps) == 19
    assert steps[0] == [str(FIRST.after(28 * MINUTE)), "2", "65.0 %", "40.0 %"]
    assert "What its GPUs do now is not known" in dark
    assert "Table of what its GPUs did" not in dark


def test_mfu_has_a_column_where_jobs_report_it(busy: Console) -> None:
    scheduling = msgspec.structs.replace(
        busy.site.policy.scheduling, gpu_use=GpuUseRecords(peaks=(GpuPeak(H100, 1_000.0),))
    )
    busy.site.policy = msgspec.structs.replace(busy.site.policy, scheduling=scheduling)
    said = Progress(7, 1.0, LATER.after(-1_000), flops=1_200e12)
    status = TaskStatus(JobName("train"), 1, "worker", 0, NodeName("n1"), "running", NOW, progress=said)
    busy.site.sighted = BackendReports({}, {(JobName("train"), 1): AttemptReport((status,))})
    with busy.browser() as browser:
        text, job = browser.get("/use").text, browser.get("/jobs/train").text
    assert [row[-1] for row in cells(text, "Table of queues")] == ["\N{EN DASH}", "40 %"]
    assert [row[-1] for row in cells(text, "Table of GPU types")] == ["40 %"]
    assert "It reports: MFU 40.0 % of 3 PFLOP/s, 1.2 PFLOP/s on 3 GPUs." in job


def test_what_a_caller_may_not_see_has_no_name(busy: Console) -> None:
    use, snapshot = LatestUse(lambda: busy.site.minutes, VirtualClock(LATER)), busy.site.snapshot()
    rows = list(idle_holders(use.of(snapshot), snapshot, lambda queue, _: queue == "team"))
    assert [(row.name, row.queue, row.user, row.idle) for row in rows] == [
        ("", "other", "", 1.0),
        ("train", "team", "ada", pytest.approx(0.7)),
    ]


def test_nothing_is_measured(site: Site, tmp_path: Path) -> None:
    with serving_console(site, tmp_path, services=services_of(site)) as running, running.browser() as browser:
        text = browser.get("/use").text
        assert "Nothing is known of what GPUs do now" in text
        for words in ("No job is known to hold idle GPUs.", "No queue holds GPUs.", "No budget is in force"):
            assert words in text
        assert cells(text, "Table of GPU types") == [["H100", "", "8", "0", "0 %", "\N{EN DASH}", "", "", "0"]]
        assert "It holds no GPUs." in browser.get("/queues/team").text


def test_where_nothing_is_told_of_gpus_the_page_says_why(site: Site, tmp_path: Path) -> None:
    site.keeps_use = False
    with serving_console(site, tmp_path, services=services_of(site)) as running, running.browser() as browser:
        assert "Quorate was not told where dcgm-exporter can be read" in browser.get("/use").text


def test_bars_of_types_have_one_scale() -> None:
    rows = type_rows([GpuUtilisation(H100, 4, 4, 1.0, healthy=5), GpuUtilisation(H100, 5, 0, 0.0, healthy=10)])
    assert [row.bar for row in rows] == [(0.0, 0.0, 150.0, 150.0), (30.0, 90.0, 0.0, 30.0)]
    assert [(row.allocated_share, row.active_share) for row in rows] == [(0.5, None), (0.8, 0.25)]


def test_a_minute_that_is_not_known_is_a_gap_in_the_picture() -> None:
    shown = ShownWindow(Instant(0), Instant(10 * MINUTE), Instant(10 * MINUTE), "", "")
    points = [JobUsePoint(Instant(at * MINUTE), 2, UseSpread(50.0, 20.0)) for at in (0, 1, 5)]
    made = job_use_picture(points, Duration(MINUTE), shown)
    assert made.mean == "M0 100V50H10V100ZM10 100V50H20V100ZM50 100V50H60V100Z"
    assert made.least == "M0 80H10M10 80H20M50 80H60"
    assert job_use_picture([], Duration(MINUTE), shown).mean == ""


def test_moments_in_sentences_are_told_in_the_readers_zone_and_markup_stays_text() -> None:
    assert with_times("spent at 2026-11-30T03:10:00Z & <b>, not 2026-11-30") == (
        "spent at <time>2026-11-30T03:10:00Z</time> &amp; &lt;b&gt;, not 2026-11-30"
    )
    assert with_times("in=2026-11-30T03:10:00.123Z.") == "in=<time>2026-11-30T03:10:00.123Z</time>."


def test_pages_have_no_moment_outside_of_a_time_element(busy: Console) -> None:
    busy.site.store.jobs.submit(JobName("waits"), spec(6), "ada", NOW, "key-waits")
    with busy.browser() as browser:
        for path in ("/use", "/queues/team", "/jobs/train", "/jobs/waits", "/health"):
            text = re.sub(r"<time[^>]*>[^<]*</time>", "", browser.get(path).text)
            text = re.sub(r'data-\w+="[^"]*"|href="[^"]*"|value="[^"]*"', "", text)
            assert re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*", text) == [], path
