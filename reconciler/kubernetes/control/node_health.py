"""What a leader does about nodes that say that they are not well: it judges them, keeps that, says so, and lets gangs leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from reconciler.control.node_health import news_of
from reconciler.kubernetes.binder.eviction import Outcome
from reconciler.kubernetes.binder.eviction_steps import LeaveNode
from reconciler.kubernetes.binder.intents import eviction_record_in, members_of
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.control.state import HistoryEntry, KubernetesState
from reconciler.kubernetes.objects.cluster import in_order
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.node_signs import node_signs
from reconciler.kubernetes.objects.pod_view import PodView
from reconciler.kubernetes.objects.wire import KubeNode
from reconciler.kubernetes.status.occurrences import Occurrence, node_health_occurrence
from reconciler.lifecycle.health.cap import within_cap
from reconciler.lifecycle.health.effects import drained_places
from reconciler.lifecycle.health.judge import judge
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.health_record import NodeHealth
from reconciler.protocols.health import NodeHealths
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, JobName
from solver.policy.policy import Policy

ASK_AGAIN: Final = Duration(30_000)
"""After a gang was not asked to leave, such as for a PodDisruptionBudget."""


@dataclass(frozen=True, slots=True)
class KubeNodeWard:
    """`happened` is told what changed about nodes, to be said inside the cluster."""

    healths: NodeHealths
    memory: KubernetesState
    happened: Callable[[Iterable[Occurrence]], None]

    def settle(
        self, nodes: Iterable[Node], wire: Callable[[NodeName], KubeNode | None], policy: HealthPolicy | None
    ) -> int:
        """Judge anew; returns how much has changed. Raises StaleEpochError, StoreUnusableError."""
        known = {record.node: record for record in self.healths.all()}
        if policy is None and not known:
            return 0
        now, judged = self.memory.clock.now(), dict[NodeName, NodeHealth]()
        if policy is not None:
            kept = without_tests(policy)
            there = tuple(nodes)
            judged = within_cap(dict(_judgements(known, there, wire, kept, now)), known, there, kept)
        after = {name: judged.get(name, NodeHealth(name)) for name in known.keys() | judged.keys()}
        changed = [after[name] for name in sorted(after) if after[name] != known.get(name, NodeHealth(name))]
        epoch = self.memory.epoch
        if changed and epoch is not None:
            self.healths.keep(epoch, changed)
        said = [(record.node, part) for record in changed for part in news_of(known.get(record.node), record, now)]
        self.memory.note_all(HistoryEntry(f"node-{part.state}", node, part.reason) for node, part in said)
        self.happened(node_health_occurrence(node, part) for node, part in said)
        return len(said)


def without_tests(policy: HealthPolicy) -> HealthPolicy:
    """As it is kept where nothing of Quorate's runs on nodes: a node that has to pass a test first would never come back."""
    return msgspec.structs.replace(policy, test=None)


def _judgements(
    known: dict[NodeName, NodeHealth],
    nodes: Iterable[Node],
    wire: Callable[[NodeName], KubeNode | None],
    policy: HealthPolicy,
    now: Instant,
) -> Iterator[tuple[NodeName, NodeHealth]]:
    """The health of every node of which there is anything to say; what is remembered of nodes that are gone is forgotten."""
    for node in nodes:
        seen = wire(node.name)
        signs = tuple(node_signs(seen, policy)) if seen is not None else ()
        if signs or node.name in known:
            yield node.name, judge(known.get(node.name, NodeHealth(node.name)), signs, False, policy, now)


def leaving_drained(sight: Sight, records: Collection[NodeHealth], policy: Policy) -> Iterator[LeaveNode]:
    """What of gangs is to leave nodes that are drained, and was not asked to: as a whole, or the tasks that it can do without.

    What PodDisruptionBudgets keep stays as long as they do.
    """
    drained = drained_places(records)
    if not drained:
        return
    for gang in in_order(sight.cluster.index.gangs):
        job = gang.job
        if job is None or job.phase == "stopping" or not any(task.node in drained for task in job.placement):
            continue
        asked = eviction_record_in(gang, sight.pods)
        if asked is None:
            yield _leaving(gang, job, drained, sight.pods, policy)


def _leaving(gang: PodGang, job: Job, drained: dict[str, str], pods: PodView, policy: Policy) -> LeaveNode:
    there = [(one, pod) for one, pod in members_of(gang, pods) if pod.holds]
    going = [(one, pod) for one, pod in there if pod.spec.node_name in drained]
    why = "; ".join(dict.fromkeys(drained[pod.spec.node_name] for _, pod in going))
    torn = {job.spec.unit_of(one.group, one.task_index) for one, _ in going} - {None}
    # A unit leaves whole, wherever the rest of it is.
    going += [
        pair for pair in there if job.spec.unit_of(pair[0].group, pair[0].task_index) in torn and pair not in going
    ]
    gone = {one.uid for one, _ in going}
    staying = Counter(one.group for one, _ in there if one.uid not in gone)
    can_shrink = job.phase == "running" and all(staying[group.name] >= group.least for group in job.spec.task_groups)
    only = tuple(pod.metadata.uid for _, pod in going) if can_shrink else ()
    return LeaveNode(job.name, job.attempt, why, policy.grace(job), only)


class DrainRequests:
    """Remembers which gangs could not be asked to leave, so that not every pass tries, and says so."""

    def __init__(self) -> None:
        self._rests: dict[JobName, Instant] = {}

    def due(self, wanted: Iterable[LeaveNode], now: Instant) -> tuple[LeaveNode, ...]:
        """Those that may be asked now."""
        self._rests = {job: until for job, until in self._rests.items() if until > now}
        return tuple(step for step in wanted if step.job not in self._rests)

    def heard(self, outcomes: Iterable[Outcome], now: Instant) -> None:
        """What came of them."""
        self._rests |= {one.job: now.after(ASK_AGAIN) for one in outcomes if one.event in ("refused", "failed")}
