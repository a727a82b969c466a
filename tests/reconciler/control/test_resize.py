"""Gangs that change their size while they run, by plans made by hand, until the loop is at rest."""

from __future__ import annotations

import pytest

from reconciler.control.observation import observe
from reconciler.control.plan_executor import PlanExecutor
from reconciler.documents.operations import Operations
from reconciler.protocols.backend import GrowGang
from solver.model.cluster import DeviceId
from solver.model.quantities import Duration, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Certificate, Grow, Plan, Shrink, ShrunkBy, Step
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.control.plane import Site

JOB = JobName("job")
FOREVER = ("sleep", "forever")


@pytest.fixture
def gang(site: Site) -> Site:
    """An elastic gang of one to six, which runs with its full size on all but two of the GPUs."""
    submit(site, FOREVER)
    return site


def submit(site: Site, command: tuple[str, ...], limit_s: int | None = None) -> None:
    group = TaskGroup("worker", 6, Shape(gpus=1), min_replicas=1)
    limit = None if limit_s is None else Duration(limit_s * 1_000)
    spec = JobSpec(QueueName("q"), (group,), command=command, time_limit=limit)
    site.store.jobs.submit(JOB, spec, "ada", site.clock.now(), "key")
    site.rest()


def act(site: Site, *steps: Step) -> int:
    """Let the leader make these steps true; returns how many were refused."""
    leader = PlanExecutor(site.only_plane, site.store.ledger.lead("only", site.clock.now(), site.only_plane.lease))
    return leader.act(Plan("snapshot", "policy", steps, (), Certificate("greedy", (), 0.0, "none", 0)))


def shrink(site: Site, *indices: int, means: ShrunkBy = "preempt", grace_s: int = 20) -> Shrink:
    named = tuple(task for task in tasks_of(site) if task.index in indices)
    return Shrink(JOB, 1, named, means, Duration(grace_s * 1_000), MilliGpu.gpus(len(named)), 0.0, JobName("taker"))


def growth(*joining: tuple[int, str]) -> Grow:
    tasks = tuple(
        TaskPlacement("worker", index, node.name, (DeviceId(device),))
        for index, device in joining
        for node in NODES
        if device.startswith(f"{node.name}/")
    )
    return Grow(JOB, 1, tasks, Duration(60_000))


def tasks_of(site: Site) -> tuple[TaskPlacement, ...]:
    return next(claim.tasks for claim in site.store.ledger.claims() if claim.job == JOB)


def indices_of(site: Site) -> list[int]:
    return sorted(task.index for task in tasks_of(site))


def intents_of(site: Site) -> list[str]:
    return [intent.id for intent in site.store.ledger.intents()]


def seen(site: Site) -> Job:
    """The job as a round sees it."""
    return next(
        job
        for job in observe(site.only_plane, site.sighted(), NODES, site.policy, site.operations).jobs
        if job.name == JOB
    )


def settle(site: Site, passes: int, after_s: int = 3, restarted: bool = False) -> None:
    """Passes that settle and solve nothing, perhaps each by a control plane that has just started."""
    for number in range(passes):
        site.clock.advance(after_s * 1_000)
        if restarted:
            site.store.ledger.resign(site.store.ledger.lead("only", site.clock.now(), site.only_plane.lease))
            site.only_plane = site.plane(f"plane-{number}")
            leader = PlanExecutor(
                site.only_plane, site.store.ledger.lead(f"plane-{number}", site.clock.now(), Duration(1))
            )
        else:
            leader = PlanExecutor(
                site.only_plane, site.store.ledger.lead("only", site.clock.now(), site.only_plane.lease)
            )
        leader.settle(site.sighted(), Operations(), NODES)


def test_a_gang_gives_up_tasks_and_goes_on(gang: Site) -> None:
    site, given_up = gang, {task.devices for task in tasks_of(gang) if task.index in (4, 5)}
    assert act(site, shrink(site, 4, 5)) == 0
    assert (seen(site).phase, len(seen(site).placement)) == ("running", 6)
    assert intents_of(site) == ["shrink/job/1"]
    settle(site, 8)
    assert (site.state("job"), indices_of(site), intents_of(site)) == ("running", [0, 1, 2, 3], [])
    assert given_up.isdisjoint(task.devices for task in tasks_of(site))
    assert sorted(site.ran("job")) == ["running"] * 4 + ["stopped"] * 2
    assert site.events("job")[-2:] == ["asked-to-shrink", "shrunk"]
    assert site.store.ledger.evictions() == {}


def test_a_gang_grows_and_grows_again_where_it_had_shrunk(gang: Site) -> None:
    site = gang
    act(site, shrink(site, 4, 5))
    settle(site, 8)
    free = sorted({gpu.id for node in NODES for gpu in node.gpus} - {task.devices[0] for task in tasks_of(site)})
    assert act(site, growth((4, free[0]), (5, free[1]))) == 0
    assert intents_of(site) == ["grow/job/1"]
    assert (seen(site).phase, len(seen(site).placement)) == ("running", 6)
    settle(site, 3)
    assert (site.state("job"), indices_of(site), intents_of(site)) == ("running", [0, 1, 2, 3, 4, 5], [])
    assert sorted(site.ran("job")) == ["running"] * 6 + ["stopped"] * 2
    assert site.events("job")[-2:] == ["grows", "grown"]


def test_a_growth_onto_what_somebody_holds_is_refused_and_nothing_starts(gang: Site) -> None:
    site = gang
    act(site, shrink(site, 5))
    settle(site, 8)
    taken = tasks_of(site)[0].devices[0]
    assert act(site, growth((5, taken))) == 1
    settle(site, 3)
    assert (indices_of(site), intents_of(site)) == ([0, 1, 2, 3, 4], [])
    assert site.events("job")[-1] == "grow-refused"


@pytest.mark.parametrize("restarted", [False, True])
def test_lost_orders_are_sent_again_whoever_leads(gang: Site, restarted: bool) -> None:
    site = gang
    site.faults(lost=1.0)
    act(site, shrink(site, 5))
    settle(site, 1, restarted=restarted)
    assert "stopped" not in site.ran("job")
    site.faults(lost=0.0)
    settle(site, 10, restarted=restarted)
    assert (indices_of(site), intents_of(site)) == ([0, 1, 2, 3, 4], [])
    device = next(i.devices[0] for i in site.cluster.intervals if i.index == 5)
    site.faults(lost=1.0)
    if restarted:
        site.only_plane = site.plane("only")
        site.clock.advance(10_000)
    act(site, growth((5, device)))
    settle(site, 1, restarted=restarted)
    assert intents_of(site) == ["grow/job/1"]
    site.faults(lost=0.0)
    settle(site, 3, restarted=restarted)
    assert (indices_of(site), intents_of(site)) == ([0, 1, 2, 3, 4, 5], [])
    assert site.ran("job").count("running") == 6


def test_an_overdue_growth_is_taken_back_and_its_late_order_starts_nothing(gang: Site) -> None:
    site = gang
    act(site, shrink(site, 5))
    settle(site, 8)
    device = next(i.devices[0] for i in site.cluster.intervals if i.index == 5)
    site.faults(lost=1.0)
    act(site, growth((5, device)))
    site.faults(lost=0.0)
    order = next(
        GrowGang(JOB, 1, claim.growth, intent.tasks, (), site.store.jobs.job(JOB).spec)
        for claim in site.store.ledger.claims()
        for intent in site.store.ledger.intents()
    )
    act(site, shrink(site, 5, means="overdue"))
    assert intents_of(site) == ["grow/job/1", "shrink/job/1"]
    settle(site, 3)
    assert (site.state("job"), indices_of(site), intents_of(site)) == ("running", [0, 1, 2, 3, 4], [])
    site.backend.submit(order, site.store.ledger.lead("only", site.clock.now(), site.only_plane.lease))
    settle(site, 2)
    assert site.ran("job").count("running") == 5
    assert act(site, growth((5, device))) == 0
    settle(site, 2)
    assert (site.ran("job").count("running"), intents_of(site)) == (6, [])


def test_asking_twice_to_shrink_is_asking_once(gang: Site) -> None:
    site = gang
    first, second = shrink(site, 5), shrink(site, 4)
    act(site, first, first, second)
    settle(site, 8)
    assert indices_of(site) == [0, 1, 2, 3, 4]
    assert site.ran("job").count("stopped") == 1


def test_a_cancelled_gang_ends_whatever_was_in_flight(gang: Site) -> None:
    site = gang
    act(site, shrink(site, 5))
    settle(site, 8)
    device = next(i.devices[0] for i in site.cluster.intervals if i.index == 5)
    site.faults(lost=1.0)
    act(site, shrink(site, 4, grace_s=600), growth((5, device)))
    site.faults(lost=0.0)
    site.store.jobs.request_cancel(JOB, "ada")
    settle(site, 15)
    assert (site.state("job"), site.store.ledger.claims(), intents_of(site)) == ("cancelled", (), [])
    assert set(site.ran("job")) == {"stopped"}


def test_the_job_succeeds_when_all_that_stay_have(site: Site) -> None:
    submit(site, ("sleep", "60s"))
    site.faults(lost=1.0)
    act(site, shrink(site, 5, grace_s=600))
    settle(site, 1, after_s=100)
    assert site.ran("job") == ["succeeded"] * 6
    assert site.state("job") == "succeeded"


def test_what_a_gang_has_run_is_counted_at_each_of_its_sizes(gang: Site) -> None:
    site = gang
    claim = site.store.ledger.claims()[0]
    assert claim.running_since is not None
    act(site, shrink(site, 1, 2, 3, 4, 5, grace_s=0))
    settle(site, 1, after_s=10)
    shrunk_after = site.clock.now() - claim.running_since
    site.store.jobs.request_cancel(JOB, "ada")
    settle(site, 1)
    epoch = site.store.ledger.lead("only", site.clock.now(), site.only_plane.lease)
    site.store.ledger.release(epoch, JOB, 1, site.clock.now().after(10_000))
    ran_after = site.clock.now() + 10_000 - claim.running_since
    assert site.store.ledger.served() == {JOB: 6 * shrunk_after + (ran_after - shrunk_after)}
