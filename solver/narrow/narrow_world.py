"""What a complete round has left, and what of it jobs may have that come after it: decided for these alone, within milliseconds.

After a complete round each job that waits has failed on what is left. So jobs that come may start on it without asking for those,
as long as nothing but that is given: not what has become free since, which goes first to those that wait; nothing that is kept for
a gang or by a document; no more than every limit leaves. What a complete round alone can say is left to it: who leaves for whom,
which GPUs are partitioned anew, and jobs of queues in which the order of all decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from solver.backfill.eligibility import is_live, kept_for
from solver.backfill.reservation_documents import document_reservations, kept_by, with_document_reservations
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import Sharing, sharing_of
from solver.milp.prices import fit_for
from solver.model.cluster import GpuType
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, foreseen
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.narrow.acted_on import acted_on
from solver.placement.fit import Fit
from solver.placement.greedy import greedy
from solver.placement.starts import JobStart
from solver.plan.plan import Plan
from solver.policy.policy import Policy
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree
from solver.policy.type_weights import weights_of
from solver.queueing.demand import StartCandidate, in_order
from solver.queueing.manner import with_manners
from solver.queueing.pools import PoolLimits, with_pool_limits
from solver.quota.entitlement import QuotaHeadroom, Shares, charge_of_tasks, shares_of, with_past_use, with_type_weights
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.round.admission import Gate
from solver.round.solve import gate_of


@dataclass(slots=True)
class NarrowWorld:
    """What is left, and who waits. Mutable: what is given is taken from it.

    `room`: without what reservations keep, and as if nothing had been given back since. `lines`: the strict queues in which jobs
    wait. `owed`: a job has come that waits inside its guarantees, so that nothing is lent before a complete round has seen it.
    """

    policy: Policy
    room: FreeCapacity
    shares: Shares
    sharing: Sharing
    gate: Gate
    limits: PoolLimits
    lines: set[QueueName]
    fit: Fit | None
    owed: bool = False

    @classmethod
    def after(cls, snapshot: Snapshot, policy: Policy, plan: Plan, kept: RoundCache | None = None) -> Self:
        """What a complete round leaves, once its plan has been acted on. `kept` as in a complete round."""
        kept = RoundCache() if kept is None else kept
        world = _prepared(acted_on(snapshot, plan), policy)
        tree = QueueTree.of(policy)
        sharing, rules = sharing_of(policy, tree, world.nodes), pool_rules(policy, world).unchanging()
        room = FreeCapacity.of(world, sharing.domain, rules, kept=kept)
        _keep_reserved(room, world)
        shares = with_past_use(shares_of(world, tree), world, policy.scheduling.usage_half_life)
        shares = with_type_weights(shares, weights_of(policy.scheduling.gpu_types))
        made = cls(
            policy,
            room,
            shares,
            sharing,
            gate_of(world, policy, kept),
            PoolLimits(policy, world.nodes, world.node_sets),
            set(),
            fit_for(world, room, sharing, policy.scheduling.solver, None),
        )
        made.wait(world.pending)
        return made

    def start(self, jobs: Iterable[Job], now: Instant) -> tuple[JobStart, ...]:
        """Which of these that have come may start now, and where; what they get is nobody else's from here on.

        The others wait for a complete round, as if they had not been asked for.
        """
        came = [self._settled(job) for job in jobs]
        admitted = [(job, self.gate.admit(job)) for job in came if self._may_be_decided(job)]
        able = [(job, admission.options) for job, admission in admitted if admission.options and not admission.holds]
        candidates = in_order(able, self.policy, self.shares, now)
        starts = self._decided(candidates)
        if not self.owed and self._leaves_owed(candidates, starts):
            self.owed = True
            starts = self._decided(candidates)
        for start in starts:
            self.take(start.candidate.job, start.placed.tasks)
        begun = {start.candidate.job.name for start in starts}
        self.wait(job for job in came if job.name not in begun)
        return starts

    def wait(self, jobs: Iterable[Job]) -> None:
        """These stand in line from now on, where their queues have one."""
        tree = self.shares.tree
        queues = {job.spec.queue for job in jobs}
        self.lines |= {queue for queue in queues if tree.is_leaf(queue) and ordering_of(tree, queue).in_line}

    def _decided(self, candidates: Sequence[StartCandidate]) -> tuple[JobStart, ...]:
        allowed = [replace(candidate, inside_only=True) for candidate in candidates] if self.owed else candidates
        with self.room.trying():
            return greedy(allowed, self.room, self.shares, fit=self.fit)

    def _leaves_owed(self, candidates: Iterable[StartCandidate], starts: Iterable[JobStart]) -> bool:
        """Whether one of them waits inside its guarantees: it may take back in the next round what is lent now."""
        begun, inside = {start.candidate.job.name for start in starts}, QuotaHeadroom(self.shares).entitled
        return any(
            any(option.charge.values()) and inside.holds(candidate.job.spec.queue, option.charge)
            for candidate in candidates
            if candidate.job.name not in begun
            for option in candidate.options
        )

    def take(self, job: Job, tasks: Collection[TaskPlacement]) -> None:
        """A job has these from now on, whoever decided that."""
        queue, spec = job.spec.queue, job.spec
        self.room.hold(spec, tasks, self.sharing.domain)
        charge = charge_of_tasks(tasks, {task.node: self._type_of(task) for task in tasks})
        beside = sum_of(shape for _, shape in tasks_with_shapes(msgspec.structs.replace(job, placement=tuple(tasks))))
        caps = self.shares.users
        used = Counter(caps.used)
        used.update(dict(caps.charges(job, charge, beside)))
        self.shares = replace(self.shares.beside([(queue, charge)]), users=replace(caps, used=used))

    def _settled(self, job: Job) -> Job:
        """The job as rounds see it: spread or packed, and on the nodes that are open to it."""
        alone = with_manners(Snapshot(Instant(0), (), (job,)), self.policy).jobs[0]
        return self.limits.limited(alone)

    def _may_be_decided(self, job: Job) -> bool:
        """Whether no order of all jobs of its queue has to be known first, nor a set of nodes that no job was limited to before."""
        tree, queue = self.shares.tree, job.spec.queue
        if not tree.is_leaf(queue) or any(group.nodes not in {"", *self.room.sets} for group in job.spec.task_groups):
            return False
        ordering = ordering_of(tree, queue)
        return ordering.turns is None and ordering.by != "gittins" and queue not in self.lines

    def _type_of(self, task: TaskPlacement) -> GpuType:
        return self.room.nodes[self.room.index[task.node]].gpu_type


def _prepared(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """A world as rounds see it. Promises that would be taken back stand, and gangs that are to shrink are charged as they are."""
    limited = with_pool_limits(with_manners(foreseen(snapshot), policy), policy)
    return with_document_reservations(limited, policy)


def _keep_reserved(room: FreeCapacity, world: Snapshot) -> None:
    """What is kept for gangs and by documents is no one's, as if nothing were given back before it is needed."""
    jobs = {job.name: job for job in world.jobs}
    gangs = [held for held in world.in_flight.reservations if held.holder in jobs]
    kept = {
        **kept_for([held for held in gangs if is_live(held, room, jobs[held.holder].spec)], jobs, ()),
        **kept_by(document_reservations(world), room, (), world.time),
    }
    for holder in sorted(kept):
        room.occupy(kept[holder], is_new=False)
