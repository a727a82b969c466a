"""One round: a frozen snapshot and a frozen policy in, a plan out. No clock, no I/O; the optimiser is handed in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

import msgspec

from solver.backfill.eligibility import ends_in, held_back, is_live, kept_for
from solver.backfill.nominations import Nominations, nominations_in
from solver.backfill.reservation_documents import document_reservations, kept_by, kept_from, with_document_reservations
from solver.backfill.reservations import reserving_steps
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.free_resources import Reserved
from solver.capacity.nominal_nodes import nominal_nodes
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.milp.optimiser import MonitoredOptimiser, Optimiser, for_a_round
from solver.model.cluster import NodeName
from solver.model.parts import shrinking_apart
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, foreseen
from solver.model.workload import Job, JobName
from solver.plan.plan import Plan, Step
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.policy.type_weights import weights_of
from solver.policy.windows import policy_at
from solver.preemption.departures import departures
from solver.preemption.planned_evictions import (
    PlannedEviction,
    overdue_growths,
    planned_evictions,
    with_asked,
    yielding,
)
from solver.queueing.demand import StartCandidate, in_order
from solver.queueing.loans import loans_in
from solver.queueing.manner import with_manners
from solver.queueing.pools import with_pool_limits
from solver.queueing.rotation import with_precedence
from solver.queueing.user_reclaim import with_user_reclaim
from solver.quota.entitlement import Shares, shares_of, with_past_use, with_type_weights
from solver.quota.fairshare import demand_of, with_fair_shares
from solver.quota.host_division import with_host_dues
from solver.quota.lending import live_gpus
from solver.quota.options import Option
from solver.round.admission import Admission, Emptied, Gate
from solver.round.aftermath import begun_by, begun_in_vain, disturbed, left_in_vain, settled
from solver.round.decision import certifying, decide_with_evictions
from solver.round.explanation import RoundExplanation
from solver.round.regrowth import GangGrowth, growths
from solver.round.steps import steps_of
from solver.round.tiers import Decision

LOOKED_AHEAD_NODES_MAX = 8
"""Nodes of clusters in which a round looks ahead to the next one, which takes as long as the round itself; and in which nodes stand
in an order that no name decides."""

LOOKED_AHEAD_MAX = 4
"""How often a round is decided anew because jobs would start in vain."""


def solve(snapshot: Snapshot, policy: Policy, optimiser: Optimiser | None, kept: RoundCache | None = None) -> Plan:
    """Decide one round. Without an optimiser the greedy answer stands, and the certificate says so.

    `kept`: what the round before left for this one, which decides the same without.
    """
    return decide(snapshot, policy, optimiser, kept).plan()


def decide(
    snapshot: Snapshot, policy: Policy, optimiser: Optimiser | None, kept: RoundCache | None = None
) -> RoundAnswer:
    """Decide one round, and tell first what it does, then why."""
    kept = RoundCache() if kept is None else kept
    kept.begin()
    _ = snapshot.digest  # Now: its text is as long as the snapshot, and gone when the round needs memory.
    watched = MonitoredOptimiser(for_a_round(optimiser)) if optimiser else None
    digest, policy = policy.digest, policy_at(policy, snapshot.time)
    found = _decided(snapshot, policy, watched, kept)
    if len(snapshot.nodes) <= LOOKED_AHEAD_NODES_MAX:
        found = _Foresight(snapshot, policy, watched, kept).looked_ahead(found)
    explanation = RoundExplanation(
        found.world,
        found.asked,
        policy,
        found.admissions,
        found.nominations,
        found.candidates,
        found.decision,
        found.leaving,
        found.grown,
        optimiser is not None,
        found.standing_back,
        kept,
    )
    steps = tuple(steps_of(found.world, policy, found.leaving, found.nominations, found.decision, found.grown))
    return RoundAnswer(snapshot, digest, found.world, found.decision, explanation, steps, watched)


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """What a round decided, in two parts: what it does, and why it does no more. The second takes about as long as the first.

    `steps`: all but those that keep something free for gangs that wait. `_policy`: its digest.
    """

    _snapshot: Snapshot
    _policy: str
    _world: Snapshot
    _decision: Decision
    _explanation: RoundExplanation
    steps: tuple[Step, ...]
    _optimiser: MonitoredOptimiser | None

    def deed(self) -> Plan:
        """The plan as far as it has to be known before it is acted on.

        It has no reasons and estimates of jobs that wait, no reservations, and bounds that are merely valid.
        """
        said, certificate = tuple(self._explanation.outcomes()), self._decision.certificate
        return Plan(self._snapshot.digest, self._policy, self.steps, said, certificate)

    def plan(self) -> Plan:
        """The plan as a whole."""
        certified = certifying(self._decision, self._optimiser)
        reservations = (*self._explanation.reservations(), *document_reservations(self._world))
        before = self._snapshot.in_flight.reservations
        reserving = reserving_steps(before, reservations, self._explanation.provided)
        said = tuple(self._explanation.verdicts(reservations))
        return Plan(self._snapshot.digest, self._policy, (*self.steps, *reserving), said, certified())


@dataclass(frozen=True, slots=True)
class _DecidedRound:
    """A round that is decided: what it was decided on, and what becomes of it.

    `asked`: the world in which jobs that leave have been asked to. `standing_back`: jobs that were left out, or did not grow, since
    another would take what they get in the next round, each with that job. `staying`: jobs that were not to leave.
    """

    world: Snapshot
    asked: Snapshot
    admissions: Mapping[JobName, Admission]
    nominations: Nominations
    candidates: Sequence[StartCandidate]
    decision: Decision
    leaving: Sequence[PlannedEviction]
    grown: Sequence[GangGrowth]
    standing_back: Mapping[JobName, JobName]
    staying: frozenset[JobName]

    def serves(self, job: JobName) -> bool:
        """Whether a job runs on, starts or is promised its place."""
        left = {known.job.name for known in self.leaving if known.whole and not known.moves_to}
        running = {known.name for known in self.world.jobs if known.phase == "running"} - left
        return job in running | begun_by(self.decision) | self.nominations.jobs


def _decided(
    snapshot: Snapshot,
    policy: Policy,
    watched: MonitoredOptimiser | None,
    kept: RoundCache,
    back: Mapping[JobName, JobName] = MappingProxyType({}),
    staying: frozenset[JobName] = frozenset(),
) -> _DecidedRound:
    """Decide a round in which some jobs stand back for others, and some do not leave."""
    limited = with_pool_limits(with_manners(foreseen(by_content(snapshot)), policy, kept), policy)
    apart = shrinking_apart(with_document_reservations(limited, policy))
    known = snapshot.in_flight.reservations
    departing = tuple(planned_evictions(departures(apart, policy, kept, known), {job.name: job for job in apart.jobs}))
    departing += tuple(overdue_growths(apart, {known.job.name for known in departing}))
    nominations = nominations_in(with_asked(apart, departing, policy), policy, kept)
    world = kept.settled(nominations.snapshot)
    shares, admissions = standing(world, policy, kept)
    candidates = in_order(competing(world, admissions, nominations.jobs), policy, shares, world.time)
    awaiting = {name for name, admission in admissions.items() if admission.then and not admission.holds}
    candidates, reserved = standing_back(world, policy, candidates, shares, kept, awaiting)
    leaves = frozenset(known.job.name for known in departing)
    decision = decide_with_evictions(world, policy, candidates, shares, watched, leaves, reserved, kept, back, staying)
    jobs = {job.name: job for job in world.jobs}
    asked_now = tuple(known for promise in decision.nominations for known in yielding(promise, jobs))
    asked = with_asked(world, asked_now, policy)
    grown = growths(asked, policy, candidates, decision, back, kept)
    leaving = (*departing, *asked_now)
    return _DecidedRound(world, asked, admissions, nominations, candidates, decision, leaving, grown, back, staying)


@dataclass(frozen=True, slots=True)
class _Foresight:
    """Decides a round again where the next one would undo what it does."""

    snapshot: Snapshot
    policy: Policy
    watched: MonitoredOptimiser | None
    kept: RoundCache

    def looked_ahead(self, found: _DecidedRound) -> _DecidedRound:
        """The round in which no job starts that the next one would evict, and none leaves that the next one would start again, as
        far as others are served all the same.
        """
        after: _DecidedRound | None = None
        for _ in range(LOOKED_AHEAD_MAX):
            if not (begun_by(found.decision) or found.grown):
                break
            after = after or self._next_of(found)
            better = next(
                chain(self._without_vain_starts(found, after), self._without_vain_evictions(found, after)), None
            )
            if better is None:
                break
            found, after = better
        return found

    def _next_of(self, known: _DecidedRound) -> _DecidedRound:
        ahead = settled(self.snapshot, known.decision, known.leaving, known.grown)
        return _decided(ahead, self.policy, self.watched, RoundCache())

    def _again(
        self, back: Mapping[JobName, JobName], staying: frozenset[JobName]
    ) -> tuple[_DecidedRound, _DecidedRound]:
        other = _decided(self.snapshot, self.policy, self.watched, self.kept, back, staying)
        return other, self._next_of(other)

    def _without_vain_starts(
        self, found: _DecidedRound, after: _DecidedRound
    ) -> Iterator[tuple[_DecidedRound, _DecidedRound]]:
        in_line = {candidate.job.name for candidate in found.candidates if candidate.strict}
        vain = begun_in_vain(found.decision, found.grown, after.leaving)
        # In a strict queue others would pass it.
        back = {**found.standing_back, **{name: whom for name, whom in vain.items() if name not in in_line}}
        if len(back) > len(found.standing_back):
            other, later = self._again(back, found.staying)
            if all(other.serves(whom) or later.serves(whom) for whom in back.values()):
                yield other, later

    def _without_vain_evictions(
        self, found: _DecidedRound, after: _DecidedRound
    ) -> Iterator[tuple[_DecidedRound, _DecidedRound]]:
        again = left_in_vain(found.leaving, after.decision)
        before = disturbed(found.leaving, after.leaving)
        for staying in dict.fromkeys((frozenset(again), *(frozenset((name,)) for name in again)) if again else ()):
            other, later = self._again(found.standing_back, found.staying | staying)
            serves = begun_by(found.decision) <= begun_by(other.decision)
            # Which job leaves more than is got for it is settled by what serves others GPU for GPU.
            is_no_more = _gpus_of(other.leaving) <= _gpus_of(found.leaving)
            if serves and is_no_more and disturbed(other.leaving, later.leaving) < before:
                yield other, later


def by_content(snapshot: Snapshot) -> Snapshot:
    """The same world with its nodes in an order that follows from who is on them: of equal places no name chooses."""
    if len(snapshot.nodes) > LOOKED_AHEAD_NODES_MAX:
        return snapshot
    there = defaultdict[NodeName, list[tuple[int, int]]](list)
    for job in snapshot.jobs:
        for task in job.placement:
            there[task.node].append((int(job.submitted_at), task.index))
    nodes = sorted(snapshot.nodes, key=lambda node: (not there[node.name], sorted(there[node.name]), node.name))
    return msgspec.structs.replace(snapshot, nodes=tuple(nodes))


def _gpus_of(leaving: Iterable[PlannedEviction]) -> int:
    """What is given up by those who do not go on elsewhere."""
    return sum(known.gpus for known in leaving if not known.moves_to)


def standing_back(
    snapshot: Snapshot,
    policy: Policy,
    candidates: Sequence[StartCandidate],
    shares: Shares,
    kept: RoundCache | None = None,
    awaiting: Collection[JobName] = (),
) -> tuple[tuple[StartCandidate, ...], Reserved]:
    """The candidates with the reservations that hold them back, and what these keep: documents, and gangs that wait.

    `awaiting`: jobs that are no candidates before their queue has another quota.
    """
    competing_for = {*awaiting, *(candidate.job.name for candidate in candidates)}
    declared = document_reservations(snapshot)
    held = [known for known in snapshot.in_flight.reservations if known.holder in competing_for]
    if not held and not declared:
        return tuple(candidates), {}
    sharing, ends = (
        sharing_of(policy, shares.tree, snapshot.nodes),
        ends_in(snapshot, loans_in(snapshot, policy, shares, kept)),
    )
    room = FreeCapacity.of(snapshot, sharing.domain, pool_rules(policy, snapshot), kept=kept)
    room.reserved = kept_by(declared, room, ends, snapshot.time)
    narrowed = kept_from(candidates, declared, policy, shares.tree, snapshot.time)
    jobs = {job.name: job for job in snapshot.jobs}
    live = [known for known in held if is_live(known, room, jobs[known.holder].spec)]
    for_gangs = kept_for(live, jobs, ends)
    return held_back(narrowed, live, ends, policy, shares, room, snapshot.time), {**room.reserved, **for_gangs}


def standing(
    snapshot: Snapshot, policy: Policy, kept: RoundCache | None = None
) -> tuple[Shares, dict[JobName, Admission]]:
    """Where the queues stand before anything is decided: their shares, and which pending jobs may ever start."""
    kept = RoundCache() if kept is None else kept
    gate = gate_of(snapshot, policy, kept)
    shares = with_past_use(shares_of(snapshot, QueueTree.of(policy), kept), snapshot, policy.scheduling.usage_half_life)
    shares = with_type_weights(shares, weights_of(policy.scheduling.gpu_types))
    admissions = {job.name: gate.admit(job) for job in snapshot.pending}
    # What a job was promised counts as held already.
    waiting = competing(snapshot, admissions, {intent.job for intent in snapshot.in_flight.nominations})
    shares = with_fair_shares(shares, live_gpus(snapshot, kept), demand_of(waiting))
    shares = with_host_dues(shares, snapshot, policy, waiting, kept)
    shares = with_precedence(shares, snapshot, policy, waiting)
    return with_user_reclaim(shares, snapshot, policy, waiting), admissions


def gate_of(snapshot: Snapshot, policy: Policy, kept: RoundCache) -> Gate:
    """What judges whether jobs could ever start under a policy on the nodes of a snapshot."""
    nodes = nominal_nodes(snapshot.nodes, pool_rules(policy, snapshot).rules, kept)
    built = policy, nodes, snapshot.node_sets
    return Gate(kept.results("emptied", *built).get(None, lambda: Emptied(*built)), kept)


def competing(
    snapshot: Snapshot, admissions: dict[JobName, Admission], promised: Collection[JobName] = ()
) -> list[tuple[Job, tuple[Option, ...]]]:
    """The pending jobs that take part in the round: they could start one day, no queue holds them back, nothing is promised."""
    judged = [(job, admissions[job.name]) for job in snapshot.pending if job.name not in promised]
    return [(job, admission.options) for job, admission in judged if admission.options and not admission.holds]
