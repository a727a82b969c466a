"""A cluster whose truth is its API server: jobs are pods."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from reconciler.control.budget_limits import without_borrowing
from reconciler.control.control import PolicyInForce, PolicySource
from reconciler.control.fallback import CheckedDeed, CheckedPlan, conclude, decide
from reconciler.control.loop import ClockNews, take_pass
from reconciler.control.passes import Laps, Pass
from reconciler.kubernetes.binder.budgets import by_namespace
from reconciler.kubernetes.client.informer import Key
from reconciler.kubernetes.control.attempts import PodAttempts
from reconciler.kubernetes.control.geometry import enforceable, geometry_of, with_geometry
from reconciler.kubernetes.control.node_health import KubeNodeWard
from reconciler.kubernetes.control.plane import PodPlane
from reconciler.kubernetes.control.pod_recorder import Led
from reconciler.kubernetes.control.requested_nodes import ask_for_nodes, requests_in, with_holds
from reconciler.kubernetes.control.sight import Sight, cluster_sight, holders_of, snapshot_from
from reconciler.kubernetes.objects.wire import KubeNode
from reconciler.kubernetes.provisioning.decisions import holds
from reconciler.kubernetes.provisioning.requests import RequestStanding
from reconciler.kubernetes.provisioning.words import request_words, waiting_words
from reconciler.kubernetes.status.occurrences import Occurrence
from reconciler.kubernetes.status.queues import PolicyState
from reconciler.kubernetes.status.teller import Facts
from reconciler.lifecycle.health.effects import cordons
from reconciler.lifecycle.interventions.effects import about
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.clock import Clock
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.backend import Epoch
from reconciler.protocols.rounds import RoundRecord
from solver.model.cluster import NodeName
from solver.model.inflight import ConvergenceClock
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Plan
from solver.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class PodLook:
    """What the watches show, and as much of the policy as can be kept there."""

    sight: Sight
    policy: Policy
    revision: str
    interventions: tuple[Intervention, ...]
    health: HealthPolicy | None
    requests: tuple[RequestStanding, ...] = ()

    @property
    def sighted(self) -> BackendReports:
        """As every pass has it."""
        nodes = {node.name: node for node in self.sight.cluster.nodes}
        return BackendReports(nodes, PodAttempts(self.sight), words=self.sight.words)


@dataclass
class PodSite:
    """Implements Site. Without hands it only looks: `observer` says what each round would have done."""

    plane: PodPlane
    _epoch: Epoch = field(init=False)

    @property
    def clock(self) -> Clock:
        """The plane's."""
        return self.plane.handed.clock

    @property
    def policies(self) -> PolicySource:
        """The plane's."""
        return self.plane.handed.policies

    def lead(self) -> Epoch:
        """By the Lease of the cluster. Raises NotLeaderError."""
        self._epoch = self.plane.hands.lead() if self.plane.hands else Epoch(0)
        self.plane.handed.memory.open()
        return self._epoch

    async def look(self, in_force: PolicyInForce) -> PodLook:
        """Wait until the watches show what was done, and read them. Raises KubernetesError."""
        if self.plane.handed.memory.is_new(in_force.revision):
            self.plane.mirror.declare(in_force.nodes, in_force.policy)
        if self.plane.hands:
            await self.plane.hands.caught_up()
        sight, policy = await _looked(self.plane, in_force.policy)
        requests = requests_in(self.plane.mirror, policy, self.clock.now())
        sight, policy = self._with_requested(sight, policy, requests)
        by_hand = self.plane.handed.interventions.in_force()
        return PodLook(sight, policy, in_force.revision, by_hand, in_force.operations.health, requests)

    def accrue(self, look: PodLook) -> None:
        """By what pods hold."""
        self.plane.handed.memory.accrue(look.policy, holders_of(look.sight), look.sight.cluster.nodes)

    async def settle(self, look: PodLook) -> int:
        """Health of nodes, then what was begun."""
        handed, hands = self.plane.handed, self.plane.hands
        ward = KubeNodeWard(handed.health, handed.memory, hands.happened if hands else _unsaid)
        settled = ward.settle(look.sight.cluster.nodes, self._node, look.health)
        return settled + (await hands.go_on(look.sight, look.policy, handed.health.all()) if hands else 0)

    def observe(self, look: PodLook) -> tuple[Snapshot, Policy]:
        """Join what the watches show with what no object says; put on record what pods hold, and what GPUs there are."""
        memory, recorder = self.plane.handed.memory, self.plane.handed.recorder
        memory.look(self._epoch, look.sight)
        by_hand, budgets = self.by_hand(look), self.plane.handed.budgets()
        found = snapshot_from(self.clock.now(), look.sight, look.policy, by_hand, memory.remembered(), budgets)
        if recorder is not None and memory.epoch is not None:
            recorder.keep(Led(self._epoch, memory.epoch), look.sight, self.plane.mirror.take_gone(), found)
        return found, without_borrowing(look.policy, found, budgets)

    def lent(self) -> tuple[JobName, ...]:
        """None here."""
        return ()

    def keep_clocks(self, clocks: Sequence[ConvergenceClock], told: Sequence[ClockNews]) -> None:
        """In the state folder's store."""
        self.plane.handed.memory.keep_clocks(clocks)
        for one in told:
            self.plane.handed.memory.note(*one)

    async def decide(self, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedDeed:
        """Off the event loop: watches go on, and the lease is renewed, while it is solved."""
        return await asyncio.to_thread(decide, self.plane.handed.solve, snapshot, policy, laps)

    async def conclude(self, deed: CheckedDeed, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
        """Off the event loop, too."""
        return await asyncio.to_thread(conclude, deed, snapshot, policy, laps)

    def keep_round(self, record: RoundRecord) -> int | None:
        """In the history."""
        return (self.plane.observer or self.plane.handed.memory).keep_round(record)

    def stand_on(self, record: RoundRecord, number: int | None) -> None:
        """Pods wait for complete rounds."""

    async def act(self, plan: Plan, look: PodLook) -> int:
        """Bind, evict, promise; nothing where it only looks."""
        return await self.plane.hands.act(plan, look.sight) if self.plane.hands else 0

    async def keep_free(self, plan: Plan, look: PodLook) -> None:
        """In the promises of the cluster; nothing where it only looks."""
        if self.plane.hands:
            await self.plane.hands.keep_free(plan, look.sight)
            await ask_for_nodes(self.plane, plan, look.sight, look.policy, look.requests)

    async def tell(self, plan: Plan, snapshot: Snapshot, look: PodLook) -> None:
        """Conditions of pods, Events and queues; or what would have been done."""
        if self.plane.observer:
            await self.plane.observer.note(snapshot.time, plan, look.sight)
        if self.plane.teller:
            standing = _standing(self.plane, look.revision, look.interventions)
            postponed = self.plane.hands.order.postponed if self.plane.hands else {}
            sight = look.sight
            awaited = sight.awaited if look.policy.scheduling.provisioning else None
            of = plan, sight.cluster, sight.pods, snapshot, look.policy
            self.plane.teller.note(Facts(*of, standing, postponed, awaited))

    def by_hand(self, look: PodLook) -> tuple[Intervention, ...]:
        """As the round knew it, and what is closed for its health: Git does not say that either."""
        return (*look.interventions, *cordons(self.plane.handed.health.all()))

    def _with_requested(
        self, sight: Sight, policy: Policy, requests: tuple[RequestStanding, ...]
    ) -> tuple[Sight, Policy]:
        """With what is kept for jobs that asked for nodes, and what they are told of that."""
        rules = policy.scheduling.provisioning
        if rules is None:
            return sight, policy
        held = tuple(holds(requests, sight.cluster, self._node, self.clock.now()))
        hands = self.plane.hands
        awaited = waiting_words(hands.provisioner.held_up.items() if hands else ())
        return replace(sight, awaited={**awaited, **request_words(requests, held, rules)}), with_holds(policy, held)

    def _node(self, name: NodeName) -> KubeNode | None:
        return self.plane.mirror.nodes.get(Key("", name))


async def one_pass(plane: PodPlane) -> tuple[Pass, Sight]:
    """Take one pass. Raises as `take_pass`, and KubernetesError where the API server does not answer."""
    done, look = await take_pass(PodSite(plane))
    return done, look.sight


def _unsaid(occurrences: Iterable[Occurrence]) -> None:
    """What only looks tells the cluster nothing."""


async def _looked(plane: PodPlane, policy: Policy) -> tuple[Sight, Policy]:
    """What the mirror shows and this process remembers, and what of the policy can be kept there."""
    mirror = plane.mirror
    budgets = by_namespace(budget for _, budget in mirror.budgets.items())
    begun = plane.hands.binder.remembered if plane.hands else ()
    deadline, now = policy.scheduling.start_deadline, plane.handed.clock.now()
    sight = cluster_sight(mirror.cluster(), mirror.pod_view(), budgets, deadline, now, begun)
    policy = enforceable(policy, sight.cluster, (node for _, node in mirror.nodes.items()))
    if plane.hands:
        sight = replace(sight, reservations=(*sight.reservations, *await plane.hands.promises.declared.kept()))
    return await _with_geometry(plane, policy, sight), policy


async def _with_geometry(plane: PodPlane, policy: Policy, sight: Sight) -> Sight:
    """An observer has not read which configs there are: what a round wants of a node is what would be asked for."""
    nodes = _of_geometry(plane, policy)
    if plane.hands:
        return await plane.hands.partitioner.looked(policy, sight, nodes)
    now = plane.handed.clock.now()
    return with_geometry(sight, geometry_of(policy, sight, nodes, now), now)


def _of_geometry(plane: PodPlane, policy: Policy) -> Collection[KubeNode]:
    """The nodes that may be partitioned, or were asked to be: where the policy has none partitioned few, and mostly none."""
    if any(known.mode != "fixed" for known in policy.mig):
        return [node for _, node in plane.mirror.nodes.items()]
    return plane.mirror.partitioned_nodes


def _standing(plane: PodPlane, revision: str, by_hand: Iterable[Intervention]) -> PolicyState:
    holds = about(by_hand, "hold", "queue", plane.handed.clock.now())
    return PolicyState(revision, plane.handed.stalled(), {QueueName(name): str(hold) for name, hold in holds.items()})
