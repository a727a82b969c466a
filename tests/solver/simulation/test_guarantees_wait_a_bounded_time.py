"""The bound on waiting: a job inside its guarantee starts once `reclaimWithin` is over, whatever else wants to run."""

from __future__ import annotations

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.policy.harm import Evictions, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.simulation.replay import Replay
from solver.simulation.trace import TraceJob
from tests.drawn import worlds
from tests.solver.worlds import job, node, quota_of

MINUTE = 60_000
GPUS = 4


@st.composite
def policies(draw: st.DrawFn, gpus: int) -> tuple[Policy, int]:
    """One queue owns some of the GPUs, another none; what runs is protected, and after how many minutes that counts no more."""
    within = draw(st.integers(0, 90))
    protection = Protection(
        Duration(draw(st.sampled_from([0, 30, 500])) * MINUTE), Duration(draw(st.integers(0, 300)) * MINUTE), 1
    )
    evictions = Evictions(per_round=draw(st.sampled_from([None, 1])), min_gain=draw(st.sampled_from([0.0, 0.9])))
    queues = (
        Queue(QueueName("owner"), quota=(quota_of("H100", draw(st.integers(1, gpus))),)),
        Queue(QueueName("guest"), quota=(quota_of("H100", 0),)),
    )
    scheduling = SchedulingPolicy("known", evictions=evictions, reclaim_within=Duration(within * MINUTE))
    return policy_of(queues, (PriorityClass("known", protection=protection),), scheduling), within


@worlds(60, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_job_inside_its_guarantee_waits_no_longer_than_protection_may_delay_it(data: st.DataObject) -> None:
    """The owner's jobs come one after the other, so each is inside the guarantee alone; guests flood the cluster without limits."""
    count = data.draw(st.integers(1, 3))
    policy, within = data.draw(policies(count * GPUS))
    guaranteed = policy.queues[1].quota[0].guaranteed or 0
    trace, at = [], 0
    for number in range(data.draw(st.integers(1, 3))):
        tasks, gpus = data.draw(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2), (2, 4)]))
        known = job(f"own-{number}", "owner", tasks, gpus, submitted=at * MINUTE + 1)
        if known.spec.gpus <= guaranteed and tasks * gpus <= count * GPUS:
            trace.append(TraceJob(known, Duration(60 * MINUTE)))
            at += within + 70
    for number in range(data.draw(st.integers(1, 12))):
        tasks, gpus = data.draw(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 4)]))
        submitted = data.draw(st.integers(0, 300)) * MINUTE
        known = job(f"guest-{number:02}", "guest", tasks, gpus, submitted=submitted)
        trace.append(TraceJob(known, Duration(data.draw(st.integers(1, 900)) * MINUTE)))
    replay = Replay(tuple(node(f"n{number}", GPUS) for number in range(count)), policy, None, Duration(1000))
    for decided in replay.rounds(sorted(trace, key=lambda known: known.job.submitted_at), Instant(3000 * MINUTE)):
        assert violations(decided.snapshot, policy, decided.plan) == ()
    for traced in trace:
        if traced.job.spec.queue == "owner":
            waited = replay.runs[traced.job.name].wait_ms
            assert waited is not None
            assert waited <= within * MINUTE + 10_000
