"""What a complete round has left, and what of it jobs may have that come after it: decided for these alone, within milliseconds.

After a complete round each job that waits has failed on what is left. So jobs that come may start on it without asking for those,
as long as nothing but that is given: not what has become free since, which goes first to those that wait; nothing that is kept for
a gang or by a document; no more than every limit leaves. For urgent jobs inside their guarantees others leave (narrow_preemption).
What a complete round alone can say is left to it: which GPUs are partitioned anew, and jobs of queues in which the order of all
decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
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
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_preemption import NarrowPreemption, is_urgent
from solver.placement.fit import Fit
from solver.placement.greedy import greedy
from solver.placement.starts import JobStart
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Shrink
from solver.policy.policy import Policy
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree
from solver.policy.type_weights import weights_of
from solver.preemption.new_nomination import NewNomination
from solver.queueing.demand import StartCandidate, in_order
from solver.queueing.manner import with_manners
from solver.queueing.pools import PoolLimits, with_pool_limits
from solver.quota.entitlement import QuotaHeadroom, Shares, charge_of_tasks, shares_of, with_past_use, with_type_weights
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.round.admission import Gate
from solver.round.decision import soon_free
from solver.round.solve import gate_of
from solver.round.steps import bind_of, promise_steps

NarrowStep = Bind | Evict | Nominate
"""What is done for a job that comes."""


@dataclass(frozen=True, slots=True)
class NarrowDecision:
    """Which of the jobs that came start, and which are promised what others leave for them."""

    starts: tuple[JobStart, ...]
    promises: tuple[NewNomination, ...]

    def steps(self, policy: Policy) -> Iterator[NarrowStep]:
        """Starts, then for each promise who leaves, and the promise itself."""
        for start in self.starts:
            yield bind_of(start.candidate.job, start.placed.tasks, policy)
        for promise in self.promises:
            yield from promise_steps(promise, policy)


@dataclass(slots=True)
class NarrowWorld:
    """What is left, and who waits. Mutable: what is given is taken from it.

    `room`: without what reservations keep, and as if nothing had been given back since. `lines`: the strict queues in which jobs
    wait. `preemption`: who may leave, None where nobody may. `owed`: a job has come that waits inside its guarantees, so that
    nothing is lent before a complete round has seen it.
    """

    policy: Policy
    room: FreeCapacity
    shares: Shares
    sharing: Sharing
    gate: Gate
    limits: PoolLimits
    lines: set[QueueName]
    fit: Fit | None
    preemption: NarrowPreemption | None = None
    owed: bool = False

    @classmethod
    def after(cls, snapshot: Snapshot, policy: Policy, plan: Plan, kept: RoundCache | None = None) -> Self:
        """What a complete round leaves, once its plan has been acted on. `kept` as in a complete round."""
        kept = RoundCache() if kept is None else kept
        world = _prepared(acted_on(snapshot, plan), policy)
        tree = QueueTree.of(policy)
        sharing, rules = sharing_of(policy, tree, world.nodes), pool_rules(policy, world).unchanging()
        room = FreeCapacity.of(world, sharing.domain, rules, kept=kept)
        soon = soon_free(world, sharing.domain, rules, room)
        _keep_reserved(room, world)
        _keep_reserved(soon, world)
        shares = with_past_use(shares_of(world, tree, kept), world, policy.scheduling.usage_half_life)
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
            NarrowPreemption.after(world, policy, plan, shares, soon, sharing, kept),
        )
        made.wait(world.pending)
        return made

    @property
    def evicts(self) -> bool:
        """Whether jobs may still be asked to leave."""
        return self.preemption is not None and not self.preemption.is_over

    def start(self, jobs: Iterable[Job], now: Instant) -> tuple[JobStart, ...]:
        """Which of these that have come may start now, and where; what they get is nobody else's from here on.

        The others wait for a complete round, as if they had not been asked for.
        """
        came = [self._settled(job) for job in jobs]
        starts = self._started(self._candidates(came, now))
        self._wait_but(came, _names(starts))
        return starts

    def decide(self, jobs: Iterable[Job], now: Instant) -> NarrowDecision:
        """The same, and for which of the others that are urgent jobs leave."""
        came = [self._settled(job) for job in jobs]
        candidates, was_owed = self._candidates(came, now), self.owed
        owing = self._owing(candidates)
        starts = self._started(candidates)
        begun = _names(starts)
        promises = tuple(self._promised([known for known in candidates if known.job.name not in begun]))
        served = begun | {promise.job.name for promise in promises}
        # What was promised its own waits for nothing that is lent.
        self.owed = was_owed or (self.owed and not owing <= served)
        self._wait_but(came, served)
        return NarrowDecision(starts, promises)

    def _candidates(self, came: Sequence[Job], now: Instant) -> Sequence[StartCandidate]:
        admitted = [(job, self.gate.admit(job)) for job in came if self._may_be_decided(job)]
        able = [(job, admission.options) for job, admission in admitted if admission.options and not admission.holds]
        return in_order(able, self.policy, self.shares, now)

    def _started(self, candidates: Sequence[StartCandidate]) -> tuple[JobStart, ...]:
        starts = self._decided(candidates)
        if not self.owed and not self._owing(candidates) <= _names(starts):
            self.owed = True
            starts = self._decided(candidates)
        for start in starts:
            self.take(start.candidate.job, start.placed.tasks)
        return starts

    def _promised(self, waiting: Sequence[StartCandidate]) -> Iterator[NewNomination]:
        urgent = [known for known in waiting if is_urgent(known.job, self.policy)]
        while urgent and self.preemption is not None and not self.preemption.is_over:
            found = self.preemption.serve(urgent, self.room, self.shares)
            if not isinstance(found, NewNomination):
                self.preemption.is_over = found is not None
                return
            self.evict([victim.name for victim in found.victims])
            self.take(found.job, found.start.placed.tasks)
            urgent = [known for known in urgent if known.job.name != found.job.name]
            yield found

    def _wait_but(self, came: Sequence[Job], served: Collection[JobName]) -> None:
        """The others wait. An urgent one that no rule here could look at might have others leave in a complete round."""
        left = [job for job in came if job.name not in served]
        if self.preemption is not None and any(
            is_urgent(job, self.policy) and not self._may_be_decided(job) for job in left
        ):
            self.preemption.is_over = True
        self.wait(left)

    def evict(self, names: Collection[JobName]) -> None:
        """These have been asked to leave for jobs that came: what they hold is theirs until they have left, and no longer."""
        if self.preemption is not None:
            self.shares = self.preemption.evict(names, self.shares)

    def change(self, names: Collection[JobName]) -> None:
        """These jobs hold less than before, or are to: no job leaves any more whose right to stay that may change."""
        if self.preemption is not None:
            self.preemption.change(names)

    def end_evictions(self) -> None:
        """No job leaves any more before the next complete round."""
        if self.preemption is not None:
            self.preemption.is_over = True

    def wait(self, jobs: Iterable[Job]) -> None:
        """These stand in line from now on, where their queues have one."""
        tree = self.shares.tree
        queues = {job.spec.queue for job in jobs}
        self.lines |= {queue for queue in queues if tree.is_leaf(queue) and ordering_of(tree, queue).in_line}

    def _decided(self, candidates: Sequence[StartCandidate]) -> tuple[JobStart, ...]:
        allowed = [replace(candidate, inside_only=True) for candidate in candidates] if self.owed else candidates
        with self.room.trying():
            return greedy(allowed, self.room, self.shares, fit=self.fit)

    def _owing(self, candidates: Iterable[StartCandidate]) -> set[JobName]:
        """Those that lie inside their guarantees: one that waits may take back in the next round what is lent now."""
        inside = QuotaHeadroom(self.shares).entitled
        return {
            candidate.job.name
            for candidate in candidates
            if any(
                any(option.charge.values()) and inside.holds(candidate.job.spec.queue, option.charge)
                for option in candidate.options
            )
        }

    def take(self, job: Job, tasks: Collection[TaskPlacement]) -> None:
        """A job has these from now on, whoever decided that."""
        queue, spec = job.spec.queue, job.spec
        self.room.hold(spec, tasks, self.sharing.domain)
        if self.preemption is not None:
            self.preemption.take(job, tasks, self.sharing)
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


def _names(starts: Iterable[JobStart]) -> set[JobName]:
    return {start.candidate.job.name for start in starts}


def without_steps_of(plan: Plan, undone: Collection[JobName]) -> Plan:
    """A plan of which something did not come about: who was to leave for these jobs, and what these were to have but starts."""
    steps = (
        step for step in plan.steps if not (isinstance(step, Evict | Shrink | Nominate | Grow) and step.job in undone)
    )
    return msgspec.structs.replace(plan, steps=tuple(steps)) if undone else plan


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
