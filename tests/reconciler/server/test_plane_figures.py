"""Figures of a control plane as a whole, read from what its loop did last."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import structlog

from reconciler.control.control import PolicyInForce
from reconciler.control.lending import with_lent
from reconciler.control.metrics import Metrics
from reconciler.control.queue_use import QueueUses, queue_uses
from reconciler.control.runner import LoopStatus
from reconciler.documents.operations import Operations
from reconciler.model.clock import VirtualClock
from reconciler.model.git_status import PolicyCondition, PolicyStatus
from reconciler.server.plane_figures import PlaneFigures
from reconciler.server.reporter import Reporter
from reconciler.server.services import ControlPlaneView
from reconciler.store.figures import StoreFigures
from solver.model.cluster import GpuType
from solver.model.quantities import Cpu, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.policy.host_share import CpuQuota, MemoryQuota
from solver.policy.policy import Queue, Quota, policy_of
from solver.policy.user_shares import UserShares
from tests.reconciler.control.plane import Site, site_at
from tests.reconciler.control.test_lending import policy, queue, running, world
from tests.solver.quota.test_hours import hours_of
from tests.solver.worlds import quota_of

H100 = GpuType("H100")
POLICY = policy_of(
    (
        Queue(QueueName("org"), quota=(Quota(H100, guaranteed=MilliGpu.gpus(4), max=MilliGpu.gpus(6)),)),
        Queue(QueueName("q"), QueueName("org"), (Quota(H100, guaranteed=MilliGpu.gpus(2)),)),
    )
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_at(tmp_path / "quorate.db") as made:
        made.policy = POLICY
        yield made


def policy_status(*, stalled: bool = False, revision: str = "abc") -> PolicyStatus:
    conditions = (PolicyCondition("Stalled", status=stalled, reason="", message=""),)
    return PolicyStatus(conditions, revision, revision)


def figures(status: LoopStatus, policy: PolicyStatus) -> dict[tuple[str, ...], float]:
    def uses() -> tuple[object, ...]:
        assert status.last is not None, "asked before there was a pass"
        return tuple(queue_uses(status.last.snapshot, status.last.policy))

    collector = PlaneFigures(lambda: status, lambda: policy, uses)  # type: ignore[arg-type]
    return {(s.name, *s.labels.values()): s.value for family in collector.collect() for s in family.samples}


def test_before_the_first_pass_nothing_is_said_of_queues() -> None:
    told = figures(LoopStatus(), policy_status(revision=""))
    assert told["quorate_leader",] == 0
    assert told["quorate_loop_condition", "beginning"] == 1
    assert sum(value for (name, *_), value in told.items() if name == "quorate_loop_condition") == 1
    assert {name for name, *_ in told} == {
        "quorate_build_info",
        "quorate_leader",
        "quorate_loop_condition",
        "quorate_policy_stalled",
    }


def test_the_end_of_each_rule_of_windows_is_told(site: Site) -> None:
    night = hours_of("nights", [(0, 10), (24, 34)], quota_of("H100", most=8))
    org, *others = POLICY.queues
    site.policy = policy_of((msgspec.structs.replace(org, hours=(night,)), *others))
    told = figures(LoopStatus("leading", "", site.one_pass()), policy_status())
    assert told["quorate_windows_end_timestamp_seconds", "hours nights of queue org"] == 34 * 3600.0


def test_queues_have_what_those_below_them_have(site: Site) -> None:
    site.submit("runs", ("sleep", "forever"), gpus=3)
    site.submit("waits", ("sleep", "forever"), gpus=4)
    site.passes(3)
    told = figures(LoopStatus("leading", "", site.one_pass()), policy_status(stalled=True))
    of_q = {name: told.get((f"quorate_queue_gpus_{name}", "q", "H100")) for name in ("held", "borrowed", "max")}
    assert of_q == {"held": 3.0, "borrowed": 1.0, "max": None}
    assert told["quorate_queue_gpus_held", "org", "H100"] == 3.0
    assert told["quorate_queue_gpus_guaranteed", "org", "H100"] == 4.0
    assert told["quorate_queue_gpus_max", "org", "H100"] == 6.0
    assert told["quorate_queue_gpus_waiting", "q", "H100"] == 4.0
    assert (told["quorate_leader",], told["quorate_policy_stalled",], told["quorate_policy_info", "abc"]) == (1, 1, 1)
    assert told["quorate_gpus_stranded", "H100"] == 1.0, (
        "of the node with one that is held, three of four would be one job's"
    )


def test_cpu_and_memory_are_told_as_far_as_any_queue_has_a_quota_of_them(site: Site) -> None:
    site.submit("runs", ("sleep", "forever"), gpus=1)
    site.passes(3)
    without = figures(LoopStatus("leading", "", site.one_pass()), policy_status())
    assert not [name for name, *_ in without if "cpu" in name or "memory" in name]
    rows = CpuQuota(Cpu(8_500), Cpu(64_000)), MemoryQuota(Memory(2**38))
    site.policy = policy_of(
        tuple(msgspec.structs.replace(known, host_quota=rows if known.name == "q" else ()) for known in POLICY.queues)
    )
    told = figures(LoopStatus("leading", "", site.one_pass()), policy_status())
    of_q = {
        name: told.get((f"quorate_queue_cpu_cores_{name}", "q"))
        for name in ("guaranteed", "max", "held", "without_gpus", "waiting", "borrowed", "fair_share")
    }
    assert of_q == {
        "guaranteed": 8.5,
        "max": 64.0,
        "held": 0.0,
        "without_gpus": 0.0,
        "waiting": 0.0,
        "borrowed": 0.0,
        "fair_share": 0.0,
    }
    assert told["quorate_queue_memory_bytes_guaranteed", "org"] == 2.0**38
    assert ("quorate_queue_cpu_cores_max", "org") not in told
    assert not [name for name, *_ in told if name == "quorate_queue_memory_bytes_max"]


def test_users_that_wait_below_their_share_are_a_number_of_their_queue(site: Site) -> None:
    """Not a series of each: there may be thousands."""
    shared = msgspec.structs.replace(POLICY.queues[1], users=UserShares(True))
    site.policy = msgspec.structs.replace(POLICY, queues=(POLICY.queues[0], shared))
    site.submit("runs", ("sleep", "forever"), gpus=4)
    site.passes(3)
    before = figures(LoopStatus("leading", "", site.one_pass()), policy_status())
    asks = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(gpus=2)),), command=("sleep", "forever"))
    site.store.jobs.submit(JobName("asks"), asks, "bob", site.clock.now(), "")
    after = figures(LoopStatus("leading", "", site.one_pass()), policy_status())
    asked = ("quorate_queue_users_below_share", "q", "H100")
    assert (before[asked], after[asked]) == (0, 1)
    assert ("quorate_queue_users_below_share", "org", "H100") not in after


@pytest.mark.parametrize("is_lent", [False, True])
def test_while_gpus_are_lent_a_queue_has_the_max_that_git_states(is_lent: bool) -> None:
    """Rounds go by a lower one, which is theirs alone."""
    rules = policy(queue("research", 4, 16), queue("other", 4))
    seen = world(running("idle", "research"), nodes=2)
    decided, of_round = with_lent(seen, rules, [JobName("idle")] if is_lent else [])
    assert (of_round is rules) is not is_lent
    awaited: QueueUses = Future()
    awaited.set_result(tuple(use for _, use in queue_uses(decided, of_round)))
    last: Any = SimpleNamespace(snapshot=decided, policy=of_round, uses=awaited)
    runner: Any = SimpleNamespace(status=LoopStatus("leading", last=last))
    standing: Any = SimpleNamespace(current=lambda: PolicyInForce("abc", rules, (), Operations()))
    nothing: Any = None
    view = ControlPlaneView(nothing, standing, runner, nothing)
    collector = PlaneFigures(lambda: runner.status, policy_status, view.queue_uses)
    told = {(s.name, *s.labels.values()): s.value for family in collector.collect() for s in family.samples}
    of_queue = {name: told[f"quorate_queue_gpus_{name}", "research", "H100"] for name in ("held", "max", "guaranteed")}
    assert of_queue == {"held": 8.0, "max": 16.0, "guaranteed": 4.0}
    assert not [labels for labels in told if "lent:research" in labels]


def test_names_of_queues_that_policy_does_not_know_make_no_series(site: Site) -> None:
    site.submit("known", ("sleep", "forever"))
    site.submit("not", ("sleep", "forever"), queue="made-up")
    site.passes(3)
    done, metrics = site.one_pass(), Metrics()
    Reporter(metrics, structlog.get_logger(), VirtualClock()).hear(LoopStatus("leading", "", done))
    text = metrics.text().decode()
    assert "made-up" not in text
    assert 'quorate_jobs_running{queue="q"} 1.0' in text
    assert 'quorate_jobs_running{queue="org"} 0.0' in text
    assert 'quorate_jobs_pending{queue="",reason=' in text
    assert "_created" not in text


def test_each_transaction_of_the_store_is_timed(site: Site) -> None:
    collector = StoreFigures(site.store.database)

    def counts() -> dict[str, float]:
        (family,) = collector.collect()
        return {s.labels["kind"]: s.value for s in family.samples if s.name.endswith("_count")}

    assert counts() == {"read": 0, "write": 0}
    site.submit("job", ("true",))
    assert counts()["write"] == 1
    with pytest.raises(KeyError):
        site.store.history.round(9)
    assert counts()["read"] >= 1
