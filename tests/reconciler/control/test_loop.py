"""The loop on a kind simulated cluster, one story per test."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from reconciler.control.control import Concluded, Solved
from reconciler.control.ledger_site import one_pass
from reconciler.control.passes import PlanRefusedError
from reconciler.control.recording import solver_with
from reconciler.control.replay import replay
from reconciler.protocols.backend import BackendUnreachableError, StopGang
from reconciler.protocols.ledger import Claim
from reconciler.protocols.rounds import RoundRecord
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, TaskPlacement
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Bind, Inadmissible, Release, Starts, Waits
from solver.policy.policy import Policy, PriorityClass
from solver.policy.user_shares import UserShares
from solver.queueing.durations import ENDED_MIN
from solver.round.solve import solve
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.control.plane import START_DEADLINE, Site


def test_a_job_goes_through_to_its_end(site: Site) -> None:
    name = site.submit("job", ("sleep", "20s"), tasks=3, gpus=2)
    assert site.state("job") == "queued"
    site.one_pass()
    assert site.state("job") == "starting"
    site.one_pass()
    assert site.state("job") == "running"
    site.one_pass(after_s=30)
    outcome = site.store.jobs.job(name).outcome
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == ("succeeded", 0)
    assert site.store.ledger.claims() == ()
    assert site.sighted().attempts == {}, "the backend was told to forget it"
    assert site.ran("job") == ["succeeded"] * 3
    assert site.events("job") == ["bound", "running", "succeeded", "released"]


def test_a_failing_task_ends_its_gang_and_says_why(site: Site) -> None:
    site.submit("job", ("fail", "3", "20s"), tasks=2)
    site.submit("other", ("sleep", "forever"))
    site.one_pass()
    site.one_pass(after_s=30)
    site.rest()
    outcome = site.store.jobs.job(JobName("job")).outcome
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == ("failed", 3)
    assert "task worker/0 on n" in outcome.message
    assert "failed, exit code 3" in outcome.message.splitlines()[-1], "the last line of its log"
    assert site.state("other") == "running"


def test_at_its_time_limit_a_job_is_stopped_and_has_failed(site: Site) -> None:
    name = site.submit("job", ("sleep", "forever"), tasks=2, limit_s=60)
    site.one_pass()
    site.one_pass()
    site.one_pass(after_s=58)
    assert site.state("job") == "running"
    site.one_pass(after_s=2)
    assert site.state("job") == "stopping"
    site.one_pass(after_s=30)
    outcome = site.store.jobs.job(name).outcome
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.message) == (
        "failed",
        None,
        "it ran longer than its time limit of 1m",
    )
    assert site.events("job") == ["bound", "running", "asked-to-stop", "failed", "released"]
    assert site.ran("job") == ["stopped"] * 2


def test_the_limit_of_a_class_is_fixed_when_a_job_starts(site: Site) -> None:
    def policy(limit_s: int) -> Policy:
        classes = (PriorityClass("batch", default_time_limit=Duration(limit_s * 1_000)),)
        scheduling = msgspec.structs.replace(site.policy.scheduling, default_priority_class="batch")
        return msgspec.structs.replace(site.policy, priority_classes=classes, scheduling=scheduling)

    site.policy = policy(100)
    site.submit("before", ("sleep", "forever"))
    site.one_pass()
    site.policy = policy(10)
    site.submit("after", ("sleep", "forever"))
    site.one_pass()
    site.one_pass()
    site.one_pass(after_s=20)
    site.one_pass(after_s=30)
    assert (site.state("before"), site.state("after")) == ("running", "failed")


def test_forecasts_do_not_make_every_pass_a_round_to_record(site: Site) -> None:
    site.submit("first", ("sleep", "forever"), tasks=len(NODES), gpus=4, limit_s=3_600)
    site.submit("second", ("sleep", "forever"), gpus=4, limit_s=3_600)
    for _ in range(5):
        site.one_pass()
    before = site.store.history.rounds(limit=1)[0].number
    for _ in range(5):
        assert site.one_pass().round is None
    (waits,) = (v for v in site.one_pass().plan.verdicts if isinstance(v, Waits))
    running_since = site.store.ledger.claims()[0].running_since
    assert running_since is not None
    assert waits.estimate == EarliestStart(running_since.after(3_600_000))
    assert site.store.history.rounds(limit=1)[0].number == before


def test_where_there_is_no_limit_the_run_times_of_earlier_jobs_say_when_something_ends(site: Site) -> None:
    for number in range(ENDED_MIN):
        site.submit(f"earlier-{number}", ("sleep", "40s"))
    for _ in range(5):
        site.one_pass(after_s=20)
    assert {site.state(f"earlier-{number}") for number in range(ENDED_MIN)} == {"succeeded"}
    site.submit("first", ("sleep", "forever"), tasks=len(NODES), gpus=4)
    site.submit("second", ("sleep", "forever"), gpus=4)
    for _ in range(3):
        site.one_pass()
    (waits,) = (v for v in site.one_pass().plan.verdicts if isinstance(v, Waits))
    running_since = site.store.ledger.claims()[0].running_since
    assert running_since is not None
    assert isinstance(waits.estimate, EarliestStart)
    assert waits.estimate.by_history
    assert 40_000 <= waits.estimate.at - running_since < 100_000


def test_the_siblings_of_a_failed_task_are_stopped_first(site: Site) -> None:
    site.submit("job", ("sleep", "forever"), tasks=8)
    site.one_pass()
    site.one_pass()
    site.cluster.fail_node(NODES[0].name, site.clock.now().after(1), Duration(3_600_000))
    site.one_pass()
    assert site.state("job") == "stopping"
    assert site.store.jobs.job(JobName("job")).outcome is None, "not before nothing runs any more"
    site.rest()
    for _ in range(30):
        site.one_pass()
    record = site.store.jobs.job(JobName("job"))
    assert record.outcome is None, "a lost machine is no fault of the job"
    assert [(failure.kind, failure.counts) for failure in record.failures] == [("node", False)]
    assert "was lost" in record.failures[0].message
    assert sorted(site.ran("job")) == ["lost"] * 4 + ["stopped"] * 4


def test_a_running_job_is_cancelled_once_it_has_stopped(site: Site) -> None:
    name = site.submit("job", ("sleep", "forever"))
    site.rest()
    site.store.jobs.request_cancel(name, "bob")
    site.one_pass()
    assert site.state("job") == "stopping"
    site.one_pass(after_s=60)
    outcome = site.store.jobs.job(name).outcome
    assert outcome is not None
    assert (outcome.state, outcome.message) == ("cancelled", "cancelled by bob")
    assert site.ran("job") == ["stopped"]
    assert site.store.ledger.claims() == ()


def test_a_queued_job_is_cancelled_at_once_and_never_starts(site: Site) -> None:
    site.store.jobs.request_cancel(site.submit("job", ("sleep", "1s")), "bob")
    site.rest()
    assert site.state("job") == "cancelled"
    assert site.ran("job") == []


def test_a_gang_that_must_wait_starts_when_there_is_room(site: Site) -> None:
    site.submit("first", ("sleep", "30s"), tasks=2, gpus=4)
    site.rest()
    site.submit("second", ("sleep", "30s"), tasks=2, gpus=4)
    verdicts = {verdict.job: verdict for verdict in site.one_pass().plan.verdicts}
    assert isinstance(verdicts[JobName("second")], Waits)
    site.one_pass(after_s=40)
    assert site.state("first") == "succeeded"
    assert site.state("second") == "starting", "freed devices are used in the pass that sees them free"


def test_a_gang_that_does_not_become_ready_in_time_waits_again(site: Site) -> None:
    site.faults(effect_delay=Duration(10 * START_DEADLINE))
    name = site.submit("job", ("sleep", "10s"))
    site.one_pass()
    site.faults(effect_delay=Duration(0))
    overdue = site.one_pass(after_s=START_DEADLINE // 1_000)
    assert overdue.plan.steps == (Release(name, 1),)
    assert site.state("job") == "stopping"
    site.rest()
    assert [claim.attempt for claim in site.store.ledger.claims()] == [2]
    site.one_pass(after_s=20 * START_DEADLINE // 1_000)
    assert site.state("job") == "succeeded"
    assert site.ran("job") == ["succeeded"], "what was ordered first never ran"


def test_an_order_that_got_lost_is_sent_again(site: Site) -> None:
    site.faults(lost=1.0)
    site.submit("job", ("sleep", "10s"))
    site.one_pass()
    site.faults(lost=0.0)
    site.one_pass()
    assert site.ran("job") == [], "it may still be on its way"
    site.one_pass(after_s=2)
    site.one_pass()
    assert site.ran("job") == ["running"]
    assert "unanswered" in site.events("job")


def test_what_the_backend_failed_to_forget_is_forgotten_later(site: Site) -> None:
    site.submit("job", ("sleep", "10s"))
    site.rest()
    site.faults(lost=1.0)
    site.one_pass(after_s=20)
    assert site.state("job") == "succeeded"
    assert len(site.sighted().attempts) == 1
    site.faults(lost=0.0)
    site.rest()
    assert site.sighted().attempts == {}


def test_something_that_nobody_claims_is_stopped(site: Site) -> None:
    site.submit("job", ("sleep", "forever"))
    site.one_pass()
    site.store.ledger.release(
        site.one_pass().epoch, JobName("job"), 1, site.clock.now()
    )  # as if the store were older than the world
    site.one_pass()
    site.one_pass(after_s=60)
    assert site.ran("job")[0] == "stopped"


def test_a_pass_without_news_leaves_no_record(site: Site) -> None:
    assert site.one_pass().round is None
    site.submit("runs", ("sleep", "forever"), tasks=2, gpus=4)
    site.submit("waits", ("sleep", "forever"), tasks=2, gpus=4)
    site.rest()
    rounds = site.store.history.rounds()
    for _ in range(5):
        assert site.one_pass().round is None
    assert site.store.history.rounds() == rounds
    site.store.jobs.request_cancel(JobName("waits"), "ada")
    assert site.one_pass().round == rounds[0].number + 1, "one verdict fewer is news"


def test_a_recorded_round_gives_the_same_plan_again(site: Site) -> None:
    for number in range(4):
        site.submit(f"job-{number}", ("sleep", "20s"), tasks=2, gpus=2)
    for _ in range(6):
        site.one_pass(after_s=10)
    summaries = site.store.history.rounds()
    assert len(summaries) >= 3
    for summary in summaries:
        record = site.store.history.round(summary.number)
        assert solve(record.snapshot, record.policy, None) == record.plan


def test_an_unsafe_plan_is_refused_and_nothing_is_done(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    name = site.submit("job", ("sleep", "forever"))

    def unsafe(snapshot: Snapshot, policy: Policy) -> Solved:
        plan = solve(snapshot, policy, None)
        (bind,) = plan.steps
        assert isinstance(bind, Bind)
        elsewhere = (TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n2/0"),)),)
        return Solved.at_once(msgspec.structs.replace(plan, steps=(msgspec.structs.replace(bind, tasks=elsewhere),)))

    monkeypatch.setattr("reconciler.control.fallback.without_program", unsafe)
    with pytest.raises(PlanRefusedError, match="S1 job: device n2/0 is not a healthy device of n1"):
        one_pass(replace(site.only_plane, solve=unsafe))
    assert site.state(name) == "queued"
    assert site.store.history.rounds() == ()


def test_what_a_round_does_is_done_before_it_is_explained(site: Site) -> None:
    name = site.submit("job", ("sleep", "forever"))
    begun = list[RoundRecord]()

    def in_parts(snapshot: Snapshot, policy: Policy) -> Solved:
        solved = solver_with(None)(snapshot, policy)

        def explained() -> Concluded:
            begun.append(site.store.history.round(1))
            assert site.state(name) == "starting"
            return solved.conclude()

        return solved._replace(conclude=explained)

    done = one_pass(replace(site.only_plane, solve=in_parts))
    (record,) = begun
    assert (record.is_whole, record.plan.steps) == (False, done.plan.steps)
    assert replay(record, optimise).identical, "also where nothing came after"
    assert done.round == 1
    assert site.store.history.round(1).is_whole
    assert site.store.history.round(1).plan == done.plan
    assert list(done.phase_ms)[3:] == ["solve", "check", "act", "explain", "alarm", "keep-free"]


@pytest.mark.parametrize("defect", ["fails", "breaks rules"])
def test_a_defect_after_the_deed_is_told_and_undoes_nothing(site: Site, defect: str) -> None:
    name = site.submit("job", ("sleep", "forever"))

    def in_parts(snapshot: Snapshot, policy: Policy) -> Solved:
        solved = solver_with(None)(snapshot, policy)

        def explained() -> Concluded:
            if defect == "fails":
                raise KeyError("a reason that is not there")
            plan = solved.conclude().plan
            return Concluded(msgspec.structs.replace(plan, verdicts=()))

        return solved._replace(conclude=explained)

    done = one_pass(replace(site.only_plane, solve=in_parts))
    why = {
        "fails": "the solver failed: KeyError: 'a reason that is not there' (test_loop.py:",
        "breaks rules": "verdicts job: has 0 verdicts",
    }[defect]
    assert done.fault.startswith(f"the round was acted on, and what it says of it can't be kept: {why}")
    assert site.state(name) == "starting"
    assert not site.store.history.round(done.round or 0).is_whole
    assert site.one_pass().fault == ""


def test_a_claim_that_the_ledger_refuses_is_skipped(site: Site) -> None:
    """Somebody else claims between the snapshot and the act; the next pass sees it."""
    name = site.submit("job", ("sleep", "forever"), tasks=2, gpus=4)
    rival = site.submit("rival", ("sleep", "forever"))
    taken = (TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"),)),)

    def overtaken(snapshot: Snapshot, policy: Policy) -> Solved:
        plan = solve(snapshot, policy, None)
        now = site.clock.now()
        epoch = site.store.ledger.lead("only", now, site.only_plane.lease)
        site.store.ledger.claim(
            epoch, Claim(rival, 1, taken, now), Intent("start", rival, 1, now, now.after(60_000), taken)
        )
        return Solved.at_once(plan)

    done = one_pass(replace(site.only_plane, solve=overtaken))
    assert done.refused == len(done.plan.steps) > 0
    assert "bind-refused" in site.events(name) + site.events(rival)
    assert {claim.job for claim in site.store.ledger.claims()} == {rival}


def test_a_declared_node_that_is_not_observed_takes_no_work(site: Site) -> None:
    absent = msgspec.structs.replace(NODES[0], name=NodeName("n3"), gpus=())
    site.declared = (*NODES, absent)
    snapshot = site.one_pass().snapshot
    assert {node.name: node.ready for node in snapshot.nodes} == {"n1": True, "n2": True, "n3": False}


def test_jobs_that_can_never_run_are_said_so(site: Site) -> None:
    name = site.submit("huge", ("sleep", "1s"), tasks=3, gpus=4)
    (verdict,) = site.one_pass().plan.verdicts
    assert isinstance(verdict, Inadmissible)
    assert site.state(name) == "queued"


def test_a_pass_that_can_not_see_the_backend_does_nothing(site: Site) -> None:
    site.submit("job", ("sleep", "forever"))
    site.faults(blind=1.0)
    with pytest.raises(BackendUnreachableError):
        site.one_pass()
    assert site.state("job") == "queued"


def test_a_gang_stopped_by_somebody_else_waits_and_runs_again(site: Site) -> None:
    site.submit("job", ("sleep", "30s"))
    site.rest()
    epoch = site.one_pass().epoch
    site.backend.submit(StopGang(JobName("job"), 1, Duration(0)), epoch)
    site.rest()
    assert [claim.attempt for claim in site.store.ledger.claims()] == [2]
    site.one_pass(after_s=60)
    assert site.state("job") == "succeeded"
    assert site.ran("job") == ["stopped", "succeeded"]


def test_each_start_has_a_verdict_with_its_numbers(site: Site) -> None:
    site.submit("job", ("sleep", "1s"), tasks=2, gpus=2)
    (verdict,) = site.one_pass().plan.verdicts
    assert isinstance(verdict, Starts)
    assert verdict.gpus.number == 4


def test_past_use_is_kept_and_decays_where_policy_lets_it_count(site: Site) -> None:
    site.submit("job", ("sleep", "forever"), tasks=2, gpus=1)
    site.one_pass()
    assert site.one_pass(after_s=3600).snapshot.in_flight.usage == ()
    half_life = msgspec.structs.replace(site.policy.scheduling, usage_half_life=Duration(3_600_000))
    site.policy = msgspec.structs.replace(site.policy, scheduling=half_life)
    site.one_pass(after_s=0)
    site.one_pass(after_s=1800)
    (used,) = site.one_pass(after_s=1800).snapshot.in_flight.usage
    # It has held 2 GPUs for 7200 s under a half-life of 3600 s: 2 / ln 2 * (1 - 1/4) GPU-hours.
    assert used.gpu_hours == pytest.approx(2 / 0.693147 * 0.75, rel=1e-3)
    assert used.user is None
    # From when its users share the queue on it is known whose it is; what is older stays nobody's.
    shared = (msgspec.structs.replace(queue, users=UserShares(True)) for queue in site.policy.queues)
    site.policy = msgspec.structs.replace(site.policy, queues=tuple(shared))
    site.one_pass(after_s=0)
    older, of_user = site.one_pass(after_s=3600).snapshot.in_flight.usage
    job = site.store.jobs.job(JobName("job"))
    assert (older.user, of_user.user) == (None, job.user)
    assert older.gpu_hours == pytest.approx(2 / 0.693147 * 0.75 / 2, rel=1e-3)
    assert of_user.gpu_hours == pytest.approx(2 / 0.693147 * 0.5, rel=1e-3)
