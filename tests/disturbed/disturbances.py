"""What happens to a cluster beside its rounds: jobs come, nodes break, policies change, people intervene."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

from solver.model.cluster import Node, NodeName
from solver.model.inflight import StopPurpose
from solver.model.quantities import Cpu
from solver.policy.policy import Policy
from tests.disturbed.cluster import GRACE, Cluster
from tests.disturbed.drawn_policies import DrawnPolicies, maybe
from tests.disturbed.drawn_worlds import DrawnWorlds

PURPOSES: tuple[StopPurpose, ...] = ("end", "requeue", "suspend")
LEAVES: tuple[Literal["freely", "unpromised", "not"], ...] = ("freely", "unpromised", "not")


class Disturbed:
    """A cluster with its policy, and what befalls both. Worlds are named by their seeds."""

    def __init__(self, seed: int, nodes: int, jobs: int) -> None:
        drawing = random.Random(seed)
        self._policies = DrawnPolicies(drawing)
        self._worlds = DrawnWorlds(drawing, self._policies)
        self._chance = random.Random(seed + 1)
        policy = self._policies.policy()
        self.cluster = Cluster(self._chance, self._worlds.nodes(nodes), "sets" in self._policies.features)
        self.policy = self._in_force(policy)
        for _ in range(jobs):
            self._arrive()

    def disturb(self) -> None:
        for _ in range(self._chance.choice([0, 0, 1, 2, 3])):
            self._arrive()
        if maybe(self._chance, 0.1) and self.cluster.nodes:
            self._break(self._chance.choice(sorted(self.cluster.nodes)))
        if maybe(self._chance, 0.1):
            self._change_policy()
        if maybe(self._chance, 0.15) and self.cluster.jobs:
            self._stop()
        if maybe(self._chance, 0.05) and self.cluster.jobs:
            self._say_otherwise()

    def _arrive(self) -> None:
        self.cluster.arrive(self._worlds.job(self.cluster.now))

    def _break(self, name: NodeName) -> None:
        """Or heal. A node that has no GPU that could break is lost instead."""
        node, kind = self.cluster.nodes[name], self._chance.random()
        if kind < 0.3:
            self._becomes(node, ready=not node.ready)
        elif kind < 0.5:
            self._becomes(node, cordoned=not node.cordoned)
        elif kind < 0.6:
            self._becomes(node, cpu=Cpu(self._chance.choice([4, 8, 16, 96]) * 1000))
        elif kind < 0.8 and node.gpus:
            self._break_gpu(node)
        elif kind < 0.9:
            self.cluster.lose(name)

    def _break_gpu(self, node: Node) -> None:
        broken = self._chance.choice(node.gpus)
        after = msgspec.structs.replace(broken, healthy=not broken.healthy)
        self._becomes(node, gpus=tuple(after if gpu is broken else gpu for gpu in node.gpus))

    def _becomes(self, node: Node, **fields: object) -> None:
        self.cluster.nodes[node.name] = msgspec.structs.replace(node, **fields)

    def _change_policy(self) -> None:
        """To one that may have forgotten some of what is in use."""
        policy = self._policies.policy()
        if maybe(self._chance, 0.2):
            policy = msgspec.structs.replace(policy, mig=policy.mig[1:])
        if maybe(self._chance, 0.2):
            policy = msgspec.structs.replace(policy, sharing=())
        if maybe(self._chance, 0.1):
            policy = msgspec.structs.replace(policy, priority_classes=policy.priority_classes[1:])
        self.policy = self._in_force(policy)

    def _in_force(self, policy: Policy) -> Policy:
        return self._policies.with_reservations(policy, self.cluster.now, list(self.cluster.nodes.values()))

    def _stop(self) -> None:
        """By hand: a job is over, or has to leave."""
        name = self._chance.choice(sorted(self.cluster.jobs))
        if self.cluster.jobs[name].phase == "pending":
            self.cluster.end(name)
        elif self.cluster.jobs[name].phase != "stopping" and not self.cluster.leaves(name):
            self.cluster.stop(name, GRACE, self._chance.choice(PURPOSES))

    def _say_otherwise(self) -> None:
        """By hand: whether others may make a job leave, and whether it goes first."""
        name = self._chance.choice(sorted(self.cluster.jobs))
        leaves, boosted = self._chance.choice(LEAVES), maybe(self._chance, 0.3)
        self.cluster.jobs[name] = msgspec.structs.replace(self.cluster.jobs[name], leaves=leaves, boosted=boosted)
