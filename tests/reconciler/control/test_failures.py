"""Gangs whose tasks fail or are lost, in the loop: they go on if they can, begin once more if they may, and are decided once."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.documents.operations import Operations
from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.evidence import Evidence
from reconciler.lifecycle.jobs.failures import settle_failure
from reconciler.lifecycle.jobs.settlements import AskToLeave, AskToStop
from reconciler.model.failure import Failure
from reconciler.model.job_record import JobRecord
from reconciler.model.retry_policy import Backoff, FailurePattern, RetryPolicy, RetryRule
from reconciler.protocols.backend import TaskState, TaskStatus
from reconciler.protocols.ledger import Claim
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.control.plane import Site

JOB = JobName("job")
FOREVER = ("sleep", "forever")
TRAINING = RetryPolicy("training", max_retries=2, backoff=Backoff(jitter=0.0))


@pytest.fixture(autouse=True)
def policies(site: Site) -> None:
    site.operations = Operations(retry=(TRAINING,))


def submit(
    site: Site,
    command: tuple[str, ...],
    tasks: int = 4,
    least: int | None = None,
    rejoin: bool = False,
    policy: str = "training",
    limit_s: int | None = None,
) -> None:
    group = TaskGroup("worker", tasks, Shape(gpus=1), min_replicas=least, rejoin=rejoin)
    limit = None if limit_s is None else Duration(limit_s * 1_000)
    spec = JobSpec(QueueName("q"), (group,), command=command, retry_policy=policy, time_limit=limit)
    site.store.jobs.submit(JOB, spec, "ada", site.clock.now(), "key")


def passes(site: Site, seconds: int, step: int = 5) -> None:
    for _ in range(-(-seconds // step)):
        site.one_pass(step)


def record(site: Site) -> JobRecord:
    return site.store.jobs.job(JOB)


def kept(site: Site) -> list[tuple[int, str, bool, int]]:
    return [(failure.attempt, failure.kind, failure.counts, failure.outlived) for failure in record(site).failures]


def placed(site: Site) -> tuple[TaskPlacement, ...]:
    return next((claim.tasks for claim in site.store.ledger.claims() if claim.job == JOB), ())


def attempt(site: Site) -> int:
    return site.store.ledger.attempts().get(JOB, 0)


def kill(site: Site, *indices: int, exit_code: int = 1) -> None:
    """Some tasks end by themselves with this exit code, now."""
    for index in indices:
        site.cluster.fail_task(JOB, index, site.clock.now(), exit_code)
    site.cluster.catch_up()


def test_a_gang_that_fails_rests_and_begins_again_until_its_retries_are_used_up(site: Site) -> None:
    submit(site, ("fail", "3", "20s"), tasks=4)
    passes(site, 30)
    assert (site.state(JOB), placed(site)) == ("retrying", ())
    (first,) = record(site).failures
    assert (first.not_before, first.counts, first.exit_code) == (first.at.after(10_000), True, 3)
    passes(site, 200)
    assert kept(site) == [(1, "exit", True, 0), (2, "exit", True, 0)]
    begun = [interval.begin for interval in site.cluster.intervals]
    for failure, begin in zip(record(site).failures, sorted(set(begun))[1:], strict=True):
        assert begin >= failure.not_before, "it did not rest"
    outcome = record(site).outcome
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.attempt) == ("failed", 3, 3)
    assert "RetryPolicy training grants it no more than 2 retries" in outcome.message
    assert len(site.ran(JOB)) == 3 * 4
    assert site.events(JOB).count("retried") == 2


def test_rests_grow(site: Site) -> None:
    submit(site, ("fail", "3", "20s"), tasks=1)
    passes(site, 200)
    assert [failure.not_before - failure.at for failure in record(site).failures] == [10_000, 20_000]


@pytest.mark.parametrize(("code", "policy"), [("127", "training"), ("126", "training"), ("3", ""), ("3", "deleted")])
def test_what_would_only_happen_again_fails_at_once(site: Site, code: str, policy: str) -> None:
    submit(site, ("fail", code, "20s"), policy=policy)
    passes(site, 60)
    assert (site.state(JOB), attempt(site) or 1, kept(site)) == ("failed", 1, [])


def test_a_rule_decides_before_the_defaults(site: Site) -> None:
    never = RetryRule(FailurePattern(exit_codes=(3,)), "fail")
    site.operations = Operations(retry=(msgspec.structs.replace(TRAINING, rules=(never,)),))
    submit(site, ("fail", "3", "20s"))
    passes(site, 60)
    assert (site.state(JOB), len(site.ran(JOB))) == ("failed", 4)


def test_a_time_limit_may_be_tried_again(site: Site) -> None:
    again = RetryRule(FailurePattern(kinds=("time-limit",)), "retry")
    site.operations = Operations(retry=(msgspec.structs.replace(TRAINING, rules=(again,)),))
    submit(site, FOREVER, limit_s=30)
    passes(site, 400, step=5)
    assert kept(site) == [(1, "time-limit", True, 0), (2, "time-limit", True, 0)]
    assert site.state(JOB) == "failed"


@pytest.mark.parametrize("policy", ["", "training"])
def test_a_lost_node_sends_a_rigid_gang_back_whole_and_is_one_failure_that_does_not_count(
    site: Site, policy: str
) -> None:
    submit(site, FOREVER, tasks=8, policy=policy)
    site.rest()
    site.cluster.fail_node(NodeName("n2"), site.clock.now(), Duration(60_000))
    passes(site, 50)
    assert kept(site) == [(1, "node", False, 0)]
    assert "and 3 tasks more went with it" in record(site).failures[0].message
    passes(site, 60)
    assert (site.state(JOB), attempt(site), len(placed(site))) == ("running", 2, 8)


def test_who_fails_right_before_its_peers_node_is_lost_is_no_culprit(site: Site) -> None:
    submit(site, FOREVER, tasks=8, policy="")
    site.rest()
    (other,) = {task.node for task in placed(site)} - {placed(site)[0].node}
    kill(site, placed(site)[0].index)
    site.cluster.fail_node(other, site.clock.now().after(20), Duration(60_000))
    passes(site, 50)
    assert kept(site) == [(1, "node", False, 0)]


@pytest.mark.thorough
def test_machines_never_use_up_the_retries(site: Site) -> None:
    submit(site, FOREVER, tasks=8)
    for _ in range(TRAINING.max_retries + 2):
        passes(site, 60, step=5)
        assert site.state(JOB) == "running"
        site.cluster.fail_node(NodeName("n2"), site.clock.now(), Duration(20_000))
        passes(site, 200, step=5)
    assert site.state(JOB) == "running"
    assert {counts for _, _, counts, _ in kept(site)} == {False}


def test_an_elastic_gang_goes_on_without_what_a_node_took_and_gets_it_back(site: Site) -> None:
    submit(site, FOREVER, tasks=8, least=2, policy="")
    site.rest()
    site.cluster.fail_node(NodeName("n2"), site.clock.now(), Duration(120_000))
    passes(site, 60)
    assert (site.state(JOB), attempt(site), {task.node for task in placed(site)}) == ("running", 1, {"n1"})
    assert kept(site) == [(1, "node", False, 1)]
    passes(site, 90)
    assert (site.state(JOB), attempt(site), len(placed(site))) == ("running", 1, 8)
    assert "stopped" not in site.ran(JOB)


def test_what_does_not_count_sends_an_elastic_gang_back_so_that_it_rests(site: Site) -> None:
    free = RetryRule(FailurePattern(exit_codes=(75,)), "ignore-count")
    site.operations = Operations(retry=(msgspec.structs.replace(TRAINING, rules=(free,)),))
    submit(site, FOREVER, least=1)
    site.rest()
    kill(site, 2, exit_code=75)
    passes(site, 40)
    assert kept(site) == [(1, "exit", False, 0)]


@pytest.mark.parametrize(("other", "follows"), [("running", AskToLeave), ("succeeded", AskToStop)])
def test_who_fails_after_the_others_have_ended_well_is_not_left_behind(other: TaskState, follows: type) -> None:
    tasks = tuple(TaskPlacement("worker", index, NodeName("n1")) for index in (0, 1))
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 2, Shape(), min_replicas=1),), retry_policy="training")
    seen = tuple(
        TaskStatus(JOB, 1, "worker", index, NodeName("n1"), state, Instant(1), 1)
        for index, state in ((0, other), (1, "failed"))
    )
    claim = Claim(JOB, 1, tasks, Instant(0), Instant(0))
    evidence = Evidence(Operations(retry=(TRAINING,)), NODES, {})
    holding = ClaimContext(
        JobRecord(JOB, spec, "ada", Instant(0)), claim, (), AttemptReport(seen), Instant(2), evidence=evidence
    )
    assert isinstance(settle_failure(holding)[-1], follows)


def test_below_its_minimum_it_goes_back_whole(site: Site) -> None:
    submit(site, FOREVER, tasks=8, least=6, policy="")
    site.rest()
    site.cluster.fail_node(NodeName("n2"), site.clock.now(), Duration(60_000))
    passes(site, 50)
    assert kept(site) == [(1, "node", False, 0)]


def test_a_member_that_may_rejoin_rests_and_begins_again_where_it_was(site: Site) -> None:
    submit(site, FOREVER, rejoin=True)
    site.rest()
    before = placed(site)
    kill(site, 2)
    passes(site, 5)
    assert (site.state(JOB), kept(site)) == ("running", [(1, "exit", True, 1)])
    assert site.ran(JOB).count("running") == 3
    passes(site, 10)
    assert (site.state(JOB), attempt(site), placed(site)) == ("running", 1, before)
    assert sorted(site.ran(JOB)) == ["failed", *["running"] * 4]
    again = max(site.cluster.intervals, key=lambda interval: interval.begin)
    assert again.begin >= record(site).failures[0].not_before


def test_five_deaths_are_one_failure(site: Site) -> None:
    submit(site, FOREVER, tasks=8, rejoin=True)
    site.rest()
    kill(site, 0, 1, 2, 3, 4)
    passes(site, 20)
    assert (site.state(JOB), kept(site)) == ("running", [(1, "exit", True, 1)])
    assert site.ran(JOB).count("running") == 8


def test_members_are_not_begun_again_more_often_than_the_policy_grants(site: Site) -> None:
    submit(site, FOREVER, rejoin=True)
    site.rest()
    for number in range(TRAINING.max_retries + 1):
        assert site.state(JOB) == "running", number
        kill(site, 1)
        passes(site, 60)
    assert kept(site) == [(1, "exit", True, 1), (1, "exit", True, 2)]
    assert (site.state(JOB), site.ran(JOB).count("failed")) == ("failed", 3)


def test_what_was_outlived_counts_in_later_attempts(site: Site) -> None:
    submit(site, FOREVER, rejoin=True)
    site.rest()
    kill(site, 1)
    passes(site, 20)
    site.cluster.fail_node(placed(site)[0].node, site.clock.now(), Duration(1_000))
    passes(site, 90)
    assert (site.state(JOB), attempt(site)) == ("running", 2)
    kill(site, 1)
    passes(site, 60)
    assert [counts for *_, counts, _ in kept(site)] == [True, False, True]
    kill(site, 1)
    passes(site, 60)
    assert site.state(JOB) == "failed"


def test_a_gpu_that_breaks_under_a_task_is_the_machines_fault(site: Site) -> None:
    submit(site, FOREVER, tasks=4)
    site.rest()
    device = placed(site)[0].devices[0]
    node = site.cluster.node(placed(site)[0].node)
    gpus = tuple(msgspec.structs.replace(gpu, healthy=gpu.id != device) for gpu in node.gpus)
    site.cluster.put_node(msgspec.structs.replace(node, gpus=gpus), site.clock.now())
    passes(site, 2)
    kill(site, 0)
    passes(site, 60)
    assert (site.state(JOB), attempt(site)) == ("running", 2)
    assert device not in {device for task in placed(site) for device in task.devices}
    assert all(not counts for _, _, counts, _ in kept(site))


def test_decided_again_after_a_crash_it_is_the_same(site: Site) -> None:
    """The control plane dies after each record, before the deed: nothing is counted twice."""
    submit(site, FOREVER, least=2, rejoin=False)
    site.rest()
    kill(site, 3)
    at = site.clock.now()
    site.store.jobs.retry(
        site.store.ledger.lead("only", at, site.only_plane.lease),
        JOB,
        Failure(1, "exit", dead_at(site, 3), at, True, 1, "noted before the crash", 1),
    )
    passes(site, 10)
    assert kept(site) == [(1, "exit", True, 1)]
    assert (site.state(JOB), attempt(site)) == ("running", 1)
    assert "asked-to-shrink" in site.events(JOB)


def dead_at(site: Site, index: int) -> Instant:
    return next(task.at for task in site.sighted().attempt(JOB, 1).tasks if task.index == index)


def test_its_time_limit_holds_while_a_member_rests(site: Site) -> None:
    submit(site, FOREVER, rejoin=True, limit_s=30)
    site.rest()
    passes(site, 22)
    kill(site, 1)
    passes(site, 60)
    assert (site.state(JOB), kept(site)) == ("failed", [(1, "exit", True, 1)])
    assert "time limit of 30s" in (record(site).outcome or pytest.fail("it has no outcome")).message


def test_suspended_while_a_member_rests_it_has_not_failed_twice(site: Site) -> None:
    submit(site, FOREVER, rejoin=True)
    site.rest()
    kill(site, 1)
    passes(site, 2)
    site.store.jobs.request_suspend(JOB, "ada")
    passes(site, 60)
    assert (site.state(JOB), kept(site)) == ("suspended", [(1, "exit", True, 1)])


def test_others_that_end_before_a_member_has_rested_make_it_begin_again_whole_and_it_counts_once(site: Site) -> None:
    submit(site, ("sleep", "20s"), rejoin=True)
    passes(site, 18)
    kill(site, 1)
    passes(site, 60, step=1)
    assert kept(site) == [(1, "exit", True, 1), (1, "exit", False, 0)]
    assert (site.state(JOB), len(site.ran(JOB))) == ("succeeded", 8)


def test_a_member_that_does_not_begin_again_stops_a_gang_that_needs_it(site: Site) -> None:
    submit(site, FOREVER, rejoin=True)
    site.rest()
    kill(site, 1)
    passes(site, 5)
    site.faults(lost=1.0)
    passes(site, 320, step=5)
    assert site.state(JOB) == "stopping"
    site.faults(lost=0.0)
    passes(site, 60)
    assert (site.state(JOB), attempt(site), len(placed(site))) == ("running", 2, 4)


def test_cancelled_while_it_rests_it_is_cancelled(site: Site) -> None:
    submit(site, ("fail", "3", "20s"))
    passes(site, 25)
    assert site.state(JOB) == "retrying"
    site.store.jobs.request_cancel(JOB, "ada")
    passes(site, 2)
    assert site.state(JOB) == "cancelled"


def test_the_world_of_these_tests_has_two_nodes_of_four_gpus() -> None:
    assert [len(node.gpus) for node in NODES] == [4, 4]
