"""What a leader does in the cluster: it finishes what was begun, and makes a plan's steps true."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.admissions import Admissions
from reconciler.kubernetes.binder.binding import Binder, GangOutcome, Leads, PodOutcome
from reconciler.kubernetes.binder.eviction import Evictor, Outcome, Seen
from reconciler.kubernetes.binder.eviction_steps import LeaveNode, TimeUp
from reconciler.kubernetes.binder.gang_sizes import GangSizes
from reconciler.kubernetes.binder.journal import GangBinding, PodBinding
from reconciler.kubernetes.binder.nominations import Nominator
from reconciler.kubernetes.binder.partial_starts import BindableNodes
from reconciler.kubernetes.binder.start_recovery import StartRecovery
from reconciler.kubernetes.binder.volume_claims import VolumeClaims
from reconciler.kubernetes.client.informer import Key
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError, UnreachableError
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.control.devices import Devices
from reconciler.kubernetes.control.limits import times_up
from reconciler.kubernetes.control.node_health import DrainRequests, leaving_drained
from reconciler.kubernetes.control.partitioner import MigPartitioner
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.control.start_order import StartOrder
from reconciler.kubernetes.control.starts import as_start, bindings_of
from reconciler.kubernetes.control.state import EVICTED, HistoryEntry, KubernetesState
from reconciler.kubernetes.control.writes import PodWrites
from reconciler.kubernetes.dra.pod_claims import PodClaims
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.pod_view import PodView
from reconciler.kubernetes.objects.pod_volumes import PodVolumes
from reconciler.kubernetes.objects.remarks import Remark
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import KubeNode, Pod
from reconciler.kubernetes.objects.workloads import stand_in
from reconciler.kubernetes.provisioning.provisioner import NodeProvisioner
from reconciler.kubernetes.status.occurrences import (
    Occurrence,
    of_bindings,
    of_drains,
    of_evictions,
    of_releases,
    of_remarks,
)
from reconciler.model.causes import why_evicted
from reconciler.model.clock import Clock
from reconciler.model.health_record import NodeHealth
from reconciler.protocols.backend import Epoch
from solver.model.cluster import NodeName
from solver.model.workload import JobName
from solver.plan.plan import Evict, Nominate, Plan, Release, Reserve, Shrink, Unreserve, Withdraw
from solver.policy.policy import Policy

BEHIND_S = 10.0
"""So long a watch may take to show what was done; a write is seen after some milliseconds."""
LOOK_EVERY_S = 0.005

Happened = Callable[[Iterable[Occurrence]], None]


@dataclass
class KubernetesActuator:
    """Every method raises NotLeaderError once it leads no more.

    No round is decided on a view that is older than what was done here: what is bound, but not seen to be, would be given away.
    `happened` is told what the plan does not say: what was bound, and what has gone.
    """

    api: PodWrites
    leads: Leads
    binder: Binder
    finisher: StartRecovery
    promises: Nominator
    evictor: Evictor
    volumes: VolumeClaims
    devices: Devices
    partitioner: MigPartitioner
    provisioner: NodeProvisioner
    mirror: ClusterCache
    memory: KubernetesState
    happened: Happened
    clock: Clock
    log: FilteringBoundLogger
    order: StartOrder = field(init=False)
    sizes: GangSizes = field(init=False)
    admissions: Admissions = field(init=False)
    _drains: DrainRequests = field(default_factory=DrainRequests)
    _unseen: dict[Key, str] = field(default_factory=dict)
    """Pods that were bound and are not seen to be, with their uids."""
    _unknown: dict[Key, str] = field(default_factory=dict)
    """Pods whose binding was not answered, with their uids: it may still arrive."""
    _remarked: dict[JobName, frozenset[Remark]] = field(default_factory=dict)
    """What was told of the wishes of gangs that are bound and not followed."""
    _caught_up_in: Epoch | None = None
    """The epoch in which the mirror is known to show what leaders before have done."""
    _marks: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        """What goes before what is a matter of the mirror."""
        self.order = StartOrder(self.mirror, self.memory.note, self.clock)
        self.sizes = GangSizes(self.api, self.leads, self.log)
        of_kueue = self.mirror.suspended, self.mirror.flavors
        self.admissions = Admissions(self.api, self.leads, *of_kueue, self.clock, self.memory.note, self.log)

    def lead(self) -> Epoch:
        """Under which epoch this may go on. Raises NotLeaderError."""
        return self.leads().epoch

    async def caught_up(self) -> None:
        """Return once the mirror shows what was done, also by leaders before.

        Raises UnreachableError where it does not, and KubernetesError.
        """
        epoch = self.lead()
        is_sure = epoch == self._caught_up_in or await self._marked()
        for key, uid in list(self._unknown.items()):
            await self._voided(key, uid)
        await self.partitioner.follow(self._node)
        for _ in range(int(BEHIND_S / LOOK_EVERY_S)):
            self._unseen = {key: uid for key, uid in self._unseen.items() if not self._is_seen(key, uid)}
            seen = not self._unseen and self.partitioner.is_seen(self._node)
            if seen and int(self.mirror.pods.standing().revision or 0) >= self.api.newest:
                if is_sure:
                    self._caught_up_in = epoch
                elif self._ours():  # they came while this waited
                    await self.caught_up()
                return
            await asyncio.sleep(LOOK_EVERY_S)
        raise UnreachableError(f"the watches have not shown for {BEHIND_S:.0f} s what was written to pods and nodes")

    async def go_on(self, sight: Sight, policy: Policy, health: Collection[NodeHealth] = ()) -> int:
        """Finish or give up what is neither bound whole nor gone whole, end what has run for its time, and let leave what is on
        drained nodes; how much was done."""
        finished = await self.finisher.finish(sight.pods, self._ground(sight))
        for _, again in finished.again:
            self._watch_for(again)
        self.happened(of_releases(finished.released))
        self.memory.note_all(
            HistoryEntry("released", one.job, one.why, "stopping", one.attempt) for one in finished.released
        )
        for found in finished.unreadable:
            self.log.warning("journal-unreadable", pod="/".join(found.pod), reason=found.why)
        outcomes = await self.evictor.advance(_known(sight))
        over = list(times_up(sight, policy, self.clock.now()))
        outcomes += await self.evictor.begin(over, _known(sight))
        self._note_near(over, {one.job for one in outcomes if one.event == "limit-near"})
        outcomes += await self._drained(sight, policy, health, {step.job for step in over})
        self._tell_leaving(outcomes, sight)
        freed = await self.devices.give_back(sight.pods)
        lowered = await self.sizes.lower(sight.cluster.index.outgrown)
        lowered += await self.admissions.suspend(sight.cluster.index.jobs)
        return (
            freed
            + lowered
            + len(finished.again)
            + len(finished.released)
            + sum(one.event in ("evicting", "past-budgets", "limit-over", "called-off") for one in outcomes)
        )

    async def act(self, plan: Plan, sight: Sight) -> int:
        """Make a plan's steps true; how many were not, which the next pass sees as they are."""
        gangs = sight.gangs
        wanted = bindings_of(plan.steps, gangs)
        ordered = self.order.settled(plan.steps, wanted, sight)
        absent = await self._admitted(plan, ordered.starts, sight)
        kept = [
            step
            for step in plan.steps
            if isinstance(step, Withdraw) or (isinstance(step, Nominate) and step.job not in ordered.unpromised)
            if step.job not in absent
        ]
        before = [intent for intent in sight.intents if intent.kind == "nominate"]
        failed = await self.promises.keep(kept, gangs, sight.pods, before)
        unkept = {found.job for found in failed} | ordered.unpromised | absent
        # No job leaves for one that nothing is kept for then: others would take it.
        leaving = [
            step
            for step in plan.steps
            if isinstance(step, Evict | Shrink | Release) and getattr(step, "beneficiary", None) not in unkept
        ]
        asked = await self.evictor.begin(leaving, _known(sight))
        done = {one.job for one in asked if one.event not in ("refused", "failed")}
        self.memory.note_all(_asked(step) for step in leaving if step.job in done)
        evicted = [step for step in leaving if isinstance(step, Evict) and step.job in done]
        waits_as = self.admissions.leave(step.job for step in evicted)
        # Until its pods come again it has the name of its Workload, and was evicted all the same.
        self.memory.note_all(
            _asked(step)._replace(subject=waits_as[step.job]) for step in evicted if step.job in waits_as
        )
        self._tell_leaving(asked, sight)
        starts = tuple(start for start in ordered.starts if start.job not in absent)
        mounted = await self.volumes.ready(await self.partitioner.ready(plan, sight, starts), sight.pods)
        ready = await self.devices.given(mounted, sight.pods)
        outcomes = await self.binder.bind(ready)
        self._tell_bound(outcomes, sight)
        undone = sum(one.event in ("refused", "failed") for one in asked)
        undone += len([start for start in wanted if start.job not in absent]) - len(ready)
        return len(unkept) + undone + sum(not outcome.is_whole for outcome in outcomes)

    async def _admitted(self, plan: Plan, starts: Iterable[GangBinding], sight: Sight) -> frozenset[JobName]:
        """Those of a plan whose pods are not there yet. What starts of these, or is promised something, is admitted.

        Nothing is promised to what has no pod that could say so: once its pods are there, they are.
        """
        gangs = sight.gangs
        promised = bindings_of((as_start(step) for step in plan.steps if isinstance(step, Nominate)), gangs)
        absent = [one for one in (*starts, *promised) if stand_in(one.pods[0].name)]
        labels = {NodeName(key.name): node.metadata.labels for key, node in self.mirror.nodes.items()} if absent else {}
        queues = {one.job: job.spec.queue for one in absent if (job := gangs[one.job].job)}
        await self.admissions.admit(absent, labels, queues)
        return frozenset(one.job for one in absent)

    async def keep_free(self, plan: Plan, sight: Sight) -> None:
        """Keep free what a plan reserves, and no longer what it does not. What has no pods yet has nothing to say it on."""
        steps = (step for step in plan.steps if isinstance(step, Reserve | Unreserve))
        kept = [step for step in steps if step.job not in sight.gangs or not _is_absent(sight.gangs[step.job])]
        if kept:
            await self.promises.keep(kept, sight.gangs, sight.pods)

    async def _drained(
        self, sight: Sight, policy: Policy, health: Collection[NodeHealth], asked: Collection[JobName]
    ) -> tuple[Outcome, ...]:
        """Ask gangs to leave nodes that are drained for their health."""
        now = self.clock.now()
        wanted = [step for step in leaving_drained(sight, health, policy) if step.job not in asked]
        steps = self._drains.due(wanted, now)
        outcomes = await self.evictor.begin(steps, _known(sight)) if steps else ()
        self._drains.heard(outcomes, now)
        begun = {one.job for one in outcomes if one.event not in ("refused", "failed")}
        leaving = [step for step in steps if step.job in begun]
        self.memory.note_all(map(_of_drain, leaving))
        self.happened(of_drains(leaving, sight.gangs))
        return outcomes

    def _note_near(self, steps: Iterable[TimeUp], told: Collection[JobName]) -> None:
        self.memory.note_all(
            HistoryEntry(
                "time-limit-near",
                step.job,
                f"its time limit of {step.limit} is over at {step.over_at}; its tasks are told",
                attempt=step.attempt,
            )
            for step in steps
            if step.job in told
        )

    def _tell_leaving(self, outcomes: Collection[Outcome], sight: Sight) -> None:
        self.happened(of_evictions(outcomes, sight.gangs))
        self.memory.note_all(note for outcome in outcomes if (note := _of_leaving(outcome, sight)))
        for outcome in outcomes:
            if outcome.event == "called-off" and not outcome.only:
                self.memory.call_off(outcome.job)

    def _tell_bound(self, outcomes: Collection[GangOutcome], sight: Sight) -> None:
        self._remarked = {job: told for job, told in self._remarked.items() if job in sight.gangs}
        for outcome in outcomes:
            self._watch_for(outcome.pods)
            self.happened(of_bindings(one.pod for one in outcome.pods if one.answer == "bound"))
            if outcome.is_whole:
                self._tell_remarks(sight.gangs[outcome.gang.job], outcome.pods[0].pod)
        self.memory.note_all(map(_of_start, outcomes))

    def _tell_remarks(self, gang: PodGang, first: PodBinding) -> None:
        """Once; of what joins a gang that runs, what it brings. A new leader does not know what was said, and says it again."""
        before = self._remarked.get(gang.name, frozenset()) if gang.bound else frozenset()
        self._remarked[gang.name] = before | set(gang.remarks)
        self.happened(of_remarks(first, (remark for remark in gang.remarks if remark not in before)))

    def _watch_for(self, outcomes: Collection[PodOutcome]) -> None:
        self._unseen |= {Key(*one.pod.key): one.pod.uid for one in outcomes if one.answer == "bound"}
        self._unknown |= {Key(*one.pod.key): one.pod.uid for one in outcomes if one.answer == "unknown"}

    async def _marked(self) -> bool:
        """Write to one of our pods: a mirror that shows this shows all that was done before. False: it shows no pod of ours.

        A watch may hang while the lease is renewed, so that a new leader may not know what was bound by others for minutes.
        """
        for key, uid in self._ours():
            if await self._touched(key, uid):
                return True
        return False

    def _ours(self) -> list[tuple[Key, str]]:
        """The pods of ours that the mirror shows, with their uids."""
        pods = self.mirror.pods.items()
        return [(key, pod.metadata.uid) for key, pod in pods if pod.spec.scheduler_name == names.SCHEDULER]

    async def _voided(self, key: Key, uid: str) -> None:
        """A Binding names the resourceVersion of its pod: with another one it is refused, should it arrive after all."""
        pod = await self._touched(key, uid)
        if pod and pod.spec.node_name:
            self._unseen[key] = uid
        del self._unknown[key]

    async def _touched(self, key: Key, uid: str) -> Pod | None:
        """The pod, with a resourceVersion that it never had before; None: it is gone."""
        lead = self.leads()
        # A patch that changes nothing is not written, and leaves the resourceVersion as it is.
        notes = {**lead.stamp, names.TOUCHED: f"{lead.epoch}-{next(self._marks)}"}
        try:
            answer = await self.api.patch(PODS.path(*key), {"metadata": {"uid": uid, "annotations": notes}})
        except NotFoundError:
            return None
        except ConflictError as error:
            if error.status != 422:  # that another pod has the name is said so; any other conflict says nothing of it
                raise
            return None
        return msgspec.convert(answer, Pod)

    def _node(self, name: NodeName) -> KubeNode | None:
        return self.mirror.nodes.get(Key("", name))

    def _ground(self, sight: Sight) -> BindableNodes:
        index = sight.cluster.index
        refused = {(one.namespace, one.name) for gang in index.refused.values() for one in gang.members}
        unready = UnreadyPods(sight.pods, self.mirror.volumes, self.mirror.devices)
        return BindableNodes(_SeenNodes(index.nodes, self._node), frozenset(refused), unready)

    def _is_seen(self, key: Key, uid: str) -> bool:
        pod = self.mirror.pods.get(key)
        return pod is None or pod.metadata.uid != uid or bool(pod.spec.node_name)


class UnreadyPods(Container[tuple[str, str]]):
    """Pods without a node that can't be bound as they are now. Few are asked about."""

    def __init__(self, pods: PodView, volumes: PodVolumes, devices: PodClaims) -> None:
        self._pods = pods
        self._volumes = volumes
        self._devices = devices

    def __contains__(self, key: object) -> bool:
        """By namespace and name."""
        pod = self._pods.get(cast("tuple[str, str]", key))
        if pod is None:
            return False
        claims = self._devices.claims_of(pod)
        is_given = bool(claims) and all(claim.status.allocation for claim in claims)
        return bool(
            pod.spec.scheduling_gates or (pod.spec.resource_claims and not is_given) or not self._volumes.are_bound(pod)
        )


class _SeenNodes(NamedTuple):
    """The nodes of a look, as the server sends them."""

    there: Container[NodeName]
    wire: Callable[[NodeName], KubeNode | None]

    def get(self, name: str, /) -> KubeNode | None:
        """The node of that name, if it is there."""
        return self.wire(NodeName(name)) if name in self.there else None


def _is_absent(gang: PodGang) -> bool:
    """Its pods are not there yet: others stand for them."""
    return stand_in(gang.members[0].name) is not None


def _known(sight: Sight) -> Seen:
    return Seen(sight.cluster, sight.pods, sight.budgets)


def _asked(step: Evict | Shrink | Release) -> HistoryEntry:
    """What is on record of a gang that was asked to leave, or to let a part go."""
    match step:
        case Evict():
            return HistoryEntry(
                EVICTED, step.job, why_evicted(step), "checkpointing", step.attempt, "evict", step.beneficiary or ""
            )
        case Shrink():
            return HistoryEntry("asked-to-shrink", step.job, why_evicted(step), attempt=step.attempt)
        case Release():
            return HistoryEntry(EVICTED, step.job, "it did not become ready in time", "stopping", step.attempt)


def _of_drain(step: LeaveNode) -> HistoryEntry:
    kind, state = ("asked-to-shrink", "") if step.only else (EVICTED, "checkpointing")
    return HistoryEntry(kind, step.job, step.why, state, step.attempt, "requeue")


def _of_leaving(outcome: Outcome, sight: Sight) -> HistoryEntry | None:
    if outcome.event in ("refused", "failed", "called-off"):
        return HistoryEntry(f"eviction-{outcome.event}", outcome.job, outcome.why)
    if outcome.event == "limit-over":
        job = sight.gangs[outcome.job].job
        return HistoryEntry(EVICTED, outcome.job, outcome.why, "stopping", job.attempt if job else 0)
    return None


def _of_start(outcome: GangOutcome) -> HistoryEntry:
    gang = outcome.gang
    if outcome.is_whole:
        nodes = ", ".join(dict.fromkeys(pod.node for pod in gang.pods))
        return HistoryEntry("bound", gang.job, f"attempt {gang.attempt} on {nodes}", "starting", gang.attempt)
    worst = next(pod for pod in outcome.pods if pod.answer != "bound")
    return HistoryEntry("bind-refused", gang.job, f"pod {worst.pod.name}: {worst.answer}: {worst.why}")
