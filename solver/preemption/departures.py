"""Evictions that a rule asks for: a queue drains, a max was lowered below what runs, lent devices are to be given back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from solver.model.cluster import GpuType
from solver.model.inflight import ConvergenceClock, Reservation, declared_name
from solver.model.parts import owner_of, place_in_gang
from solver.model.quantities import MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from solver.policy.harm import Convergence, Rule
from solver.policy.policy import Policy, PriorityClass
from solver.policy.tree import QueueTree, QuotaLine
from solver.policy.windows import policy_at
from solver.preemption.eviction_rules import EvictionRules
from solver.queueing.entry import draining
from solver.queueing.loans import ends_by, loans_in
from solver.quota.entitlement import Shares, shares_of
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.quota.users import HostLine
from solver.quota.victims import STANDINGS, Holder, gangs_first, holders_of, protected, unsaved_ms


@dataclass(frozen=True, slots=True)
class RuleEviction:
    """A job, or a part of one, that a rule of `queue` makes leave, and what that throws away, in GPU-seconds.

    `to`: the gang, or the Reservation document, for which what it holds is reserved.
    """

    holder: Holder
    rule: Rule
    queue: QueueName
    lost_gpu_s: float
    to: JobName | None = None

    @property
    def name(self) -> JobName:
        """The job's, or that of a part of it."""
        return self.holder.job.name

    @property
    def is_part(self) -> bool:
        """Whether the gang goes on without it."""
        return owner_of(self.name) != self.name


def departures(
    snapshot: Snapshot,
    policy: Policy,
    kept: RoundCache | None = None,
    known: Collection[Reservation] | None = None,
) -> tuple[RuleEviction, ...]:
    """Who is to be asked to leave in this round, at most `evictions.perRound` jobs; the least harm first.

    `known`: what was reserved before this round, None: all that is. No job leaves for GPUs that a document has only just chosen.
    """
    known = snapshot.in_flight.reservations if known is None else known
    if not _any_reason(snapshot, policy):
        return ()
    tree = QueueTree.of(policy)
    shares = shares_of(snapshot, tree, kept)
    rules = EvictionRules.of(snapshot, policy, shares, kept)
    drained = list(_drained(snapshot, policy, rules))
    leaves = {owner_of(one.name) for one in drained}
    returned = [
        one
        for one in _returned(_as_known(snapshot, known), policy, rules, shares, kept)
        if owner_of(one.name) not in leaves
    ]
    gone = [(one.holder.job.spec.queue, one.holder.charge) for one in (*drained, *returned)]
    leaving = {one.name for one in (*drained, *returned)}
    converging = _converging(snapshot, policy, rules, shares.without(gone), leaving)
    return _of_first_jobs((*_least_loss_first(drained), *returned, *converging), policy.scheduling.evictions.per_round)


def _as_known(snapshot: Snapshot, known: Collection[Reservation]) -> Snapshot:
    """The world in which documents keep only what they kept before."""
    before = {held.holder: {device for task in held.tasks for device in task.devices} for held in known}

    def as_known(held: Reservation) -> Reservation:
        if declared_name(held.holder) is None:
            return held
        mine = before.get(held.holder, set())
        return msgspec.structs.replace(held, tasks=tuple(task for task in held.tasks if mine.issuperset(task.devices)))

    reserved = tuple(map(as_known, snapshot.in_flight.reservations))
    in_flight = msgspec.structs.replace(snapshot.in_flight, reservations=reserved)
    return msgspec.structs.replace(snapshot, in_flight=in_flight)


def _least_loss_first(drained: Iterable[RuleEviction]) -> list[RuleEviction]:
    """Gangs by what is lost with all their parts."""
    lost: dict[JobName, float] = defaultdict(float)
    for known in drained:
        lost[owner_of(known.name)] += known.lost_gpu_s
    return sorted(drained, key=lambda known: (lost[owner_of(known.name)], known.name))


def _of_first_jobs(found: Sequence[RuleEviction], most: int | None) -> tuple[RuleEviction, ...]:
    """Whatever leaves of the first jobs: an elastic gang is one job in all its parts."""
    jobs = list(dict.fromkeys(owner_of(known.name) for known in found))[:most]
    return tuple(known for known in found if owner_of(known.name) in jobs)


def _any_reason(snapshot: Snapshot, policy: Policy) -> bool:
    drains = any(queue.stop_policy == "HoldAndDrain" for queue in policy.queues)
    lends = any(not held.is_declared for held in snapshot.in_flight.reservations)
    lends = lends or any(document.evict != "none" for document in policy.reservations)
    return drains or lends or any(clock.deadline <= snapshot.time for clock in snapshot.in_flight.convergence)


def _drained(snapshot: Snapshot, policy: Policy, rules: EvictionRules) -> Iterator[RuleEviction]:
    for holder in holders_of(snapshot, policy, ("starting", "running"), otherwise=PriorityClass("")):
        queue = draining(rules.tree, holder.job.spec.queue)
        if queue is not None and holder.job.leaves != "not":
            yield RuleEviction(holder, "drain", queue.name, rules.lost_gpu_s(holder))


def _returned(
    snapshot: Snapshot, policy: Policy, rules: EvictionRules, shares: Shares, kept: RoundCache | None
) -> Iterator[RuleEviction]:
    """Who runs on what is reserved for others, in time for all of it to be free when their gangs start."""
    queue_of = {job.name: job.spec.queue for job in snapshot.pending}
    for name, held in sorted(loans_in(snapshot, policy, shares, kept).items()):
        parts = [one for one in rules.holders if owner_of(one.job.name) == name and one.job.leaves != "not"]
        document = policy.reservation(held.holder)
        for holder in parts:
            job, known = holder.job, holder.priority_class
            queue = queue_of[held.holder] if document is None else document.queue or job.spec.queue
            due = snapshot.time.after(policy.grace(job)) >= held.start
            if due and not ends_by(job, held.start) and not protected(job, known.protection, snapshot.time):
                yield RuleEviction(holder, "return", queue, rules.lost_gpu_s(holder), held.holder)


def _converging(
    snapshot: Snapshot, policy: Policy, rules: EvictionRules, shares: Shares, leaving: set[JobName]
) -> Sequence[RuleEviction]:
    """The least harmful that suffice, clock by clock; without those that can be spared in the end."""
    overdue = [clock for clock in snapshot.in_flight.convergence if clock.deadline <= snapshot.time]
    chosen: dict[JobName, RuleEviction] = {}

    before = [holder for holder in rules.holders if holder.job.name in leaving]

    def excess(clock: ConvergenceClock, without: Iterable[RuleEviction]) -> int:
        return _excess(clock, shares, [known.holder for known in without], before)

    for clock in overdue:
        for holder in _in_order_of_harm(clock, policy, rules):
            if excess(clock, chosen.values()) <= 0:
                break
            if holder.job.name not in leaving:
                for part in rules.whole(holder):
                    chosen.setdefault(
                        part.job.name, RuleEviction(part, "converge", clock.queue, rules.lost_gpu_s(part))
                    )
    helped = [clock for clock in overdue if excess(clock, chosen.values()) <= 0]
    for known in gangs_first(list(chosen.values())):
        if known.is_part and owner_of(known.name) in chosen:
            continue  # it leaves with its gang
        others = [other for other in chosen.values() if other is not known]
        mine = [clock for clock in overdue if _held_of(known.holder, clock) and known.queue == clock.queue]
        if all(clock in helped for clock in mine) and all(excess(clock, others) <= 0 for clock in helped):
            del chosen[known.name]
    return list(chosen.values())


def _excess(clock: ConvergenceClock, shares: Shares, gone: Sequence[Holder], before: Sequence[Holder]) -> int:
    """By how much its limit is broken once these have left. `before`: what leaves by other rules, which `shares` are without."""
    if clock.resource is None:
        left = shares.without([(holder.job.spec.queue, holder.charge) for holder in gone])
        return left.used.get(QuotaLine(clock.queue, clock.gpu_type), 0) - clock.limit
    below = (holder for holder in (*gone, *before) if clock.queue in shares.tree.path(holder.job.spec.queue))
    used = shares.users.used.get(HostLine(clock.queue, clock.resource), 0)
    return used - sum(_held_of(holder, clock) for holder in below) - clock.most


def _in_order_of_harm(clock: ConvergenceClock, policy: Policy, rules: EvictionRules) -> list[Holder]:
    """Who may be made to leave for a clock: borrowed work first, then by base priority, then by what is lost.

    For a max of CPU or memory all work without GPUs comes before any that has some.
    """
    evict = convergence_of(policy, rules.tree, clock.queue).evict
    found = []
    for holder in rules.holders:
        path = rules.tree.path(holder.job.spec.queue)
        if clock.queue not in path or not _held_of(holder, clock) or holder.job.leaves == "not":
            continue
        standing = rules.standing_on(holder, path[: path.index(clock.queue) + 1])
        may_leave = holder.priority_class.preemptible or (holder.priority_class.may_borrow and standing == "borrowed")
        if evict == "all" or (evict == "preemptible" and may_leave):
            rank = rules.ranks[holder.job.spec.queue, holder.base_priority]
            last_first = -place_in_gang(holder.job.name)
            beside = _held_of(holder, clock) if clock.resource else 0
            has_gpus = bool(clock.resource and holder.gpus)
            lost = (rules.lost_gpu_s(holder), unsaved_ms(holder.job, rules.now) if clock.resource else 0)
            size = (holder.gpus, beside, last_first, holder.job.name)
            key = (has_gpus, STANDINGS.index(standing), rank, *lost, *size)
            found.append((key, holder))
    return [holder for _, holder in sorted(found, key=lambda known: known[0])]


def _held_of(holder: Holder, clock: ConvergenceClock) -> int:
    """What a holder has of what a clock is about, whatever its queue."""
    if clock.resource is None:
        return holder.charge.get(clock.gpu_type, 0)
    beside = sum_of(shape for _, shape in tasks_with_shapes(holder.job))
    return beside.cpu if clock.resource == "cpu" else beside.memory


def convergence_of(policy: Policy, tree: QueueTree, queue: QueueName) -> Convergence:
    """How lowered limits of a queue heal: what the nearest queue on its path says, else the cluster."""
    said = (tree.by_name[name].convergence for name in tree.path(queue))
    return next((known for known in said if known is not None), policy.scheduling.convergence)


def clocks_of(snapshot: Snapshot, policy: Policy, commit: str) -> tuple[ConvergenceClock, ...]:
    """The clocks that run from now on, of those that ran before and for limits that `commit` is the first to break.

    A limit lowered again has a clock of its own, and the first keeps its deadline; a limit raised in part keeps the
    deadline too; one that is kept again, or that nobody is made to leave for, has no clock. A limit that falls at the end of a
    window begins to count with the first snapshot after that.
    """
    policy = policy_at(policy, snapshot.time)
    tree = QueueTree.of(policy)
    shares = shares_of(snapshot, tree)
    running: list[ConvergenceClock] = []
    for line, queue_max in sorted(shares.max.items()):
        convergence = convergence_of(policy, tree, line.queue)
        if shares.used.get(line, 0) > queue_max and convergence.evict != "none":
            lines = [c for c in snapshot.in_flight.convergence if c.resource is None]
            known = [c for c in lines if (c.queue, c.gpu_type) == (line.queue, line.gpu_type)]
            fresh = ConvergenceClock(
                commit, line.queue, line.gpu_type, MilliGpu(queue_max), snapshot.time.after(convergence.within)
            )
            running += _still_running([*known, fresh], shares.used[line])
    for host, most in sorted(shares.users.host_max.items()):
        convergence, used = convergence_of(policy, tree, host.queue), shares.users.used.get(host, 0)
        if used > most and convergence.evict != "none":
            known = [c for c in snapshot.in_flight.convergence if (c.queue, c.resource) == (host.queue, host.resource)]
            until = snapshot.time.after(convergence.within)
            fresh = ConvergenceClock(commit, host.queue, GpuType(""), MilliGpu(0), until, host.resource, most)
            running += _still_running([*known, fresh], used)
    return tuple(sorted(running, key=msgspec.structs.astuple))


def _still_running(clocks: Sequence[ConvergenceClock], used: int) -> Iterator[ConvergenceClock]:
    """Of every limit still broken the clock that ends first; no clock asks for more than the limit as it is now, the last one's."""
    first: dict[int, ConvergenceClock] = {}
    for clock in sorted(clocks, key=lambda clock: clock.deadline):
        asks = max(clock.most, clocks[-1].most)
        if used > asks:
            said = {"limit": MilliGpu(asks)} if clock.resource is None else {"amount": asks}
            first.setdefault(asks, msgspec.structs.replace(clock, **said))
    yield from first.values()
