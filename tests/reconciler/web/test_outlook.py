"""Until when what runs is expected to run, and when what waits may start: promised before reserved before forecast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from reconciler.web.outlook import ExpectedEnd, Outlook, Outlooks
from solver.model.inflight import DurationQuantile, InFlight, Intent, Reservation, declared_holder
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.plan.estimates import AnyEstimate, EarliestStart, EndUnknown
from solver.plan.plan import Verdict, Waits
from tests.reconciler.api.conftest import POLICY, Site, spec
from tests.reconciler.web.test_cluster_map import job
from tests.reconciler.web.test_cluster_summary import node, task

NOW = Instant(100_000_000)
HOUR = Duration(3_600_000)
TEAM = QueueName("team")


def waiting(name: str, gpus: int = 1, limit: Duration | None = None) -> Job:
    return Job(JobName(name), Instant(0), msgspec.structs.replace(spec(gpus), time_limit=limit), "ada")


def world(*jobs: Job, **in_flight: object) -> Snapshot:
    return snapshot_of(NOW, (node("n1", "r1"),), jobs, msgspec.structs.replace(InFlight(), **in_flight))


def test_what_runs_is_expected_to_end_and_why() -> None:
    began = NOW.after(-1_000)
    jobs = (
        job("limited", task("n1", 0), started_at=began, time_limit=HOUR),
        job("leaves", task("n1", 1), started_at=began, time_limit=HOUR),
        job("usual", task("n1", 2), started_at=began),
        job("open", task("n1", 3), started_at=Instant(0)),
    )
    stop = Intent("stop", JobName("leaves"), 1, NOW, NOW.after(30_000), purpose="evict")
    usual = DurationQuantile(TEAM, "", 0.8, Duration(60_000))
    found = Outlook.of(world(*jobs, intents=(stop,), durations=(usual,)), POLICY, {}).ends
    assert found == {
        "limited": ExpectedEnd(began.after(HOUR), "limit"),
        "leaves": ExpectedEnd(NOW.after(30_000), "asked"),
        "usual": ExpectedEnd(began.after(60_000), "history"),
        # By then most had ended: that says nothing of it any more.
        "open": ExpectedEnd(None, ""),
    }


def test_what_waits_may_start_as_was_promised_reserved_or_forecast() -> None:
    jobs = waiting("promised"), waiting("kept", limit=HOUR), waiting("told", 3, HOUR), waiting("vague"), waiting("dark")
    forecast = EarliestStart(NOW.after(9_000))
    promise = Intent("nominate", JobName("promised"), 1, NOW, NOW.after(5_000), (task("n1", 0, 1),))
    reserved = Reservation(JobName("kept"), (task("n1", 2),), NOW.after(7_000))
    by_git = Reservation(declared_holder("conference"), (task("n1", 3),), NOW, NOW.after(8_000))
    estimates: dict[JobName, AnyEstimate | None] = {
        JobName("promised"): forecast,
        JobName("kept"): forecast,
        JobName("told"): forecast,
        JobName("vague"): EarliestStart(NOW.after(2_000), by_history=True),
        JobName("dark"): EndUnknown(1),
    }
    snapshot = world(*jobs, intents=(promise,), reservations=(reserved, by_git))
    outlook = Outlook.of(snapshot, POLICY, estimates)
    assert [
        (each.job.name, each.kind, each.at - NOW, each.until, each.gpus.number) for each in outlook.planned[TEAM]
    ] == [
        ("promised", "promised", 0, None, 2),
        ("vague", "forecast", 2_000, None, 1),
        ("kept", "reserved", 7_000, NOW.after(7_000 + HOUR), 1),
        ("told", "forecast", 9_000, NOW.after(9_000 + HOUR), 3),
    ]
    assert [each.is_vague for each in outlook.planned[TEAM]] == [False, True, False, False]
    assert "if what runs ends at its limit" in outlook.starts[JobName("told")].told
    assert outlook.unknown == {TEAM: 1}


def test_the_biggest_run_first_and_those_without_gpus_not_at_all() -> None:
    bare = msgspec.structs.replace(task("n1"), devices=())
    jobs = job("small", task("n1", 0)), job("big", task("n1", 1, 2)), job("none", bare)
    assert [each.job.name for each in Outlook.of(world(*jobs), POLICY, {}).running[TEAM]] == ["big", "small"]


def test_it_is_worked_out_once_for_a_pass_and_goes_on_while_a_plan_is_half_known(site: Site) -> None:
    asked = Counter[str]()
    now: list[Snapshot] = [world(waiting("waits"))]
    verdicts: list[Sequence[Verdict] | None] = [(Waits(JobName("waits"), TEAM, (), EarliestStart(NOW)),)]

    def snapshot() -> Snapshot:
        asked["snapshot"] += 1
        return now[0]

    outlooks = Outlooks(replace(site.services(), snapshot=snapshot, verdicts=lambda: verdicts[0]))
    first = outlooks.latest()
    assert outlooks.latest() is first
    now[0], verdicts[0] = world(waiting("waits"), waiting("new")), None
    second = outlooks.latest()
    assert second is not first
    assert set(second.starts) == {"waits"}
    verdicts[0] = ()
    assert set(outlooks.latest().starts) == set()
