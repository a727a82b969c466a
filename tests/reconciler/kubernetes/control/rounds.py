"""Rounds over pods, one after the other, whose starts become bindings as an actuator makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reconciler.kubernetes.binder.journal import GangBinding
from reconciler.kubernetes.control.sight import Remembered, Sight, cluster_sight, snapshot_from
from reconciler.kubernetes.control.start_order import OrderedStarts, StartOrder
from reconciler.kubernetes.control.starts import bindings_of
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel
from reconciler.model.clock import VirtualClock
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Plan
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.round.solve import solve
from tests.reconciler.kubernetes.samples import Sent

NOW = Instant.parse("2026-11-20T09:00:00Z")
POLICY = policy_of((Queue(QueueName("q"), quota=(Quota(GpuType("H100-SXM5-80GB"), MilliGpu.gpus(1000)),)),))


class Rounds:
    """`noted`: what was put on record of jobs. `order` may be handed other steps than those of a round."""

    def __init__(self, nodes: Iterable[Sent], pods: Iterable[Sent], policy: Policy = POLICY) -> None:
        self.clock = VirtualClock(NOW)
        self.world = ClusterModel()
        self.noted: list[tuple[str, JobName, str]] = []
        self.order = StartOrder(self.world, lambda *said: self.noted.append(said), self.clock)
        self.pods: dict[str, Sent] = {}
        self._policy = policy
        for sent in nodes:
            self.world.node(None, read(sent, KubeNode))
        for sent in pods:
            self.tell(sent)

    def tell(self, sent: Sent) -> None:
        """A pod came, or changed."""
        before = self.pods.get(sent["metadata"]["name"])
        self.pods[sent["metadata"]["name"]] = sent
        self.world.pod(read(before, Pod) if before else None, read(sent, Pod))

    def delete(self, name: str) -> None:
        """A pod went."""
        self.world.pod(read(self.pods.pop(name), Pod), None)

    def sight(self) -> Sight:
        pods = {
            (one.metadata.namespace, one.metadata.name): one for one in (read(sent, Pod) for sent in self.pods.values())
        }
        return cluster_sight(self.world.cluster(), pods, {}, Duration(300_000), NOW)

    def decided(self) -> tuple[Plan, Sight]:
        sight = self.sight()
        return solve(snapshot_from(NOW, sight, self._policy, (), Remembered()), self._policy, None), sight

    def settled(self) -> OrderedStarts:
        """What a round starts, without doing it."""
        plan, sight = self.decided()
        return self.order.settled(plan.steps, bindings_of(plan.steps, sight.gangs), sight)

    def take(self) -> int:
        """One round, done; how many gangs it started."""
        starts = self.settled().starts
        for gang in starts:
            self.bind(gang)
        return len(starts)

    def bind(self, gang: GangBinding) -> None:
        for one in gang.pods:
            sent = self.pods[one.name]
            notes = {names.DEVICES: ",".join(one.devices), names.ATTEMPT: str(gang.attempt)}
            meta: dict[str, Any] = {**sent["metadata"], "annotations": {**sent["metadata"]["annotations"], **notes}}
            status = {**sent["status"], "phase": "Running", "startTime": str(NOW)}
            self.tell({**sent, "metadata": meta, "spec": {**sent["spec"], "nodeName": one.node}, "status": status})

    @property
    def bound(self) -> dict[str, str]:
        """Where pods are, of those that are somewhere."""
        return {name: node for name, sent in self.pods.items() if (node := sent["spec"]["nodeName"])}

    def until_rest(self, rounds_max: int = 50) -> int:
        """Take rounds until one starts nothing; how many did."""
        for number in range(rounds_max):
            if not self.take():
                return number
        raise AssertionError(f"{rounds_max} rounds, and still something starts")
