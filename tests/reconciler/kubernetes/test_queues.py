"""What the objects of queues say."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.kubernetes.status.queues import PolicyState, queues_of
from solver.model.cluster import GpuType
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName
from solver.policy.host_share import CpuQuota, MemoryQuota
from solver.policy.policy import Policy, Queue, Quota, policy_of
from tests.reconciler.kubernetes.samples import cluster, node, pod

NOW = Instant.parse("2026-11-20T08:00:00Z")
H100 = GpuType("H100-SXM5-80GB")


def queue(name: str, parent: str = "", guaranteed: int = 0, **more: object) -> Queue:
    quota = (Quota(H100, guaranteed=MilliGpu.gpus(guaranteed), max=MilliGpu.gpus(12)),) if guaranteed else ()
    return Queue(QueueName(name), QueueName(parent) if parent else None, quota, **more)  # type: ignore[arg-type]


def world() -> Snapshot:
    """16 GPUs, of which the queue q holds 6; a pod waits for 8, another for half of one."""
    seen = cluster(
        [node("n0"), node("n1")],
        [pod("a", 6, on="n0"), pod("b", 8), pod("c", 0, annotations={"gpu-fraction": "0.5"})],
    )
    return snapshot_of(NOW, seen.nodes, seen.jobs)


def policy(**more: object) -> Policy:
    return policy_of((queue("org", guaranteed=12), queue("q", "org", 4, **more)))


def test_a_queue_says_what_it_holds_and_borrows_by_type_and_in_sum() -> None:
    found = queues_of(world(), policy(), PolicyState("abc123"))
    assert list(found) == ["org", "q"]
    q = found["q"]
    assert q.revision == "abc123"
    assert q.figures["parent"] == "org"
    assert q.figures["total"] == {"guaranteed": 4, "used": 6, "borrowed": 2, "pending": 8.5}
    assert q.figures["jobs"] == {"running": 1, "pending": 2}
    (line,) = q.figures["gpus"]
    assert {key: line[key] for key in ("gpuType", "guaranteed", "max", "used", "borrowed", "pending")} == {
        "gpuType": "H100-SXM5-80GB", "guaranteed": 4, "max": 12, "used": 6, "borrowed": 2, "pending": 8.5
    }  # fmt: skip
    assert found["org"].figures["total"] == {"guaranteed": 12, "used": 6, "borrowed": 0, "pending": 8.5}
    assert found["org"].figures["parent"] is None


def test_a_type_without_a_ceiling_has_none() -> None:
    (line,) = queues_of(world(), policy_of((queue("q"),)), PolicyState("r"))["q"].figures["gpus"]
    assert "max" not in line


def test_cpu_and_memory_are_said_where_a_queue_has_a_quota_of_them() -> None:
    assert queues_of(world(), policy(), PolicyState("r"))["q"].figures["host"] is None
    rows = (CpuQuota(Cpu(8_000), None, Cpu(4_000), Cpu(16_000)), MemoryQuota(Memory(2**38), Memory(2**40)))
    cpu, memory = queues_of(world(), policy(host_quota=rows), PolicyState("r"))["q"].figures["host"]
    assert {key: cpu.get(key) for key in ("resource", "guaranteed", "lendable", "max", "perUser", "borrowed")} == {
        "resource": "cpu", "guaranteed": "8", "lendable": "4", "max": None, "perUser": "16", "borrowed": "0"
    }  # fmt: skip
    assert {key: memory.get(key) for key in ("resource", "guaranteed", "max", "withoutGpus")} == {
        "resource": "memory", "guaranteed": "256Gi", "max": "1Ti", "withoutGpus": "0"
    }  # fmt: skip


def ready(policy: Policy, held: Mapping[QueueName, str] | None = None) -> tuple[str, str, str]:
    first, _ = queues_of(world(), policy, PolicyState("r", held=held or {}))["q"].conditions
    assert first.type == "Ready"
    return first.status, first.reason, first.message


def test_a_queue_is_ready_unless_it_or_one_above_it_is_on_hold() -> None:
    assert ready(policy()) == ("True", "StartsJobs", "it starts jobs as its quota and the room allow")
    held = policy(stop_policy="Hold", origin="policies/q.yaml:9")
    assert ready(held) == ("False", "Hold", "queue q has stopPolicy Hold (policies/q.yaml:9)")
    above = policy_of((queue("org", stop_policy="HoldAndDrain"), queue("q", "org")))
    assert ready(above) == ("False", "HoldAndDrain", "queue org has stopPolicy HoldAndDrain")
    by_hand = {QueueName("org"): "by ada until noon: ticket 7"}
    assert ready(policy(), by_hand) == ("False", "HeldByHand", "queue org is on hold: by ada until noon: ticket 7")


def test_queues_say_that_a_newer_policy_is_held() -> None:
    def stalled(standing: PolicyState) -> tuple[str, str, str]:
        _, second = queues_of(world(), policy(), standing)["q"].conditions
        assert second.type == "Stalled"
        return second.status, second.reason, second.message

    assert stalled(PolicyState("r"))[:2] == ("False", "PolicyInForce")
    assert stalled(PolicyState("r", "PlanDrift: 3 more evictions")) == (
        "True",
        "PolicyHeld",
        "PlanDrift: 3 more evictions",
    )
