"""Jobs that move, acted on: from GPUs that are free in pieces to the whole node that was wanted, with nobody's share taken."""

from __future__ import annotations

import pytest

from reconciler.control.plan_executor import PlanExecutor
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Evict, Moves, Plan, Runs, Verdict
from solver.policy.harm import Protection
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, SchedulingPolicy, policy_of
from tests.reconciler.control.plane import START_DEADLINE, Site
from tests.reconciler.control.test_evictions import devices_of


def halves(most: int | None) -> Policy:
    """Two queues are guaranteed half of the cluster each, and may hold no more than so much."""
    limit = None if most is None else MilliGpu.gpus(most)
    entry = Quota(GpuType("H100"), guaranteed=MilliGpu.gpus(4), max=limit)
    return policy_of(
        tuple(Queue(QueueName(name), quota=(entry,)) for name in ("owner", "others")),
        (PriorityClass("plain", protection=Protection(min_runtime=Duration(0))),),
        SchedulingPolicy(default_priority_class="plain", start_deadline=START_DEADLINE),
    )


@pytest.fixture
def scattered(site: Site) -> Site:
    """Each of two nodes is half used, by work inside its guarantee that holds all that it may."""
    site.policy = halves(None)
    for name in ("first", "gap", "second"):
        site.submit(name, ("sleep", "forever"), gpus=2, queue="others")
        site.rest()
    site.store.jobs.request_cancel(JobName("gap"), "ada")
    site.one_pass()
    site.one_pass(after_s=60)
    site.rest()
    site.policy = halves(4)
    assert [nodes_of(site, name) for name in ("first", "second")] == [{"n1"}, {"n2"}]
    return site


def nodes_of(site: Site, name: str) -> set[str]:
    """Where a job is."""
    return {device.partition("/")[0] for device in devices_of(site, name)}


def verdict_on(plan: Plan, name: str) -> Verdict:
    return next(verdict for verdict in plan.verdicts if verdict.job == name)


def test_a_job_moves_and_the_one_it_moved_for_has_the_whole_node(scattered: Site) -> None:
    site = scattered
    site.submit("wide", ("sleep", "forever"), gpus=4, queue="owner")
    plan = site.one_pass().plan
    (moved,) = (step.job for step in plan.steps if isinstance(step, Evict))
    stays = {"first": "second", "second": "first"}[moved]
    assert isinstance(verdict_on(plan, moved), Moves)
    assert (site.state(moved), site.state(stays), site.state("wide")) == ("evicting", "running", "reserved")
    promises = {intent.job for intent in site.store.ledger.intents() if intent.kind == "nominate"}
    assert promises == {moved, "wide"}
    again = site.one_pass(after_s=0).plan
    assert (again.steps, isinstance(verdict_on(again, moved), Runs)) == ((), True)
    site.one_pass(after_s=60)
    site.rest()
    assert [site.state(name) for name in ("wide", moved, stays)] == ["running", "running", "running"]
    assert nodes_of(site, moved) == nodes_of(site, stays) != nodes_of(site, "wide")
    assert len(site.store.ledger.evictions()[JobName(moved)]) == 1
    assert site.ran(moved) == ["stopped", "running"]
    assert site.events(moved).count("promised") == 1


def test_a_crash_between_telling_where_to_go_on_and_asking_to_leave_moves_nobody_by_halves(
    scattered: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = scattered
    site.submit("wide", ("sleep", "forever"), gpus=4, queue="owner")

    def dies(self: PlanExecutor, step: Evict) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PlanExecutor, "_evict", dies)
        with pytest.raises(KeyboardInterrupt):
            site.one_pass()
    site.only_plane = site.plane("only")
    for _ in range(3):
        site.one_pass(after_s=60)
    site.rest()
    assert [site.state(name) for name in ("wide", "first", "second")] == ["running", "running", "running"]
    assert sorted(len(site.ran(name)) for name in ("first", "second")) == [1, 2]


def test_who_finishes_instead_of_moving_has_succeeded_and_keeps_no_promise(scattered: Site) -> None:
    site = scattered
    site.submit("wide", ("sleep", "forever"), gpus=4, queue="owner")
    plan = site.one_pass().plan
    (moved,) = (step.job for step in plan.steps if isinstance(step, Evict))
    site.store.jobs.request_cancel(JobName(moved), "ada")
    site.one_pass(after_s=60)
    site.rest()
    assert (site.state(moved), site.state("wide")) == ("cancelled", "running")
    assert [intent.kind for intent in site.store.ledger.intents()] == []
