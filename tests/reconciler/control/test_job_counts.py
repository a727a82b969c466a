"""What becomes of jobs, counted as it happens: in a whole control plane, and on records made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import structlog
from prometheus_client.metrics_core import Metric

from reconciler.control.job_counts import JobTally
from reconciler.control.ledger_site import one_pass
from reconciler.control.metrics import Metrics
from reconciler.control.runner import LoopStatus
from reconciler.model.clock import VirtualClock
from reconciler.protocols.history import Event
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from reconciler.server.history_log import LoggedHistory
from reconciler.server.reporter import Reporter
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Bind, Certificate, Evict, Plan, Step, Waits
from solver.policy.policy import PriorityClass, Queue, SchedulingPolicy, policy_of
from tests.reconciler.control.plane import Site, site_at

POLICY = policy_of((Queue(QueueName("q")),), (PriorityClass("standard", 1),))
SPEC = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(gpus=1)),), priority_class="standard")
HOUR = Duration(3_600_000)


def figures(of: Iterator[Metric]) -> dict[str, float]:
    """By name and labels' values; what is 0 is left out."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in of
        for sample in family.samples
        if sample.value and "le" not in sample.labels and not sample.name.endswith("_created")
    }


def told_by(tally: JobTally) -> dict[str, float]:
    return figures(iter(tally.collect()))


def plan_of(*steps: Step, verdicts: tuple[Waits, ...] = ()) -> Plan:
    return Plan("", "", steps, verdicts, Certificate("greedy", (), 0.0, "", 0))


def round_of(*steps: Step, jobs: tuple[Job, ...]) -> RoundRecord:
    return RoundRecord(1, Instant(0), "r", snapshot_of(Instant(0), (), jobs), POLICY, plan_of(*steps), {})


def bound(job: str, at: int) -> Event:
    return Event(Instant(at), "bound", job, "", "only")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_at(tmp_path / "quorate.db") as made:
        yield made


def counted(site: Site) -> JobTally:
    """The site's control plane with its history counted, as a process has it."""
    tally = JobTally()
    history = LoggedHistory(site.store.history, structlog.get_logger(), tally)
    site.only_plane = replace(site.only_plane, history=history, tally=tally)
    return tally


def test_a_start_and_a_failure_of_a_whole_control_plane_are_counted_once(site: Site) -> None:
    tally = counted(site)
    name = site.submit("job", ("fail", "3", "20s"))
    site.until(name, "failed")
    site.rest()
    told = told_by(tally)
    assert told["quorate_job_starts_total q"] == 1
    assert told["quorate_job_queue_seconds_count "] == 1
    assert told["quorate_job_failures_total exit failed"] == 1
    assert not [key for key in told if "evictions" in key]


def test_what_a_suspended_job_had_done_is_lost_by_its_cause(site: Site) -> None:
    tally = counted(site)
    name = site.submit("job", ("sleep", "forever"), gpus=2)
    site.until(name, "running")
    site.passes(10)
    site.store.jobs.request_suspend(name, "ada")
    site.until(name, "suspended")
    lost = told_by(tally)["quorate_gpu_lost_seconds_total suspension"]
    assert lost >= 2 * 10
    assert told_by(tally)["quorate_job_queue_seconds_count "] == 1


def test_the_wait_is_that_before_the_first_start_alone() -> None:
    tally = JobTally()
    first, again = Job(JobName("a"), Instant(0), SPEC), Job(JobName("b"), Instant(0), SPEC, attempt=1)
    starts = [Bind(job.name, job.attempt + 1, (), HOUR) for job in (first, again)]
    tally.decided(round_of(*starts, jobs=(first, again)))
    tally.happened([bound("a", 60_000), bound("b", 90_000)])
    told = told_by(tally)
    assert told["quorate_job_starts_total q"] == 2
    assert told["quorate_job_queue_seconds_count standard"] == 1
    assert told["quorate_job_queue_seconds_sum standard"] == 60


def test_a_start_that_was_refused_is_none() -> None:
    tally = JobTally()
    job = Job(JobName("a"), Instant(0), SPEC)
    tally.decided(round_of(Bind(job.name, 1, (), HOUR), jobs=(job,)))
    tally.happened([Event(Instant(1), "bind-refused", "a", "", "only"), bound("a", 2)])
    assert told_by(tally) == {}


def test_jobs_that_are_served_beside_a_round_are_found_in_it_or_have_come_since() -> None:
    tally = JobTally()
    runs, comes = Job(JobName("runs"), Instant(0), SPEC, phase="running"), Job(JobName("comes"), Instant(0), SPEC)
    tally.decided(round_of(jobs=(runs,)))
    evict = Evict(runs.name, 1, "preempt", HOUR, MilliGpu(1000), 5.0, comes.name)
    steps = (evict, Bind(comes.name, 1, (), HOUR))
    tally.decided_beside(NarrowRecord(2, Instant(0), "r", 1, (), (), (comes,), steps, {}))
    tally.happened([bound("comes", 1_000)])
    told = told_by(tally)
    assert told["quorate_evictions_total q preempt"] == 1
    assert told["quorate_job_starts_total q"] == 1


def test_a_forecast_is_judged_by_what_was_told_first() -> None:
    tally = JobTally()
    jobs = tuple(Job(JobName(name), Instant(0), SPEC) for name in ("early", "late", "gone"))

    def waits(name: str, at: int) -> Waits:
        return Waits(JobName(name), QueueName("q"), (), EarliestStart(Instant(at)))

    tally.foretell(plan_of(verdicts=(waits("early", 100_000), waits("late", 10_000), waits("gone", 10_000))))
    tally.foretell(plan_of(verdicts=(waits("early", 50_000), waits("late", 20_000))))
    tally.decided(round_of(*(Bind(job.name, 1, (), HOUR) for job in jobs), jobs=jobs))
    tally.happened([bound("early", 40_000), bound("late", 40_000), bound("gone", 40_000)])
    told = told_by(tally)
    assert told["quorate_forecast_error_seconds_sum early"] == 60
    assert told["quorate_forecast_error_seconds_sum late"] == 30
    assert told["quorate_forecast_error_seconds_count early"] + told["quorate_forecast_error_seconds_count late"] == 2


def test_names_that_policy_does_not_know_make_no_series() -> None:
    tally = JobTally()
    spec = msgspec.structs.replace(SPEC, queue=QueueName("made-up"), priority_class="made-up")
    job = Job(JobName("a"), Instant(0), spec)
    tally.decided(round_of(Bind(job.name, 1, (), HOUR), jobs=(job,)))
    tally.happened([bound("a", 1_000)])
    assert {key for key in told_by(tally) if "made-up" in key} == set()


def test_counters_begin_with_0_and_what_is_not_known_where_jobs_are_pods_is_not_there() -> None:
    tally, of_pods, observing = JobTally(), JobTally(counts_ends=False), JobTally(counts_ends=False, decides=False)
    tally.rules(POLICY)
    samples = {(s.name, *s.labels.values()) for family in tally.collect() for s in family.samples}
    assert ("quorate_evictions_total", "q", "reclaim") in samples
    assert ("quorate_job_failures_total", "node", "failed") in samples
    assert ("quorate_gpu_lost_seconds_total", "eviction") in samples
    assert {family.name for family in of_pods.collect()} == {
        "quorate_job_starts",
        "quorate_job_queue_seconds",
        "quorate_evictions",
        "quorate_forecast_error_seconds",
    }
    assert list(observing.collect()) == []


def test_what_a_pass_says_of_jobs_that_wait_is_foretold(site: Site) -> None:
    tally = JobTally()
    reporter = Reporter(Metrics(), structlog.get_logger(), VirtualClock(), tally)
    site.policy = policy_of((Queue(QueueName("q")),), (), SchedulingPolicy(start_deadline=Duration(60_000)))
    site.submit("runs", ("sleep", "forever"), tasks=2, gpus=4, limit_s=3_600)
    site.submit("waits", ("sleep", "forever"), tasks=2, gpus=4, limit_s=3_600)
    done = one_pass(site.only_plane)
    reporter.hear(LoopStatus("leading", "", done))
    waiting = [verdict for verdict in done.plan.verdicts if isinstance(verdict, Waits)]
    assert [isinstance(one.estimate, EarliestStart) for one in waiting] == [True]
    tally.decided(replace_jobs(done.snapshot.jobs))
    tally.happened([bound(waiting[0].job, 0)])
    assert told_by(tally)["quorate_forecast_error_seconds_count early"] == 1


def replace_jobs(jobs: tuple[Job, ...]) -> RoundRecord:
    return round_of(*(Bind(job.name, 1, (), HOUR) for job in jobs), jobs=jobs)
