"""What depends on others begins after them, ends when it can't any more, and arrays run no more at a time than they may."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.jobs.dependencies import Depends, abandoned_jobs, standing_of
from reconciler.lifecycle.jobs.eligibility import blocks
from reconciler.lifecycle.jobs.throttle import Throttled
from reconciler.model.expansion import expand_array
from reconciler.model.job_groups import Batch, NewGroup, NewJob, Tally
from reconciler.model.job_record import ArrayElement, JobOutcome, JobRecord
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.workload import Dependency, DependencyCondition, JobArray, JobName, JobSpec, QueueName, TaskGroup
from tests.reconciler.control.plane import Site

NOW = Instant(0)
CONDITIONS: tuple[DependencyCondition, ...] = ("afterok", "afterany", "afternotok")
END = {True: "sleep 1s", False: "fail 1 1s"}


def spec(command: str, *depends_on: Dependency) -> JobSpec:
    group = TaskGroup("worker", 1, Shape(gpus=1))
    return JobSpec(QueueName("q"), (group,), command=tuple(command.split()), depends_on=depends_on)


def submit(site: Site, name: str, command: str, **depends_on: DependencyCondition) -> None:
    wanted = (Dependency(JobName(job), condition) for job, condition in depends_on.items())
    site.store.jobs.submit(JobName(name), spec(command, *wanted), "ada", site.clock.now(), "")


def play(site: Site) -> None:
    """Take passes until every job has ended."""
    for _ in range(100):
        if not site.store.jobs.live_jobs():
            return
        site.one_pass(after_s=2)
    raise AssertionError("not everything ends")


@pytest.mark.parametrize(
    ("tally", "met", "hopeless"),
    [
        (Tally(live=1), "", ""),
        (Tally(live=1, succeeded=2), "", ""),
        (Tally(live=1, failed=1), "", "afterok"),
        (Tally(live=1, cancelled=1), "", "afterok"),
        (Tally(succeeded=2), "afterok afterany", "afternotok"),
        (Tally(succeeded=1, failed=1), "afterany afternotok", "afterok"),
        (Tally(cancelled=1), "afterany afternotok", "afterok"),
    ],
)
def test_a_condition_is_met_open_or_hopeless(tally: Tally, met: str, hopeless: str) -> None:
    standing = {condition: standing_of(Dependency(JobName("a"), condition), tally) for condition in CONDITIONS}
    assert [each for each, found in standing.items() if found == "met"] == met.split()
    assert [each for each, found in standing.items() if found == "hopeless"] == hopeless.split()


def test_what_nobody_knows_is_waited_for() -> None:
    record = JobRecord(JobName("b"), spec("true", Dependency(JobName("a"))), "ada", NOW)
    assert blocks([record], NOW, (), {})[record.name] == Depends(record.spec.depends_on)
    assert list(abandoned_jobs([record], (), {})) == []


def test_a_job_begins_only_after_what_it_depends_on(site: Site) -> None:
    submit(site, "a", "sleep 30s")
    submit(site, "b", "sleep 1s", a="afterok")
    for _ in range(5):
        site.one_pass()
    assert (site.state("a"), site.state("b")) == ("running", "queued")
    assert "b" not in [job.name for job in site.one_pass().snapshot.jobs]
    play(site)
    assert (site.state("a"), site.state("b")) == ("succeeded", "succeeded")
    assert site.ran("b") == ["succeeded"]


def test_a_job_that_can_never_begin_ends_and_so_on_down_the_line(site: Site) -> None:
    submit(site, "a", "fail 1 1s")
    submit(site, "b", "sleep 1s", a="afterok")
    submit(site, "c", "sleep 1s", b="afterok")
    submit(site, "d", "sleep 1s", b="afternotok")
    play(site)
    assert [site.state(name) for name in "abcd"] == ["failed", "cancelled", "cancelled", "succeeded"]
    assert site.ran("b") == site.ran("c") == []
    outcome = site.store.jobs.job(JobName("b")).outcome
    assert outcome is not None
    assert outcome.message == "dependency afterok a can't come true any more: 1 failed"
    assert outcome.unmet == Dependency(JobName("a"))
    assert site.events("b") == ["cancelled"]


def test_a_cancelled_pipeline_begins_nothing_for_its_failures(site: Site) -> None:
    clean = NewJob(JobName("p-clean"), spec("sleep 1s", Dependency(JobName("p-a"), "afternotok")), pipeline="p")
    batch = Batch(
        (NewGroup(JobName("p"), "pipeline"),), (NewJob(JobName("p-a"), spec("sleep 60s"), pipeline="p"), clean)
    )
    site.store.jobs.submit_all(batch, "ada", site.clock.now(), "")
    site.one_pass()
    site.store.jobs.request_cancel_all(JobName("p"), "ada")
    play(site)
    assert (site.state("p-a"), site.state("p-clean")) == ("cancelled", "cancelled")
    assert site.ran("p-clean") == []


def test_an_array_runs_no_more_at_a_time_than_it_may_and_in_order(site: Site) -> None:
    wanted = msgspec.structs.replace(spec("sleep 10s"), array=JobArray("3,1,7,5,9", 2))
    site.store.jobs.submit_all(expand_array(JobName("s"), wanted), "ada", site.clock.now(), "")
    most = 0
    for _ in range(60):
        site.one_pass(after_s=2)
        most = max(most, len(site.store.ledger.claims()))
    assert most == 2
    begun = list(dict.fromkeys(interval.job for interval in site.cluster.intervals))
    assert begun == ["s-1", "s-3", "s-5", "s-7", "s-9"]
    assert {site.state(job) for job in begun} == {"succeeded"}


def element(index: int, limit: int, **known: object) -> JobRecord:
    array = ArrayElement(JobName("s"), index, 9, limit)
    return msgspec.structs.replace(JobRecord(JobName(f"s-{index}"), spec("true"), "ada", NOW, array=array), **known)


def test_who_waits_for_something_else_leaves_its_turn_to_the_next() -> None:
    records = [element(index, 2) for index in range(5)]
    records[1] = msgspec.structs.replace(records[1], suspended_by="ada")
    records[2] = msgspec.structs.replace(records[2], cancel_requested_by="ada")
    found = blocks(records, NOW, [JobName("s-0")], {})
    assert {name: str(block) for name, block in found.items()} == {
        "s-1": "suspended by ada, until it is resumed",
        "s-4": "array s runs 2 of at most 2 at a time; lower indices go first",
    }


def test_an_element_that_ended_and_still_holds_devices_counts() -> None:
    ended = element(0, 1, outcome=JobOutcome("succeeded", NOW))
    found = blocks([ended, element(1, 1)], NOW, [ended.name], {})
    assert found == {JobName("s-1"): Throttled(JobName("s"), 1, 1)}


Graph = tuple[tuple[bool, tuple[tuple[int, DependencyCondition], ...]], ...]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Jobs that would end well or not, each with conditions on jobs before it."""
    jobs = []
    for index in range(draw(st.integers(1, 7))):
        before = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        jobs.append((draw(st.booleans()), tuple((job, draw(st.sampled_from(CONDITIONS))) for job in sorted(before))))
    return tuple(jobs)


def expected(graph: Graph) -> list[str]:
    """What becomes of each job, read straight off the conditions."""
    ends: list[str] = []
    for well, conditions in graph:
        good = {"afterok": ("succeeded",), "afternotok": ("failed", "cancelled")}
        runs = all(condition == "afterany" or ends[job] in good[condition] for job, condition in conditions)
        ends.append(("succeeded" if well else "failed") if runs else "cancelled")
    return ends


def played(graph: Graph) -> list[str]:
    """What becomes of each job by the rules of the loop, one step at a time: whatever may begin begins, and ends at once."""
    records = [
        JobRecord(
            JobName(f"j{index}"),
            spec(END[well], *(Dependency(JobName(f"j{job}"), condition) for job, condition in conditions)),
            "ada",
            NOW,
        )
        for index, (well, conditions) in enumerate(graph)
    ]
    for _ in range(2 * len(records)):
        tallies = {record.name: _tally(record) for record in records}
        gone = {each.job for each in abandoned_jobs(records, (), tallies)}
        held = blocks(records, NOW, (), tallies)
        assert not gone - held.keys(), "what is abandoned was never offered"
        records = [_step(record, record.name in gone, record.name in held) for record in records]
    return [record.outcome.state if record.outcome else "live" for record in records]


def _step(record: JobRecord, gone: bool, held: bool) -> JobRecord:
    if record.outcome is not None or (held and not gone):
        return record
    ended = JobOutcome("succeeded" if record.spec.command == tuple(END[True].split()) else "failed", NOW)
    return msgspec.structs.replace(record, outcome=JobOutcome("cancelled", NOW) if gone else ended)


def _tally(record: JobRecord) -> Tally:
    return Tally(**{record.outcome.state if record.outcome else "live": 1})


@given(graphs())
def test_what_runs_is_what_the_conditions_say(graph: Graph) -> None:
    assert played(graph) == expected(graph)


@pytest.mark.parametrize("seed", range(3))
def test_a_control_plane_runs_what_the_conditions_say(site: Site, seed: int) -> None:
    graph: Graph = (
        (seed != 1, ()),
        (seed != 2, ((0, "afterok"),)),
        (True, ((0, "afternotok"),)),
        (True, ((1, "afterany"), (2, "afterany"))),
        (True, ((1, "afterok"), (2, "afternotok"))),
    )
    for index, (well, conditions) in enumerate(graph):
        submit(site, f"j{index}", END[well], **{f"j{job}": condition for job, condition in conditions})
    play(site)
    assert [site.state(f"j{index}") for index in range(len(graph))] == expected(graph)
    assert [bool(site.ran(f"j{index}")) for index in range(len(graph))] == [
        end != "cancelled" for end in expected(graph)
    ]
