"""What a complete round has left, and what of it jobs may have after it: decided for these alone, within milliseconds.

After a complete round each job that waits has failed on what is left. So jobs that come may start on it without asking for those,
as long as nothing but that is given: nothing that is kept for a gang or by a document; no more than every limit leaves. For
urgent jobs inside their guarantees others leave (narrow_preemption). What has become free since goes first to jobs that it is
promised to, then to those that wait (freed_round), and is hidden from those that come until no other could have it.
What a complete round alone can say is left to it: which GPUs are partitioned anew, and jobs of queues in which the order of all
decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from solver.backfill.eligibility import is_live, kept_for
from solver.backfill.reservation_documents import document_reservations, kept_by, with_document_reservations
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import Sharing, sharing_of
from solver.milp.prices import fit_for
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, foreseen
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.narrow.acted_on import acted_on
from solver.narrow.freed_capacity import FreedCapacity
from solver.narrow.freed_round import FreedRound
from solver.narrow.held_jobs import AwaitedPromise, HeldJobs
from solver.narrow.narrow_preemption import NarrowPreemption, is_urgent
from solver.narrow.waiting_jobs import WaitingJobs, has_known_order
from solver.placement.fit import Fit
from solver.placement.greedy import greedy
from solver.placement.starts import JobStart
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Shrink
from solver.policy.policy import Policy
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree
from solver.policy.type_weights import weights_of
from solver.policy.windows import policy_at
from solver.preemption.new_nomination import NewNomination
from solver.queueing.demand import StartCandidate, in_order
from solver.queueing.manner import with_manners
from solver.queueing.pools import PoolLimits, with_pool_limits
from solver.quota.dominance import HostUse
from solver.quota.entitlement import (
    Charge,
    QuotaHeadroom,
    Shares,
    charge_of_tasks,
    shares_of,
    with_past_use,
    with_type_weights,
)
from solver.quota.fairshare import with_fair_shares
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.quota.lending import live_gpus
from solver.quota.users import CapLine
from solver.round.admission import Gate
from solver.round.decision import soon_free
from solver.round.solve import gate_of
from solver.round.steps import bind_of, promise_steps

NarrowStep = Bind | Evict | Nominate
"""What is done for a job that comes."""


@dataclass(frozen=True, slots=True)
class NarrowDecision:
    """Which jobs start, and which are promised what others leave for them. `kept`: those that get what they were promised."""

    starts: tuple[JobStart, ...]
    promises: tuple[NewNomination, ...] = ()
    kept: tuple[AwaitedPromise, ...] = ()

    @property
    def jobs(self) -> Iterator[Job]:
        """Those that it gives anything to."""
        yield from (promise.job for promise in self.kept)
        yield from (start.candidate.job for start in self.starts)
        yield from (promise.job for promise in self.promises)

    def steps(self, policy: Policy) -> Iterator[NarrowStep]:
        """Promises that are kept, starts, then for each promise who leaves, and the promise itself."""
        for kept in self.kept:
            yield bind_of(kept.job, kept.tasks, policy)
        for start in self.starts:
            yield bind_of(start.candidate.job, start.placed.tasks, policy)
        for promise in self.promises:
            yield from promise_steps(promise, policy)


@dataclass(frozen=True, slots=True)
class FreedDecision(NarrowDecision):
    """What becomes of what has become free. `is_all`: none of it is left to the next complete round.

    `settled`: in their order, jobs that start inside guarantees, and jobs for which others leave there; they come before `starts`.
    """

    is_all: bool = False
    settled: tuple[JobStart | NewNomination, ...] = ()

    @property
    def jobs(self) -> Iterator[Job]:
        """Those that it gives anything to."""
        yield from (promise.job for promise in self.kept)
        yield from (one.job if isinstance(one, NewNomination) else one.candidate.job for one in self.settled)
        yield from (start.candidate.job for start in self.starts)

    def steps(self, policy: Policy) -> Iterator[NarrowStep]:
        """Promises that are kept, what is settled inside guarantees, and other starts."""
        for kept in self.kept:
            yield bind_of(kept.job, kept.tasks, policy)
        for one in (*self.settled, *self.starts):
            if isinstance(one, NewNomination):
                yield from promise_steps(one, policy)
            else:
                yield bind_of(one.candidate.job, one.placed.tasks, policy)


@dataclass(slots=True)
class NarrowWorld:
    """What is left, and who waits. Mutable: what is given is taken from it.

    `room`: without what is kept; `wide`: with that, None where it is nothing; `soon`: once all have left that were asked to.
    `lines`: the strict queues in which jobs wait. `preemption`: who may leave, None where nobody may. `owed`: a job has come that
    waits inside its guarantees, so that nothing is lent before a complete round has seen it. `freed`: what has become free and is
    for those that wait. `capacity`: what fair shares are shares of. `reserved`: nodes of which something is kept; `holders`: for
    which jobs.
    """

    policy: Policy
    room: FreeCapacity
    soon: FreeCapacity
    shares: Shares
    sharing: Sharing
    gate: Gate
    limits: PoolLimits
    lines: set[QueueName]
    fit: Fit | None
    held: HeldJobs
    waiting: WaitingJobs
    capacity: Charge
    wide: FreeCapacity | None = None
    reserved: frozenset[NodeName] = frozenset()
    holders: frozenset[JobName] = frozenset()
    preemption: NarrowPreemption | None = None
    owed: bool = False
    freed: FreedCapacity = field(default_factory=FreedCapacity)
    _unsorted: dict[JobName, tuple[Job, bool]] = field(default_factory=dict)
    _has_strangers: bool = False

    @classmethod
    def after(cls, snapshot: Snapshot, policy: Policy, plan: Plan, kept: RoundCache | None = None) -> Self:
        """What a complete round leaves, once its plan has been acted on. `kept` as in a complete round."""
        kept, policy = RoundCache() if kept is None else kept, policy_at(policy, snapshot.time)
        world = _prepared(acted_on(snapshot, plan), policy)
        tree = QueueTree.of(policy)
        sharing, rules = sharing_of(policy, tree, world.nodes), pool_rules(policy, world).unchanging()
        room = FreeCapacity.of(world, sharing.domain, rules, kept=kept)
        soon = soon_free(world, sharing.domain, rules, room)
        reservations = (*world.in_flight.reservations, *document_reservations(world))
        wide = room.copy() if reservations else None
        _keep_reserved(room, world)
        _keep_reserved(soon, world)
        shares = with_past_use(shares_of(world, tree, kept), world, policy.scheduling.usage_half_life)
        shares = with_type_weights(shares, weights_of(policy.scheduling.gpu_types))
        held = HeldJobs.of(world, policy)
        made = cls(
            policy,
            room,
            soon,
            shares,
            sharing,
            gate_of(world, policy, kept),
            PoolLimits(policy, world.nodes, world.node_sets),
            set(),
            fit_for(world, room, sharing, policy.scheduling.solver, None),
            held,
            WaitingJobs(policy, world.time),
            live_gpus(world),
            wide,
            frozenset(task.node for known in reservations for task in known.tasks),
            frozenset(known.holder for known in world.in_flight.reservations),
            NarrowPreemption.after(world, policy, plan, shares, soon, sharing, kept),
        )
        withdrawn = {intent.job for intent in world.in_flight.nominations} - held.promises.keys()
        for job in world.pending:
            if job.name not in held.promises:
                made._wait((job,), is_sure=job.name not in withdrawn)
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

    def found(self, now: Instant) -> FreedDecision:
        """Which jobs get what they were promised, now that all have gone who had it; which start on what else has become free."""
        kept = tuple(promise for promise in self.held.ready(now) if self._is_free(promise.tasks))
        if not self.freed or self._has_strangers:
            return FreedDecision((), kept=kept, is_all=not self.freed)
        found = self._freed_round().decide()
        return FreedDecision(found.starts, kept=kept, is_all=found.is_all, settled=found.settled)

    def give(self, found: FreedDecision) -> None:
        """They have it. What no other could have is left to jobs that come from then on."""
        for promise in found.kept:
            self._bind(_begun(promise.job))
        for one in (*found.settled, *found.starts):
            if isinstance(one, NewNomination):
                self._have_others_leave(one)
            else:
                self._have(_begun(one.candidate.job), one.placed.tasks)
            start = one.start if isinstance(one, NewNomination) else one
            self._give_freed(start.candidate.job, start.placed.tasks)
        if found.is_all:
            self.leave_freed()

    def leave_freed(self) -> None:
        """What has become free is of no use to any job that waits."""
        self.freed = FreedCapacity()

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
            self._have(_begun(start.candidate.job), start.placed.tasks)
        return starts

    def _promised(self, waiting: Sequence[StartCandidate]) -> Iterator[NewNomination]:
        urgent = [known for known in waiting if is_urgent(known.job, self.policy)]
        while urgent and self.preemption is not None and not self.preemption.is_over:
            with self.room.trying(), self.soon.trying():
                self.freed.hide(self.room)
                self.freed.hide(self.soon)
                found = self.preemption.serve(urgent, self.room, self.freed.hidden_from(self.shares))
            if not isinstance(found, NewNomination):
                self.preemption.is_over = found is not None
                return
            self._have_others_leave(found)
            urgent = [known for known in urgent if known.job.name != found.job.name]
            yield found

    def _have_others_leave(self, promise: NewNomination) -> None:
        """They are asked to, and a job is promised what they leave."""
        victims = [victim.name for victim in promise.victims]
        self.evict(victims)
        self._be_promised(promise.job, promise.start.placed.tasks, victims)

    def _wait_but(self, came: Sequence[Job], served: Collection[JobName]) -> None:
        """The others wait. An urgent one that no rule here could look at might have others leave in a complete round."""
        left = [job for job in came if job.name not in served]
        if self.preemption is not None and any(
            is_urgent(job, self.policy) and not self._may_be_decided(job) for job in left
        ):
            self.preemption.is_over = True
        self._wait(left)

    def withdraw(self, names: Iterable[JobName]) -> None:
        """These wait no more, or not as they did; what they were promised is left to the next complete round."""
        for name in names:
            self._unsorted.pop(name, None)
            self.waiting.remove(name)
            self.held.promises.pop(name, None)

    def evict(self, names: Collection[JobName]) -> None:
        """These have been asked to leave for jobs that came: what they hold is theirs until they have left, and no longer."""
        if self.preemption is not None:
            self.shares = self.preemption.evict(names, self.shares)
            self.held.uncharged.update(names)
            self.held.left.update(names)
            for name in names:
                self._changed(name)

    def end(self, names: Iterable[JobName], again: Collection[JobName] = ()) -> None:
        """These hold nothing any more. `again`: those of them that wait again, and may start once more, for all that is known."""
        for name in names:
            job = self.held.end(name)
            if job is None:
                continue
            self._give_back(job)
            self.change((name,))
            if name in again:
                sent = (*job.evicted_at, self.waiting.now) if name in self.held.uncharged else job.evicted_at
                back = msgspec.structs.replace(job, phase="pending", placement=(), started_at=None, evicted_at=sent)
                self._wait((back,), is_sure=False)

    def change(self, names: Collection[JobName]) -> None:
        """These jobs hold less than before, or are to: no job leaves any more whose right to stay that may change."""
        if self.preemption is not None:
            self.preemption.change(names)

    def end_evictions(self) -> None:
        """No job leaves any more before the next complete round."""
        if self.preemption is not None:
            self.preemption.is_over = True

    def wait(self, jobs: Iterable[Job], *, is_sure: bool = True) -> None:
        """These have come and found no place. `is_sure`: whether they may start now, for all but that."""
        self._wait([self._settled(job) for job in jobs], is_sure=is_sure)

    def _wait(self, jobs: Sequence[Job], *, is_sure: bool = True) -> None:
        """They stand in line from now on, where their queues have one."""
        tree = self.shares.tree
        queues = {job.spec.queue for job in jobs}
        self.lines |= {queue for queue in queues if tree.is_leaf(queue) and ordering_of(tree, queue).in_line}
        self._unsorted.update({job.name: (job, is_sure) for job in jobs})

    def know_waiting(self) -> Shares:
        """Sort those that wait, as far as that has to be done anew; the shares, with those that are fair beside their demand."""
        for job, is_sure in self._unsorted.values():
            if any(group.nodes not in {"", *self.room.sets} for group in job.spec.task_groups):
                self._has_strangers = True
                continue
            admission = self.gate.admit(job)
            known = is_sure and not self._shares_host(job)
            self.waiting.add(job, () if admission.holds else admission.options, is_sure=known)
        self._unsorted = {}
        shares = with_fair_shares(self.shares, self.capacity, self.waiting.demand())
        self.waiting.sort(shares)
        return shares

    def _freed_round(self) -> FreedRound:
        """What is decided of those that wait."""
        shares = self.know_waiting()
        return FreedRound(
            self.policy,
            self.room,
            self.soon,
            self.wide,
            shares,
            self.waiting.lines,
            self.waiting.unsure,
            None if self.shares.users.limits_host else self.freed.types,
            self.held.lower,
            self.holders,
            self.held.growing,
            self.fit,
            self.preemption,
        )

    def _decided(self, candidates: Sequence[StartCandidate]) -> tuple[JobStart, ...]:
        allowed = [replace(candidate, inside_only=True) for candidate in candidates] if self.owed else candidates
        with self.room.trying():
            self.freed.hide(self.room)
            return greedy(allowed, self.room, self.freed.hidden_from(self.shares), fit=self.fit)

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

    def take(self, job: Job, tasks: tuple[TaskPlacement, ...]) -> None:
        """A job has these from now on in its attempt, whoever decided that; one that is pending was promised them."""
        promised = self.held.promises.get(job.name)
        if promised is not None and job.phase != "pending" and set(promised.tasks) == set(tasks):
            self._bind(job)
            return
        if promised is not None and job.phase != "pending":
            # It has got another place. What it was promised is left to the next complete round.
            self._count(job, promised.tasks, -1)
            self.held.break_promise(job.name)
        if not self.held.has(job.name, tasks):
            if job.phase == "pending":
                self._be_promised(job, tasks, ())
            else:
                self._have(job, tasks)
            self._give_freed(job, tasks)

    def _bind(self, job: Job) -> None:
        """A job has what it was promised: it is charged for that already."""
        self.held.keep_promise(job.name, job)

    def _have(self, job: Job, tasks: tuple[TaskPlacement, ...]) -> None:
        self._charge(job, tasks)
        self.held.hold(job, tasks)

    def _be_promised(self, job: Job, tasks: tuple[TaskPlacement, ...], awaited: Collection[JobName]) -> None:
        self._charge(job, tasks)
        self.held.promise(job, tasks, awaited)

    def _charge(self, job: Job, tasks: tuple[TaskPlacement, ...]) -> None:
        """A job that waited is given these."""
        for room in (self.room, self.soon, self.wide):
            if room is not None:
                room.hold(job.spec, tasks, self.sharing.domain)
        self._count(job, tasks, 1)
        self._unsorted.pop(job.name, None)
        self.waiting.remove(job.name)

    def _count(self, job: Job, tasks: tuple[TaskPlacement, ...], sign: int, *, is_charged: bool = True) -> None:
        """A job's queue and user hold these, or no longer (`sign` -1). `is_charged`: not if it was asked to leave before."""
        queue, (charge, caps, beside) = job.spec.queue, self._cost(job, tasks)
        if is_charged:
            used = Counter(self.shares.users.used)
            used.update({line: sign * amount for line, amount in caps.items()})
            more = {gpu_type: sign * milli for gpu_type, milli in charge.items()}
            self.shares = replace(self.shares.beside([(queue, more)]), users=replace(self.shares.users, used=used))
        cluster = self.shares.cluster
        held = {**cluster.held_beside, queue: cluster.held_beside.get(queue, HostUse()).plus(beside, sign)}
        self.shares = replace(self.shares, cluster=replace(cluster, held_beside=held))
        self.waiting.change(queue)

    def _cost(self, job: Job, tasks: tuple[TaskPlacement, ...]) -> tuple[Charge, Counter[CapLine], HostUse]:
        charge = charge_of_tasks(tasks, self.held.types)
        beside = sum_of(shape for _, shape in tasks_with_shapes(msgspec.structs.replace(job, placement=tasks)))
        return charge, Counter(dict(self.shares.users.charges(job, charge, beside))), beside

    def _changed(self, name: JobName) -> None:
        if name in self.held.jobs:
            self.waiting.change(self.held.jobs[name].spec.queue)

    def _give_freed(self, job: Job, tasks: tuple[TaskPlacement, ...]) -> None:
        """A job has got what may have become free since."""
        if self.freed:
            charge, caps, _ = self._cost(job, tasks)
            self.freed.give(tasks_with_shapes(msgspec.structs.replace(job, placement=tasks)))
            self.freed.give_quota(job.spec.queue, charge, caps.items())

    def _give_back(self, job: Job) -> None:
        """What a job held is free, as far as it is not promised; where it is kept, or a part of a GPU, to complete rounds alone."""
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        is_charged = job.name not in self.held.uncharged
        self._count(job, job.placement, -1, is_charged=is_charged)
        for task in job.placement:
            node = self.room.index.get(task.node)
            if node is None or task.group not in shapes:
                continue
            whole = task.share is None and task.mig is None and node not in self.room.shared
            is_plain = whole and node not in self.room.partitions.rules and task.node not in self.reserved
            if not is_plain and self.wide is None:
                self.wide = self.room.copy()
            own, shape = msgspec.structs.replace(task, devices=self.held.free_of(task)), shapes[task.group]
            if self.wide is not None:
                self.wide.give_back(own, shape)
            if is_plain:
                self.room.give_back(own, shape)
                self.freed.add(own, shape, self.room.nodes[node].gpu_type)
                if job.name not in self.held.left:
                    self.soon.give_back(own, shape)
            else:
                self.freed.types.add(self.room.nodes[node].gpu_type)
        if is_charged:
            charge, caps, _ = self._cost(job, job.placement)
            self.freed.add_quota(job.spec.queue, charge, caps.items())

    def _is_free(self, tasks: Collection[TaskPlacement]) -> bool:
        """Whether a place that is promised is there, beside all others that are, on nodes that take new work."""
        room = self.room
        nodes = {room.index[task.node] for task in tasks if task.node in room.index}
        return len(nodes) == len({task.node for task in tasks}) and all(
            room.open_nodes[node] and min(room.free_beside.at(node)) >= 0 for node in nodes
        )

    def _settled(self, job: Job) -> Job:
        """The job as rounds see it: spread or packed, and on the nodes that are open to it."""
        alone = with_manners(Snapshot(Instant(0), (), (job,)), self.policy).jobs[0]
        return self.limits.limited(alone)

    def _shares_host(self, job: Job) -> bool:
        """Whether its turn depends on how CPU and memory are divided among jobs without GPUs, which complete rounds alone do."""
        return self.shares.tree.divides_host and not any(group.shape.uses_gpus for group in job.spec.task_groups)

    def _may_be_decided(self, job: Job) -> bool:
        """Whether no order of all jobs of its queue has to be known first, nor a set of nodes that no job was limited to before,
        nor what others want of CPU and memory.
        """
        tree, queue = self.shares.tree, job.spec.queue
        if self._shares_host(job):
            return False
        if not tree.is_leaf(queue) or any(group.nodes not in {"", *self.room.sets} for group in job.spec.task_groups):
            return False
        return has_known_order(tree, queue) and queue not in self.lines


def _begun(job: Job) -> Job:
    """A job that waited, in its next attempt."""
    return msgspec.structs.replace(job, phase="starting", attempt=job.attempt + 1)


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
