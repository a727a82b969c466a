"""What a round says of every live job: one verdict each, with reasons and an estimate for those that wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import cast

from solver.backfill.future_state import FutureState
from solver.backfill.nominations import Nomination, Nominations, Parts, held_parts, in_the_way
from solver.backfill.reservations import reservations_after
from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import NodeName
from solver.model.inflight import Reservation
from solver.model.parts import owner_of
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.placement.starts import JobStart
from solver.plan.estimates import AnyEstimate, EarliestStart
from solver.plan.extent import Extent, extent_of
from solver.plan.plan import Departs, Inadmissible, Moves, Runs, Starts, Verdict, Waits, Yields
from solver.plan.reasons import AwaitsRelease, Outranked
from solver.policy.harm import Means, Rule
from solver.policy.policy import Policy, Queue
from solver.policy.tree import QuotaLine
from solver.preemption.consolidation import Move
from solver.preemption.new_nomination import NewNomination
from solver.preemption.planned_evictions import PlannedEviction
from solver.queueing.demand import StartCandidate, in_order
from solver.queueing.loans import Loans, asked_back_at, ends_by, loans_of_documents
from solver.quota.dominance import HostUse
from solver.quota.entitlement import Charge, Inside, QuotaHeadroom, charge_of_tasks
from solver.quota.host_guarantees import HeldAlone
from solver.quota.host_shares import HostShares
from solver.round.admission import Admission
from solver.round.awaited_places import AwaitedPlaces
from solver.round.forecast import estimates
from solver.round.protections import LaterStart, RoundRemainder, later_starts
from solver.round.regrowth import GangGrowth, with_grown
from solver.round.tiers import Decision
from solver.round.verdicts import AHEAD_NAMED_MAX, Waiting


@dataclass
class RoundExplanation:
    """A decided round, about to be put into words.

    `asked`: the snapshot in which jobs that are evicted for others have been asked to leave. `leaving`: these, and departures.
    `grown`: running gangs that get more tasks. `has_optimiser`: later rounds will have one, too. `standing_back`: jobs that would
    start in vain, each with the job that would take its GPUs.
    """

    snapshot: Snapshot
    asked: Snapshot
    policy: Policy
    admissions: Mapping[JobName, Admission]
    nominations: Nominations
    candidates: Sequence[StartCandidate]
    decision: Decision
    leaving: Sequence[PlannedEviction]
    grown: Sequence[GangGrowth]
    has_optimiser: bool
    standing_back: Mapping[JobName, JobName] = field(default_factory=dict)
    kept: RoundCache = field(default_factory=RoundCache)

    @property
    def provided(self) -> frozenset[JobName]:
        """Jobs that start in this round or were promised what they will start with: nothing need be reserved for it."""
        starts = {start.candidate.job.name for start in self.decision.starts}
        return frozenset(starts | {promise.job.name for promise in self.decision.promises} | self.nominations.jobs)

    def reservations(self) -> tuple[Reservation, ...]:
        """What is reserved once all of it has come true."""
        provided = self.provided
        waiting = [candidate for candidate in self.candidates if candidate.job.name not in provided]
        waiting += self._awaiting
        if not waiting:
            return ()
        known = [held for held in self.snapshot.in_flight.reservations if not held.is_declared]
        kept, now = reservations_after(self._ahead, self.policy, waiting, known, self.snapshot.time), self.snapshot.time
        places = AwaitedPlaces(self.policy, self._after, self._ahead.shares, now, known)
        return places.beside(kept, waiting, self._later)

    @cached_property
    def _awaiting(self) -> Sequence[StartCandidate]:
        """Jobs that are to start once their queue has another quota, as they would be served then, if they are promised nothing."""
        waiting = [job for job in self.snapshot.pending if job.name not in self.nominations.jobs]
        judged = [(job, self.admissions[job.name]) for job in waiting if job.name in self.admissions]
        then = [(job, admission.then) for job, admission in judged if admission.then and not admission.holds]
        return in_order(then, self.policy, self.decision.shares, self.snapshot.time) if then else ()

    @cached_property
    def _ahead(self) -> FutureState:
        """The world from here on."""
        world, shares = with_grown(self.asked, self.grown), self.decision.shares
        more = [(growth.job.spec.queue, growth.charge) for growth in self.grown]
        shares = shares.beside(more)
        growing = (promise.start for promise in self.decision.growth_promises)
        started = (*self._started(), *growing)
        return FutureState.after_round(world, self.policy, shares, started, self._begins, self._after)

    @cached_property
    def _after(self) -> FreeCapacity:
        """The room without what this round gives out."""
        after = self.decision.room.copy()
        self.decision.take(after)
        # What is settled of a gang's growth is given out by the decision already.
        settled = {
            (owner_of(start.candidate.job.name), task.group, task.index)
            for start in self.decision.growth
            for task in start.placed.tasks
        }
        for growth in self.grown:
            name = growth.job.name
            after.occupy((task, shape) for task, shape in growth.held if (name, task.group, task.index) not in settled)
        return after

    def _started(self) -> tuple[JobStart, ...]:
        return (*self.decision.starts, *(promise.start for promise in self.decision.promises))

    def _moves(self) -> dict[JobName, Move]:
        return {move.name: move for promise in self.decision.promises for move in promise.moves}

    def verdicts(self, reservations: Sequence[Reservation]) -> Iterator[Verdict]:
        """One for every live job, in the order of their names."""
        return self._of_all(
            chain(self._leaving(), self._promised(), self._starting(), self._waiting(reservations)),
        )

    def outcomes(self) -> Iterator[Verdict]:
        """The same, without reasons and estimates of jobs that wait."""
        promised = self.nominations.jobs | {promise.job.name for promise in self.decision.promises}
        waiting = (
            Waits(job.name, job.spec.queue, ())
            for job in self.snapshot.pending
            if job.name in promised or self.admissions[job.name].options
        )
        return self._of_all(chain(waiting, self._leaving(), self._starting()))

    def _of_all(self, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
        """What is said of a job last, and of all others what needs no saying."""
        said = {verdict.job: verdict for verdict in verdicts}
        grows = {growth.job.name: growth.gpus for growth in self.grown}
        called = loans_of_documents(self.asked, self.policy, self.decision.shares.tree)
        for job in self.snapshot.jobs:
            if job.name != owner_of(job.name):
                continue
            if job.name in said:
                yield said[job.name]
            elif job.phase == "pending":
                yield self._refused(job)
            else:
                yield Runs(job.name, job.spec.queue, grows.get(job.name, MilliGpu(0)), *self._notice(job, called))

    def _refused(self, job: Job) -> Verdict:
        """A job that can't start however much is free: for ever, or until its queue has another quota."""
        admission = self.admissions[job.name]
        if admission.later is not None:
            return Waits(job.name, job.spec.queue, (admission.later,))
        return Inadmissible(job.name, job.spec.queue, admission.reasons)

    def _notice(self, job: Job, called: Loans) -> tuple[Instant, JobName] | tuple[()]:
        """When a job will be asked to leave what a document keeps, and which; () where it ends before, or nothing keeps it."""
        held = called.get(job.name)
        if held is None or ends_by(job, held.start):
            return ()
        return asked_back_at(job, held, self.policy), held.holder

    def _starting(self) -> Iterator[Verdict]:
        headroom = QuotaHeadroom(self.decision.shares)
        for start in sorted(self.decision.starts, key=lambda start: not start.inside_only):
            job, gpus = start.candidate.job, MilliGpu(sum(start.charge.values()))
            entitled = MilliGpu(headroom.take(start.queue, start.charge))
            yield Starts(job.name, job.spec.queue, gpus, entitled, self._extent(job, start.placed.tasks))
        for ready in self.nominations.ready:
            yield self._keeps_its_promise(ready)

    def _keeps_its_promise(self, ready: Nomination) -> Starts:
        """Its GPUs are counted as held already, so what lies inside the guarantee is looked at without them."""
        charge: Charge = charge_of_tasks(ready.intent.tasks, self.snapshot.gpu_types)
        queue = ready.job.spec.queue
        before = self.decision.shares.without([(queue, charge)])
        inside = Inside(before.tree, before.entitled_room).part(queue, charge)
        extent = self._extent(ready.job, ready.intent.tasks)
        return Starts(ready.job.name, queue, MilliGpu(sum(charge.values())), MilliGpu(inside), extent)

    def _extent(self, job: Job, tasks: Sequence[TaskPlacement]) -> Extent | None:
        room = self.decision.room
        hosts = [room.nodes[room.index[task.node]] for task in tasks]
        return extent_of(job.spec, hosts, [(task.group, task.index) for task in tasks])

    def _leaving(self) -> Iterator[Verdict]:
        preemptors = {promise.job.name: promise.job for promise in self.decision.promises}
        tiers = {promise.job.name: promise.tier for promise in self.decision.promises}
        grow = {owner_of(promise.job.name) for promise in self.decision.growth_promises}
        preemptors |= {job.name: job for job in self.snapshot.jobs if job.name in grow}
        moves, crosses = self._moves(), any(known.by == "straddle" for known in self.leaving)
        carried = HostShares.of(self.snapshot.nodes if crosses else (), self.policy.scheduling.host_share)
        for known in self.leaving:
            name, queue, gave = known.job.name, known.job.spec.queue, (known.gpus, known.lost_gpu_s, known.keeps)
            if known.at is not None:
                yield Departs(name, queue, cast("Rule", known.by), known.at, *gave, known.reserved_for)
            elif known.beneficiary is not None:
                to = preemptors[known.beneficiary]
                if name in moves:
                    yield _moving(moves[name], to)
                    continue
                beside, means = _given_up_beside(known, carried), cast("Means", known.by)
                shared = (
                    self._shared_with(to)
                    if tiers.get(to.name) == "shared" and means in ("reclaim", "straddle")
                    else None
                )
                older = self._goes_by_age(known.job, to) if means == "preempt" else None
                by_value = self._reclaims(to) if tiers.get(to.name) == "value" else None
                yield Yields(
                    *(name, queue, to.name, to.spec.queue, means, *gave, *beside),
                    shared_by=shared[0] if shared else None,
                    origin=shared[1] if shared else said.origin if (said := older or by_value) else "",
                    older=older is not None,
                    below=by_value.reclaim_below if by_value else None,
                    from_user=known.job.user if self._is_of_users(queue, means) else None,
                    to_user=to.user if self._is_of_users(queue, means) else None,
                )

    def _is_of_users(self, queue: QueueName, means: Means) -> bool:
        """Whether a job leaves since users take back their shares of a queue."""
        return means == "turn" and queue in self.decision.shares.users.sharing

    def _reclaims(self, job: Job) -> Queue | None:
        """What says below which value others' borrowed work leaves for a job."""
        tree = self.decision.shares.tree
        above = (tree.by_name[name] for name in tree.path(job.spec.queue))
        return next((known for known in above if known.reclaim_below is not None), None)

    def _goes_by_age(self, job: Job, to: Job) -> Queue | None:
        """What says that jobs of one value go by age, where one leaves for another of its queue and value that came first."""
        tree, classes = self.decision.shares.tree, [self.policy.priority_class(one) for one in (job, to)]
        above = (tree.by_name[name] for name in tree.path(job.spec.queue))
        said = next((known for known in above if known.preempt_within is not None), None)
        same = len({known.value for known in classes if known is not None}) == 1
        by_age = said is not None and said.preempt_within == "lower-or-newer"
        return said if by_age and same and to.submitted_at < job.submitted_at else None

    def _shared_with(self, job: Job) -> tuple[QueueName, str] | None:
        """The queue whose guarantee a job which was promised something shares with others, and where in Git that is said."""
        (promise,) = (known for known in self.decision.promises if known.job.name == job.name)
        tree, queue, charge = self.decision.shares.tree, job.spec.queue, promise.start.charge
        if any(charge.values()):
            lines = (QuotaLine(queue, kind) for kind, milli in charge.items() if milli)
            line = next(filter(None, map(tree.sharing, lines)), None)
            return (line.queue, tree.origin_of(line)) if line else None
        claimed = self.decision.shares.host.guarantees.sharing(HeldAlone(queue, promise.start.beside))
        entries = ((of.queue, tree.by_name[of.queue].host_quota_for(of.resource)) for of, _ in claimed)
        return next(((name, entry.origin) for name, entry in entries if entry is not None), None)

    def _promised(self) -> Iterator[Verdict]:
        promised = [promise.job for promise in self.decision.promises]
        known = [nomination.job for nomination in self.nominations.waiting if nomination.job.phase == "pending"]
        for job in (*promised, *known):
            yield _awaits(job, self._waits_for[job.name], self._held_by, EarliestStart(self._begins[job.name]))

    @cached_property
    def _held_by(self) -> Mapping[JobName, str]:
        """What keeps jobs from leaving that were asked to before."""
        return {job.name: job.held for job in self.snapshot.jobs if job.held}

    @cached_property
    def _waits_for(self) -> dict[JobName, Collection[JobName]]:
        """Which jobs must be gone before each job that was promised something can begin."""
        promises = self.decision.nominations
        nodes = {task.node for promise in promises for task in promise.start.placed.tasks}
        parts = held_parts(self.asked, nodes | {node for promise in promises for node, _ in promise.pledged})
        leaving, asked_for = self._deadlines().keys(), self._asked_for()
        leaving_from = _by_node(job for job in self.asked.jobs if job.name in leaving)
        waits_for: dict[JobName, Collection[JobName]] = {
            promise.job.name: asked_for[owner_of(promise.job.name)] | _holders_of(promise, parts, leaving, leaving_from)
            for promise in promises
        }
        waits_for |= {name: {name} for name in self._moves()}
        return waits_for | {nomination.job.name: nomination.holders for nomination in self.nominations.waiting}

    @cached_property
    def _begins(self) -> dict[JobName, Instant]:
        """When jobs that were promised something can begin."""
        deadlines, soonest = self._deadlines(), self.snapshot.time.after(1)
        return {
            name: max((soonest, *(deadlines.get(holder, soonest) for holder in holders)))
            for name, holders in self._waits_for.items()
        }

    def _deadlines(self) -> dict[JobName, Instant]:
        """Jobs that were asked to leave, in this round or before, and when each is gone at the latest."""
        return {intent.job: intent.deadline for intent in self.asked.in_flight.intents if intent.kind == "stop"}

    def _asked_for(self) -> Mapping[JobName, set[JobName]]:
        """Which job was asked to leave for which."""
        leaving: dict[JobName, set[JobName]] = defaultdict(set)
        for intent in self.asked.in_flight.evictions:
            if intent.beneficiary is not None:
                leaving[intent.beneficiary].add(intent.job)
        return leaving

    def _waiting(self, reservations: Sequence[Reservation]) -> Iterator[Verdict]:
        starts = self._started()
        why = Waiting(
            self.policy,
            self.snapshot.time,
            self.decision.shares,
            self.decision.room,
            self._after,
            starts,
            self.decision.certificate.stage,
            self.candidates,
            self.snapshot.in_flight.reservations,
        )
        started = {start.candidate.job.name for start in starts}
        waiting = [candidate for candidate in self.candidates if candidate.job.name not in started]
        later = self._later
        when = estimates(self._ahead.copy(), self.snapshot.time, waiting, reservations, later, self._awaiting)
        for candidate in self._awaiting:
            job, change = candidate.job, self.admissions[candidate.job.name].later
            if change is not None:
                yield Waits(job.name, job.spec.queue, (change,), when.get(job.name))
        for candidate in waiting:
            job = candidate.job
            reasons = why.reasons(candidate)
            if job.name in self.standing_back:
                reasons = (Outranked((self.standing_back[job.name],)),)
            elif job.name in later:
                reasons = (*later[job.name].reasons, *reasons)
            yield Waits(job.name, job.spec.queue, reasons, when.get(job.name))
        for job in self.snapshot.pending:
            admission = self.admissions[job.name]
            if admission.options and admission.holds and job.name not in self.nominations.jobs:
                yield Waits(job.name, job.spec.queue, why.reasons_on_hold(job, admission))

    @cached_property
    def _later(self) -> Mapping[JobName, LaterStart]:
        """Who of those that wait is served once others are protected no more."""
        apart = {start.candidate.job.name for start in self._started()} | self.standing_back.keys()
        waiting = [candidate for candidate in self.candidates if candidate.job.name not in apart]
        left = RoundRemainder(
            self.asked,
            self.policy,
            self.decision,
            self.grown,
            self._after,
            has_optimiser=self.has_optimiser,
            kept=self.kept,
        )
        return later_starts(left, waiting)


def _given_up_beside(known: PlannedEviction, carried: HostShares) -> tuple[Cpu, Memory, bool]:
    """CPU and memory of a job that gives up no GPUs; and of one across a line, whether it has more than its GPUs carry."""
    beside = HostUse() if known.gpus else known.beside
    return Cpu(beside.cpu), Memory(beside.memory), known.by == "straddle" and carried.exceeds((known.job,))


def _by_node(jobs: Iterable[Job]) -> Mapping[NodeName, set[JobName]]:
    """Which jobs are where."""
    found: dict[NodeName, set[JobName]] = defaultdict(set)
    for job in jobs:
        for task in job.placement:
            found[task.node].add(job.name)
    return found


def _holders_of(
    promise: NewNomination, parts: Parts, leaving: Collection[JobName], leaving_from: Mapping[NodeName, set[JobName]]
) -> set[JobName]:
    """Jobs that still hold some of what is promised."""
    tasks = promise.start.placed.tasks
    # Where it needs no device of theirs, it waits for their CPU or memory.
    return in_the_way(tasks, parts, leaving, promise.pledged) or set().union(
        *(leaving_from.get(task.node, ()) for task in tasks)
    )


def _moving(move: Move, to: Job) -> Moves:
    job, mover = move.mover.job, move.mover
    leaves, nodes = (tuple(dict.fromkeys(task.node for task in tasks)) for tasks in (job.placement, move.tasks))
    return Moves(job.name, job.spec.queue, to.name, to.spec.queue, mover.gpus, leaves, nodes, mover.lost_gpu_s)


def _awaits(job: Job, leaving: Collection[JobName], held_by: Mapping[JobName, str], when: AnyEstimate) -> Waits:
    named = tuple(sorted({owner_of(name) for name in leaving}))
    budget = next((held_by[name] for name in named if name in held_by), "")
    reason = AwaitsRelease(named[:AHEAD_NAMED_MAX], max(0, len(named) - AHEAD_NAMED_MAX), budget)
    return Waits(job.name, job.spec.queue, (reason,), when)
