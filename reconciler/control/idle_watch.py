"""Since when the GPUs of running jobs do nothing: from the minutes that are kept, and those that wait to be.

Most jobs are busy by their newest minute, which is in memory, and of those nothing more is asked. What is read of the others is not
read again within the same minute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from reconciler.lifecycle.jobs.idle_gpus import FRESH, ActiveMinutes, GpuStill, still_of, whole_gpus
from reconciler.lifecycle.jobs.idle_rules import IdleFacts, bound_of_limit, idle_facts_of
from reconciler.model.gpu_use import HEADER_BYTES, METRICS, MINUTE, NodeMinute, value_of
from reconciler.model.idle_policy import GpuActivityBelow, IdlePolicy
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import AttemptKey
from reconciler.protocols.gpu_use import GpuUses
from reconciler.protocols.ledger import Claim
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName
from solver.policy.policy import Policy

_ACTIVE_AT: Final = HEADER_BYTES + 4 * METRICS.index("active")


class RecentUse(Protocol):
    """What nodes have told of their GPUs' use."""

    def latest(self) -> Mapping[NodeName, NodeMinute]:
        """The newest minute of each node."""

    def waiting(self, nodes: Collection[NodeName]) -> Mapping[NodeName, tuple[NodeMinute, ...]]:
        """Minutes of some nodes that are not kept yet."""


class _Looked(NamedTuple):
    minute: int
    still: GpuStill | None


_LookKey = tuple[AttemptKey, GpuActivityBelow]


class IdleWatch:
    """Of one loop. `uses`: where minutes are kept."""

    def __init__(self, recent: RecentUse, uses: GpuUses) -> None:
        self._recent = recent
        self._uses = uses
        self._looked: dict[_LookKey, _Looked] = {}
        self._of_limits: dict[AttemptKey, GpuStill] = {}

    def of_limits(self) -> Mapping[AttemptKey, GpuStill]:
        """What the GPUs of jobs with an idle limit do, as `facts` found last. Any thread may ask."""
        return self._of_limits

    def facts(
        self,
        policies: tuple[IdlePolicy, ...],
        policy: Policy,
        claims: Iterable[Claim],
        records: Mapping[JobName, JobRecord],
        now: Instant,
    ) -> IdleFacts:
        """What jobs are judged by now."""
        facts = idle_facts_of(policies, policy)
        looked, latest = dict[_LookKey, _Looked](), self._recent.latest()
        gpus, of_limits = dict[AttemptKey, GpuStill](), dict[AttemptKey, GpuStill]()
        for claim in claims:
            key, begun = (claim.job, claim.attempt), claim.running_since
            if begun is None:
                continue
            found = facts.policy_of(records[claim.job]) if policies else None
            bounds = (gpus, found.idle_when.gpu_activity if found else None), (of_limits, bound_of_limit(claim))
            for stills, bound in bounds:
                if bound is None:
                    continue
                one = looked[key, bound] = self._look(claim, begun, bound, latest, now)
                if one.still is not None:
                    stills[key] = one.still
        self._looked, self._of_limits = looked, of_limits
        return facts._replace(gpus=gpus)

    def _look(
        self,
        claim: Claim,
        begun: Instant,
        bound: GpuActivityBelow,
        latest: Mapping[NodeName, NodeMinute],
        now: Instant,
    ) -> _Looked:
        """As found before in this minute of the newest that was told, or anew."""
        gpus, nodes = whole_gpus(claim.tasks), {task.node for task in claim.tasks if task.devices}
        newest = [latest[node] for node in nodes if node in latest]
        minute = min((told.start for told in newest), default=Instant(0))
        if gpus is None or len(newest) < len(nodes) or now - minute >= FRESH:
            return _Looked(minute, None)
        before = self._looked.get(((claim.job, claim.attempt), bound))
        if before is not None and before.minute == minute:
            return before
        minutes = active_minutes(newest)
        if any(active >= bound.below for gpu in gpus for active in minutes.get(gpu, {}).values()):
            return _Looked(minute, GpuStill(minute.after(MINUTE), minute.after(MINUTE)))
        start = Instant(max(begun, now - bound.lasts - FRESH))
        waiting = (each for some in self._recent.waiting(nodes).values() for each in some)
        known = _joined(kept_minutes(self._uses, nodes, start, now), active_minutes(waiting), minutes)
        return _Looked(minute, still_of(gpus, known, bound, begun, now))


def kept_minutes(uses: GpuUses, nodes: Collection[NodeName], start: Instant, end: Instant) -> ActiveMinutes:
    """How active the GPUs of some nodes were, by what is kept."""
    found = defaultdict[DeviceId, dict[Instant, float]](dict)
    for past in uses.of_nodes(nodes, "minute", start, end):
        for point in past.points:
            if point.use.active is not None:
                found[past.gpu][point.start] = point.use.active.mean
    return found


def active_minutes(told: Iterable[NodeMinute]) -> dict[DeviceId, dict[Instant, float]]:
    """How active GPUs were by what was told of some minutes; what was not measured is left out. The better record counts."""
    records: dict[tuple[DeviceId, Instant], bytes] = {}
    for minute in told:
        for gpu in minute.gpus:
            key = gpu.gpu, minute.start
            records[key] = max(records.get(key, b""), gpu.record)
    found = defaultdict[DeviceId, dict[Instant, float]](dict)
    for (gpu_id, start), record in records.items():
        active = value_of("active", record[_ACTIVE_AT])
        if active is not None:
            found[gpu_id][start] = active
    return found


def _joined(*some: ActiveMinutes) -> ActiveMinutes:
    """What was told of a minute twice, in two places, counts by the more active: it is never held against a job."""
    found = defaultdict[DeviceId, dict[Instant, float]](dict)
    for minutes in some:
        for gpu, active in minutes.items():
            for start, value in active.items():
                found[gpu][start] = max(value, found[gpu].get(start, 0.0))
    return found
