"""Services in the loop: replicas come as they fit, and how one of them ends is not the end of anything else."""

from __future__ import annotations

from collections import Counter

import pytest

from reconciler.lifecycle.jobs.replicas import RESTART_AFTER, RESTART_EVERY, RESTARTS_AT_ONCE, degradation
from reconciler.protocols.backend import TaskState
from solver.model.cluster import NodeName
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, JobType, QueueName, TaskGroup
from solver.policy.policy import Queue, policy_of
from tests.reconciler.control.plane import Site

JOB = JobName("service")
FOREVER = ("sleep", "forever")


def submit(
    site: Site,
    command: tuple[str, ...],
    replicas: int = 3,
    kind: JobType = "service",
    limit_s: int | None = None,
    least: int | None = None,
) -> None:
    limit = None if limit_s is None else Duration(limit_s * 1_000)
    group = TaskGroup("replica", replicas, Shape(gpus=1), min_replicas=least)
    spec = JobSpec(QueueName("q"), (group,), command=command, type=kind, time_limit=limit)
    site.store.jobs.submit(JOB, spec, "ada", site.clock.now(), "key")


def passes(site: Site, seconds: int, step: int = 5) -> None:
    for _ in range(-(-seconds // step)):
        site.one_pass(step)


def running(site: Site) -> int:
    return site.ran(JOB).count("running")


def attempts(site: Site) -> list[int]:
    return [claim.attempt for claim in site.store.ledger.claims()]


def test_a_service_begins_with_what_fits_and_does_not_wait_for_the_rest(site: Site) -> None:
    site.submit("holder", FOREVER, tasks=1, gpus=4)
    site.submit("other", FOREVER, tasks=1, gpus=2)
    site.rest()
    submit(site, FOREVER, replicas=5)
    site.rest()
    assert (site.state(JOB), running(site)) == ("running", 2)


@pytest.mark.parametrize("command", [("fail", "3", "20s"), ("sleep", "20s")])
def test_a_replica_that_ends_is_started_again_where_it_was(site: Site, command: tuple[str, ...]) -> None:
    submit(site, command, replicas=1)
    site.rest()
    passes(site, 25)
    ended: TaskState = "failed" if command[0] == "fail" else "succeeded"
    assert (site.state(JOB), site.ran(JOB)) == ("running", [ended])
    passes(site, 15)
    assert (site.state(JOB), site.ran(JOB), attempts(site)) == ("running", [ended, "running"], [1])
    first, again = site.cluster.intervals
    assert (first.node, first.devices) == (again.node, again.devices)
    assert again.begin >= (first.end or 0) + RESTART_AFTER
    assert "restarts" in site.events(JOB)


@pytest.mark.thorough
def test_a_replica_that_ends_at_once_is_not_started_for_ever(site: Site) -> None:
    submit(site, ("fail", "1", "1s"), replicas=1)
    passes(site, 2_000, step=10)
    assert site.state(JOB) == "running"
    allowed = 1 + RESTARTS_AT_ONCE + 2_000_000 // RESTART_EVERY
    assert RESTARTS_AT_ONCE < len(site.ran(JOB)) <= allowed


@pytest.mark.parametrize("least", [None, 8])
def test_a_replica_whose_node_dies_leaves_and_the_others_go_on(site: Site, least: int | None) -> None:
    submit(site, FOREVER, replicas=8, least=least)
    site.rest()
    assert running(site) == 8
    site.cluster.fail_node(NodeName("n2"), site.clock.now(), Duration(120_000))
    passes(site, 60)
    tasks = site.store.ledger.claims()[0].tasks
    assert (site.state(JOB), {task.node for task in tasks}) == ("running", {"n1"})
    assert Counter(site.ran(JOB)) == {"running": 4, "lost": 4}
    passes(site, 90)
    assert (site.state(JOB), attempts(site), running(site)) == ("running", [1], 8)


def test_a_service_whose_every_replica_is_lost_waits_again(site: Site) -> None:
    site.submit("holder", FOREVER, tasks=1, gpus=4)
    site.rest()
    submit(site, FOREVER, replicas=2)
    site.rest()
    (node,) = {task.node for claim in site.store.ledger.claims() if claim.job == JOB for task in claim.tasks}
    site.cluster.fail_node(node, site.clock.now(), Duration(60_000))
    passes(site, 50)
    assert site.state(JOB) == "queued"
    passes(site, 60)
    assert (site.state(JOB), running(site)) == ("running", 2)
    assert [claim.attempt for claim in site.store.ledger.claims() if claim.job == JOB] == [2]


def test_it_gets_what_it_lacks_once_there_is_room(site: Site) -> None:
    site.submit("holder", ("sleep", "60s"), tasks=1, gpus=4)
    site.rest()
    submit(site, FOREVER, replicas=8)
    site.rest()
    assert running(site) == 4
    passes(site, 90)
    assert (site.state(JOB), attempts(site), running(site)) == ("running", [1], 8)


@pytest.mark.thorough
@pytest.mark.parametrize(("replicas", "attempt", "lasting"), [(1, 2, 1), (5, 1, 1)])
def test_a_replica_that_cannot_begin_again_where_it_was_goes_elsewhere(
    site: Site, replicas: int, attempt: int, lasting: int
) -> None:
    """The one replica that was on the node had ended before the node died. Of the others, if any, one goes on: what a service has
    beyond its minimum yields to the filler, which was on the node, too, and waits for all that it needs.
    """
    site.submit("filler", FOREVER, tasks=1, gpus=3)
    site.rest()
    submit(site, ("sleep", "20s") if replicas == 1 else FOREVER, replicas=replicas)
    site.rest()
    tasks = next(claim.tasks for claim in site.store.ledger.claims() if claim.job == JOB)
    alone = min(tasks, key=lambda task: sum(other.node == task.node for other in tasks))
    if replicas == 1:
        passes(site, 22)
    site.cluster.fail_node(alone.node, site.clock.now(), Duration(3_600_000))
    passes(site, 400, step=5)
    now = next(claim for claim in site.store.ledger.claims() if claim.job == JOB)
    assert (site.state(JOB), now.attempt, len(now.tasks)) == ("running", attempt, lasting)
    assert alone.node not in {task.node for task in now.tasks}


def test_an_evicted_service_waits_and_starts_again(site: Site) -> None:
    submit(site, FOREVER, replicas=4)
    site.rest()
    drains = policy_of((Queue(QueueName("q"), stop_policy="HoldAndDrain"),))
    site.policy, before = drains, site.policy
    passes(site, 120, step=3)
    assert (site.state(JOB), running(site)) == ("queued", 0)
    site.policy = before
    passes(site, 20)
    assert (site.state(JOB), attempts(site), running(site)) == ("running", [2], 4)


def test_those_that_are_not_ready_in_time_leave_and_the_others_are_the_service(site: Site) -> None:
    site.faults(effect_delay=Duration(5_000))
    submit(site, FOREVER, replicas=8)
    site.one_pass(0)
    # One of two nodes dies before anything has begun on it.
    site.cluster.fail_node(NodeName("n2"), site.clock.now(), Duration(3_600_000))
    passes(site, 55)
    assert site.state(JOB) == "starting"
    passes(site, 60)
    assert (site.state(JOB), attempts(site), len(site.store.ledger.claims()[0].tasks)) == ("running", [1], 4)


def test_a_cancelled_service_is_cancelled_though_its_replicas_have_ended(site: Site) -> None:
    submit(site, ("sleep", "20s"))
    passes(site, 25)
    site.store.jobs.request_cancel(JOB, "ada")
    passes(site, 60)
    assert (site.state(JOB), site.store.ledger.claims()) == ("cancelled", ())


@pytest.mark.thorough
@pytest.mark.parametrize("command", [FOREVER, ("fail", "1", "25s"), ("sleep", "25s")])
def test_a_service_has_a_time_limit_where_it_says_so(site: Site, command: tuple[str, ...]) -> None:
    """Whether its replicas run then, or rest before they would begin again."""
    submit(site, command, limit_s=30)
    passes(site, 120, step=2)
    assert site.state(JOB) == "failed"
    assert "time limit of 30s" in (site.store.jobs.job(JOB).outcome or pytest.fail("it has no outcome")).message


def test_an_interactive_job_ends_after_eight_hours(site: Site) -> None:
    submit(site, FOREVER, kind="interactive")
    site.rest()
    assert site.store.ledger.claims()[0].time_limit == Duration(8 * 3_600_000)
    site.clock.advance(8 * 3_600_000)
    passes(site, 60)
    assert site.state(JOB) == "failed"


def test_a_service_whose_replicas_crash_is_degraded_also_while_they_run(site: Site) -> None:
    submit(site, ("fail", "3", "20s"), replicas=2)
    site.rest()
    assert degraded(site) == ""
    passes(site, 25)
    assert degraded(site) == "replica/0, replica/1 ended with exit code 3 and will begin again"
    passes(site, 15)
    assert running(site) == 2
    assert degraded(site).startswith("replicas that had ended began again at ")


def test_a_service_that_ran_for_long_after_a_replica_began_again_is_not_degraded_any_more(site: Site) -> None:
    submit(site, FOREVER, replicas=2)
    site.rest()
    site.cluster.fail_task(JOB, 0, site.clock.now(), 1)
    passes(site, 30)
    assert degraded(site)
    passes(site, RESTART_EVERY // 1_000)
    assert degraded(site) == ""


def degraded(site: Site) -> str:
    """What a look at the service says now."""
    (claim,) = [claim for claim in site.store.ledger.claims() if claim.job == JOB]
    known = site.sighted().attempt(JOB, claim.attempt)
    return degradation(site.store.jobs.job(JOB).spec, claim, known, site.clock.now())
