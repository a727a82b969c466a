"""Hours of quota: a policy with windows decides what the plain policy decides that says the rows of that moment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName
from solver.plan.plan import Bind, Evict, Inadmissible, Plan, Reserve, Unreserve, Verdict, Waits
from solver.plan.reasons import QuotaChanges
from solver.policy import windows as windows_module
from solver.policy.harm import Convergence
from solver.policy.policy import Policy, Queue, Quota, QuotaHours, QuotaRow
from solver.policy.repeat import Repeat, RepeatedWindow
from solver.policy.windows import policies_ahead, policy_at, window_at
from solver.round import solve as solve_module
from solver.round.solve import solve
from solver.simulation import projection
from solver.simulation.replay import Replay
from solver.simulation.trace import TraceJob
from tests.drawn import worlds
from tests.solver.worlds import HOUR_MS, TYPES, job, node, policies, quota_of, snapshots

EVENING, MORNING = Instant(20 * HOUR_MS), Instant(30 * HOUR_MS)


def hours_of(name: str, times: Sequence[tuple[int, int]], *rows: Quota, weight: int | None = None) -> QuotaHours:
    """Open in each of these times, in hours."""
    found = tuple(RepeatedWindow(Instant(start * HOUR_MS), Instant(until * HOUR_MS)) for start, until in times)
    repeat = Repeat("", Duration(found[0].until - found[0].start), "UTC", found)
    said = tuple(
        QuotaRow(row.gpu_type, row.guaranteed, row.max, row.per_user, row.lendable, row.origin, row.shared or None)
        for row in rows
    )
    return QuotaHours(name, found[0].start, repeat, said, weight)


@st.composite
def hours(draw: st.DrawFn) -> tuple[QuotaHours, ...]:
    """None, or windows of one or two kinds, of which the one says guarantees and max, the other the rest."""
    made = []
    for number in range(draw(st.integers(0, 2))):
        edges = draw(st.lists(st.integers(-12, 60), min_size=2, max_size=8, unique=True).map(sorted))
        times = list(pairwise(edges)) if draw(st.booleans()) else list(zip(edges[::2], edges[1::2], strict=False))
        rows = []
        for gpu_type in TYPES:
            limits = [draw(st.none() | st.integers(0, 8)), draw(st.none() | st.integers(0, 16))]
            own = [*limits, None] if number == 0 else [None, None, draw(st.none() | st.integers(0, 8))]
            shared = number == 1 and draw(st.booleans())
            if shared or any(limit is not None for limit in own):
                rows.append(msgspec.structs.replace(quota_of(gpu_type, *own), shared=shared))
        made.append(hours_of(f"h{number}", times, *rows, weight=draw(st.integers(1, 4)) if number else None))
    return tuple(made)


@st.composite
def changing_policies(draw: st.DrawFn) -> Policy:
    policy = draw(policies())
    queues = tuple(msgspec.structs.replace(queue, hours=draw(hours())) for queue in policy.queues)
    return msgspec.structs.replace(policy, queues=queues)


def plain(policy: Policy, now: Instant) -> Policy:
    """The policy as somebody would write it by hand at this moment."""

    def by_hand(queue: Queue) -> Queue:
        rows, weight = {entry.gpu_type: entry for entry in queue.quota}, queue.weight
        for known in queue.hours:
            if not any(window.start <= now < window.until for window in known.repeat.windows):
                continue
            weight = known.weight or weight
            for row in known.quota:
                entry = rows.get(row.gpu_type, Quota(row.gpu_type))
                rows[row.gpu_type] = Quota(
                    row.gpu_type,
                    entry.guaranteed if row.guaranteed is None else row.guaranteed,
                    entry.max if row.max is None else row.max,
                    entry.per_user if row.per_user is None else row.per_user,
                    entry.lendable if row.lendable is None else row.lendable,
                    shared=entry.shared if row.shared is None else row.shared,
                )
        quota = tuple(rows[gpu_type] for gpu_type in sorted(rows))
        return msgspec.structs.replace(queue, quota=quota, weight=weight, hours=())

    return msgspec.structs.replace(policy, queues=tuple(map(by_hand, policy.queues)))


def decided(plan: Plan) -> tuple[object, ...]:
    """What a plan does and says now, but for what is kept and said of what is to come."""

    def of_now(verdict: Verdict) -> Verdict | tuple[str, str]:
        if not isinstance(verdict, Waits):
            return ("refused", verdict.job) if isinstance(verdict, Inadmissible) else verdict
        later = [reason for reason in verdict.reasons if isinstance(reason, QuotaChanges)]
        if any(reason.refused for reason in later):
            return "refused", verdict.job
        reasons = tuple(reason for reason in verdict.reasons if reason not in later)
        return msgspec.structs.replace(verdict, reasons=reasons, estimate=None)

    steps = tuple(step for step in plan.steps if not isinstance(step, Reserve | Unreserve))
    return steps, tuple(map(of_now, plan.verdicts)), plan.certificate


@worlds(120)
@given(snapshots(), changing_policies(), st.integers(-14, 62), st.sampled_from([-1, 0, 0, 1]))
def test_a_round_decides_what_the_plain_policy_decides(world: Snapshot, policy: Policy, hour: int, ms: int) -> None:
    shifted = snapshot_of(Instant(hour * HOUR_MS + ms), world.nodes, world.jobs)
    plan, by_hand = solve(shifted, policy, optimise), solve(shifted, plain(policy, shifted.time), optimise)
    assert decided(plan) == decided(by_hand)
    assert violations(shifted, policy, plan) == ()
    assert plan.policy == policy.digest


@worlds(400)
@given(changing_policies(), st.integers(-14, 62))
def test_what_is_ahead_comes_true(policy: Policy, hour: int) -> None:
    now = policy_at(policy, Instant(hour * HOUR_MS))
    edges = {at for at in policy.quota_edges if at > hour * HOUR_MS}
    ahead = policies_ahead(now)
    assert {at for at, _ in ahead} <= edges
    for at, then in ahead:
        right = policy_at(policy, at)
        assert [(q.quota, q.weight) for q in then.queues] == [(q.quota, q.weight) for q in right.queues]


def night_policy(day: Quota, night: Quota, *others: Queue) -> Policy:
    nights = hours_of("nights", [(20, 30), (44, 54)], night)
    return Policy((Queue("day", quota=(day,), hours=(nights,)), *others), ())  # type: ignore[arg-type]


def at(time: int, *jobs: object) -> Snapshot:
    return snapshot_of(Instant(time), [node("n1", 8), node("n2", 8)], jobs)  # type: ignore[arg-type]


@pytest.mark.parametrize(("time", "starts"), [(EVENING - 1, 2), (int(EVENING), 4), (MORNING - 1, 4), (int(MORNING), 2)])
def test_max_before_in_and_after_a_window(time: int, starts: int) -> None:
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", most=8))
    world = at(time, *(job(f"j{number}", "day", 1, 2) for number in range(5)))
    plan = solve(world, policy, optimise)
    assert len([step for step in plan.steps if isinstance(step, Bind)]) == starts
    assert violations(world, policy, plan) == ()


def test_a_job_that_waits_is_told_when_the_quota_changes() -> None:
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", 8, 8))
    plan = solve(at(0, job("big", "day", 1, 8), job("a", "day", 1, 4), job("b", "day", 1, 4)), policy, optimise)
    waits = {str(verdict.job): verdict for verdict in plan.verdicts if isinstance(verdict, Waits)}
    assert [str(reason) for reason in waits["big"].reasons] == [
        "the quota of queue day changes at 1970-01-01T20:00:00Z: max 8 H100 in place of 4; hours nights; "
        "the job can't start before"
    ]
    told = [str(reason) for reason in waits["b"].reasons]
    assert (
        told[-1]
        == "the quota of queue day changes at 1970-01-01T20:00:00Z: guaranteed 8 H100 in place of 4; hours nights"
    )
    assert str(waits["b"].estimate) == "earliest start 1970-01-01T20:00:00Z, when the quota of queue day changes"


def test_what_never_fits_is_still_refused() -> None:
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", 6, 6))
    (verdict,) = solve(at(0, job("big", "day", 1, 8)), policy, optimise).verdicts
    assert isinstance(verdict, Inadmissible)


def test_the_checker_reads_windows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that went by the rows of the night in the morning is refused."""
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", most=8))
    morning = at(int(MORNING), *(job(f"j{number}", "day", 1, 2) for number in range(5)))
    monkeypatch.setattr(solve_module, "policy_at", lambda policy, now: policy_at(policy, Instant(now - 1)))
    plan = solve(morning, policy, optimise)
    assert {found.rule for found in violations(morning, policy, plan)} == {"S3"}


def test_a_window_that_ends_a_moment_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", most=8))
    monkeypatch.setattr(windows_module, "window_at", lambda repeat, now: window_at(repeat, Instant(now - 1)))
    morning = at(int(MORNING), *(job(f"j{number}", "day", 1, 2) for number in range(5)))
    assert violations(morning, policy, solve(morning, policy, optimise)) != ()


def test_limits_of_a_window_are_no_less_than_nothing() -> None:
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", 0, 0))
    (kept,) = solve(at(int(EVENING), job("a", "day", 1, 1)), policy, optimise).steps
    assert isinstance(kept, Reserve)
    assert kept.start == MORNING
    assert policy_at(policy, EVENING).queues[0].quota[0].max == MilliGpu(0)


def two_jobs() -> tuple[Policy, list[Job]]:
    """By day one of two jobs of 4 GPUs may run, by night both. They run for a day."""
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", most=8))
    day = Duration(24 * HOUR_MS)
    made = [job(name, "day", 1, 4) for name in ("a", "b")]
    return policy, [
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, time_limit=day)) for one in made
    ]


def test_a_replay_holds_a_round_where_a_window_begins() -> None:
    policy, jobs = two_jobs()
    replay = Replay((node("n1", 8),), policy, optimise, Duration(1000))
    trace = [TraceJob(one, Duration(24 * HOUR_MS)) for one in jobs]
    for held in replay.rounds(trace, MORNING):
        assert violations(held.snapshot, policy, held.plan) == ()
    assert [replay.runs[JobName(name)].started_at for name in ("a", "b")] == [Instant(0), EVENING]


@pytest.mark.parametrize("small", [0, 32])
def test_a_projection_knows_when_the_quota_changes(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a cluster of which not every round is held: there the one at the begin of a window is."""
    monkeypatch.setattr(projection, "JOBS_SMALL", small)
    policy, jobs = two_jobs()
    snapshot = at(0, *jobs)
    found = projection.project(snapshot, solve(snapshot, policy, optimise), policy, "commit")
    assert found.starts == {"a": Instant(0), "b": EVENING}


def test_a_projection_sees_a_max_fall() -> None:
    """Both run when the night ends; one is asked to leave once their time is over."""
    policy, jobs = two_jobs()
    heals = Convergence(Duration(2 * HOUR_MS))
    policy = msgspec.structs.replace(
        policy, queues=tuple(msgspec.structs.replace(queue, convergence=heals) for queue in policy.queues)
    )
    evening = at(int(EVENING), *jobs)
    found = projection.project(evening, solve(evening, policy, optimise), policy, "commit")
    assert [(one.at, type(one.step), one.step.means) for one in found.given_up] == [
        (MORNING.after(2 * HOUR_MS), Evict, "converge")
    ]


@pytest.mark.parametrize("gpus", [4, 8])
def test_devices_are_kept_from_when_the_quota_lets_a_gang_start(gpus: int) -> None:
    """Whether or not it would fit by day, if nothing of its queue ran."""
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", most=12))
    world = at(0, job("first", "day", 1, 4, submitted=-1), job("gang", "day", 1, gpus))
    plan = solve(world, policy, optimise)
    assert [(step.job, step.start) for step in plan.steps if isinstance(step, Reserve)] == [("gang", EVENING)]
    assert violations(world, policy, plan) == ()


def test_the_checker_finds_what_is_kept_for_a_gang_that_may_not_start_then() -> None:
    policy = night_policy(quota_of("H100", 4, 4), quota_of("H100", most=8))
    world = at(0, job("gang", "day", 1, 8))
    plan = solve(world, policy, optimise)
    (kept,) = (step for step in plan.steps if isinstance(step, Reserve))
    by_day = msgspec.structs.replace(kept, start=Instant(EVENING - 1))
    wrong = msgspec.structs.replace(plan, steps=(by_day,))
    assert {found.rule for found in violations(world, policy, wrong)} == {"S10"}
