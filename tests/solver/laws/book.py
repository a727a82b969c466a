"""The rules by arithmetic of its own: what each queue is due, which work is borrowed, who may leave for whom.

It shares nothing with `solver` but the data that go in: one GPU type, whole GPUs and parts of them, queues in a tree. All amounts
are thousandths of a GPU. Where the rules leave something open, every reading of them is kept (`Book.divisions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations, islice, product
from typing import Literal, NamedTuple, TypeVar

from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, TaskPlacement
from solver.policy.policy import Policy

GPU = 1000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
DIVISIONS_MAX = 64

Said = TypeVar("Said")

Standing = Literal["inside", "straddles", "borrowed"]
STANDINGS: tuple[Standing, ...] = ("inside", "straddles", "borrowed")


class Spot(NamedTuple):
    """Where one task is, and how much of each of its GPUs it has."""

    number: int
    node: str
    gpus: tuple[str, ...]
    share: int

    @property
    def milli(self) -> int:
        """What its queue is charged."""
        return self.share * len(self.gpus)


class Part(NamedTuple):
    """What can leave by itself: what a job can't do without (number 0), or one of its tasks beyond that."""

    job: str
    number: int
    spots: tuple[Spot, ...]

    @property
    def milli(self) -> int:
        """What its queue is charged."""
        return sum(spot.milli for spot in self.spots)


@dataclass(frozen=True)
class Worker:
    """A job as the rules see it. `unit`: what a task asks for. `promised`: it waits, and its GPUs are its own already.

    `preempts_from`: before that nobody leaves for it, but for a guarantee that is overdue.
    """

    name: str
    queue: str
    value: int
    preemptible: bool
    may_borrow: bool
    unit: int
    least: int
    most: int
    submitted: int
    since: int | None
    spots: tuple[Spot, ...]
    protected_until: int
    backs_off_until: int
    promised: bool = False
    preempts_from: int = 0

    @property
    def milli(self) -> int:
        """What its queue is charged for what it holds."""
        return sum(spot.milli for spot in self.spots)

    @property
    def need(self) -> int:
        """What it needs to start."""
        return self.unit * self.least

    @property
    def runs(self) -> bool:
        """It holds its GPUs by running on them."""
        return bool(self.spots) and not self.promised

    @property
    def parts(self) -> tuple[Part, ...]:
        """What it can't do without, then each task beyond, in the order of their numbers."""
        if not self.preemptible or self.promised or len(self.spots) <= self.least:
            return (Part(self.name, 0, self.spots),) if self.spots else ()
        spots = sorted(self.spots)
        surplus = [Part(self.name, spot.number, (spot,)) for spot in spots[self.least :]]
        return (Part(self.name, 0, tuple(spots[: self.least])), *surplus)


@dataclass(frozen=True)
class Book:
    """A cluster, its queues and its jobs at one instant."""

    now: int
    parent: Mapping[str, str | None]
    weight: Mapping[str, int]
    stated: Mapping[str, int | None]
    most: Mapping[str, int | None]
    reclaims: Mapping[str, bool]
    nodes: Mapping[str, tuple[str, ...]]
    jobs: Mapping[str, Worker]
    min_gain: Fraction
    moves: int
    reclaim_within: Mapping[str, int]
    restart_ms: int
    shared: frozenset[str] = frozenset()
    within: Mapping[str, str] = field(default_factory=dict)
    not_for_shares: frozenset[str] = frozenset()
    below_value: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy) -> Book:
        """What a round is shown."""
        scheduling = policy.scheduling
        known = {str(queue.name): queue for queue in policy.queues}
        quota = {name: queue.quota[0] if queue.quota else None for name, queue in known.items()}
        parent = {name: str(queue.parent) if queue.parent else None for name, queue in known.items()}
        reclaim = _nearest({name: queue.reclaim for name, queue in known.items()}, parent)
        within = _nearest({name: queue.reclaim_within for name, queue in known.items()}, parent)
        within_queues = _nearest({name: queue.preempt_within for name, queue in known.items()}, parent)
        belows = _nearest({name: queue.reclaim_below for name, queue in known.items()}, parent)
        for_what = _nearest({name: queue.reclaimed_for for name, queue in known.items()}, parent)
        delays = _nearest({name: queue.preempt_after for name, queue in known.items()}, parent)
        return cls(
            int(snapshot.time),
            parent,
            {name: queue.weight for name, queue in known.items()},
            {name: entry.guaranteed if entry else None for name, entry in quota.items()},
            {name: entry.max if entry else None for name, entry in quota.items()},
            {name: (mode or scheduling.reclaim) == "fair-share" for name, mode in reclaim.items()},
            {str(node.name): tuple(str(gpu.id) for gpu in node.gpus) for node in snapshot.nodes},
            {str(job.name): _worker(job, snapshot, policy, delays) for job in snapshot.jobs},
            Fraction(scheduling.evictions.min_gain).limit_denominator(1000),
            scheduling.evictions.moves_per_round,
            {name: int(nearest or scheduling.reclaim_within) for name, nearest in within.items()},
            int(scheduling.evictions.restart_cost),
            frozenset(name for name, entry in quota.items() if entry and entry.shared),
            {name: mode or "lower-priority" for name, mode in within_queues.items()},
            frozenset(name for name, mode in for_what.items() if mode == "guaranteed"),
            {name: value for name, value in belows.items() if value is not None},
        )

    # The tree.

    def path(self, queue: str) -> tuple[str, ...]:
        """The queue and those above it."""
        above = self.parent[queue]
        return (queue,) if above is None else (queue, *self.path(above))

    def below(self, parent: str | None) -> list[str]:
        """The queues right below one, or the roots."""
        return sorted(name for name, above in self.parent.items() if above == parent)

    def apart(self, queue: str, other: str) -> tuple[str, ...]:
        """The queues on the path of the first that are not on the path of the other."""
        shared = self.path(other)
        return tuple(name for name in self.path(queue) if name not in shared)

    def ancestor(self, queue: str, other: str) -> str | None:
        """The nearest queue that both have on their paths; None: the cluster."""
        return next((name for name in self.path(queue) if name in self.path(other)), None)

    # What is held and free.

    @cached_property
    def waiting(self) -> list[Worker]:
        """Jobs that wait and are promised nothing, the oldest first."""
        found = [job for job in self.jobs.values() if not job.spots]
        return sorted(found, key=lambda job: (job.submitted, job.name))

    @cached_property
    def running(self) -> list[Worker]:
        """Jobs that run."""
        return sorted((job for job in self.jobs.values() if job.runs), key=lambda job: job.name)

    @cached_property
    def used(self) -> Mapping[str, int]:
        """What the jobs of each queue, and those below it, hold or are promised."""
        return self.added_up((job.queue, job.milli) for job in self.jobs.values())

    @cached_property
    def fixed(self) -> Mapping[str, int]:
        """What of that is not preemptible."""
        return self.added_up((job.queue, job.milli) for job in self.jobs.values() if not job.preemptible)

    def added_up(self, charges: Iterable[tuple[str, int]]) -> Counter[str]:
        """Charges of queues, and of all above them."""
        total = Counter[str]()
        for queue, milli in charges:
            for name in self.path(queue):
                total[name] += milli
        return total

    @cached_property
    def capacity(self) -> int:
        """All that there is."""
        return GPU * sum(len(gpus) for gpus in self.nodes.values())

    # Guarantees and shares.

    @cached_property
    def guaranteed(self) -> Mapping[str, int]:
        """As stated; left out, the weighted part of what the parent has not given away, in whole GPUs, rounded down."""
        found = dict[str, int]()

        def divide(parent: str | None, milli: int) -> None:
            children = self.below(parent)
            unset = [name for name in children if self.stated[name] is None]
            rest = max(0, milli - sum(self.stated[name] or 0 for name in children))
            for name in children:
                said, weights = self.stated[name], sum(self.weight[one] for one in unset)
                share = rest // GPU * self.weight[name] // weights * GPU if said is None else said
                found[name] = min(milli, share)
                divide(name, found[name])

        divide(None, self.capacity)
        return found

    def admissible(self, job: Worker) -> bool:
        """Whether a job could be placed on the empty cluster, under every max, and inside guarantees if it has to be."""
        places = sum(_places(len(gpus), job.unit) for gpus in self.nodes.values())
        limits = [self.most[name] for name in self.path(job.queue)]
        allowed = all(limit is None or job.need <= limit for limit in limits)
        inside = all(job.need <= self.guaranteed[name] for name in self.path(job.queue))
        return places >= job.least and allowed and (job.preemptible or job.may_borrow or inside)

    @cached_property
    def divisions(self) -> tuple[Mapping[str, int], ...]:
        """Every division into fair shares that the rules allow: they leave open who gets the odd GPU that nobody holds."""
        found = dict[tuple[tuple[str, int], ...], Mapping[str, int]]()
        for demand in self._demands():
            for division in islice(self._divided(None, self.capacity, demand), DIVISIONS_MAX):
                found.setdefault(tuple(sorted(division.items())), division)
        return tuple(found.values())

    def _demands(self) -> Iterator[Mapping[str, int]]:
        """What the jobs of each queue want: running elastic ones what they hold, or all that they could."""
        for full in (False, True):
            own = Counter[str]()
            for job in self.jobs.values():
                if job.spots:
                    own[job.queue] += max(job.milli, job.unit * job.most if full else 0)
                elif self.admissible(job):
                    own[job.queue] += job.unit * job.most
            yield self._summed(own)

    def _summed(self, own: Mapping[str, int]) -> Mapping[str, int]:
        """Rounded up to whole GPUs at the leaves, and nowhere above a max."""
        demand = dict[str, int]()

        def add(name: str) -> int:
            children = self.below(name)
            total = sum(map(add, children)) if children else -(-own.get(name, 0) // GPU) * GPU
            limit = self.most[name]
            demand[name] = total if limit is None else min(total, limit)
            return demand[name]

        for root in self.below(None):
            add(root)
        return demand

    def _divided(self, parent: str | None, milli: int, demand: Mapping[str, int]) -> Iterator[dict[str, int]]:
        children = self.below(parent)
        begun = {name: min(self.guaranteed[name], demand[name]) for name in children}
        for shares in self._shared_out(begun, milli - sum(begun.values()), demand):
            deeper = [list(islice(self._divided(name, shares[name], demand), 8)) for name in children]
            for chosen in product(*deeper):
                yield {key: value for part in (shares, *chosen) for key, value in part.items()}

    def _shared_out(self, shares: dict[str, int], rest: int, demand: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """What guarantees leave goes by weight to those who want more: whole GPUs, and the odd ones as `_odd` says, or by weight
        once more.
        """
        hungry = [name for name in shares if shares[name] < demand[name]]
        if rest < GPU or not hungry:
            yield shares
            return
        weights = sum(self.weight[name] for name in hungry)
        exact = {name: Fraction(rest // GPU * self.weight[name], weights) for name in hungry}
        given = {name: min(int(exact[name]) * GPU, demand[name] - shares[name]) for name in hungry}
        after = shares | {name: shares[name] + given[name] for name in hungry}
        left = rest - sum(given.values())
        if any(given.values()):
            yield from self._shared_out(after, left, demand)
        if left >= GPU and all(given[name] == int(exact[name]) * GPU for name in hungry):
            remainders = {name: exact[name] % 1 for name in hungry if after[name] < demand[name]}
            for lucky in self._odd(after, remainders, left // GPU):
                more = after | {name: min(after[name] + GPU, demand[name]) for name in lucky}
                yield from self._shared_out(more, left - sum(more[name] - after[name] for name in lucky), demand)

    def _odd(
        self, shares: Mapping[str, int], remainders: Mapping[str, Fraction], count: int
    ) -> Iterator[tuple[str, ...]]:
        """Who may get an odd GPU: who holds it keeps it, by itself or among equal remainders; beyond that it is open."""
        holds = {name: self.used[name] > shares[name] for name in remainders}
        for chosen in combinations(sorted(remainders), min(count, len(remainders))):
            others = [name for name in remainders if name not in chosen]
            if _in_order(chosen, others, lambda name: (not holds[name],)) or _in_order(
                chosen, others, lambda name: (-remainders[name], not holds[name])
            ):
                yield chosen

    # Lines.

    @cached_property
    def lines(self) -> Mapping[str, Mapping[Part, Standing]]:
        """In each queue, where all that run below it stand towards its guarantee."""
        found = dict[str, Mapping[Part, Standing]]()

        def fill(name: str) -> None:
            for child in self.below(name):
                fill(child)
            found[name] = dict(self._line(name, found))

        for root in self.below(None):
            fill(root)
        return found

    def _line(self, name: str, below: Mapping[str, Mapping[Part, Standing]]) -> Iterator[tuple[Part, Standing]]:
        """What is inside below stands first; then not preemptible work, the higher value, the earlier start."""
        children = self.below(name)

        def place(part: Part) -> tuple[int, bool, int, int, str, int]:
            job = self.jobs[part.job]
            rank = next((STANDINGS.index(below[child][part]) for child in children if part in below[child]), 0)
            return rank, job.preemptible, -job.value, job.since or 0, job.name, part.number

        members = [part for job in self.running if name in self.path(job.queue) for part in job.parts]
        left = self.guaranteed[name]
        for part in sorted(members, key=place):
            fits, whole = part.milli <= left, not self.jobs[part.job].preemptible
            yield part, "inside" if fits else "straddles" if left > 0 and not whole else "borrowed"
            left -= part.milli if fits or not whole else 0

    def standing(self, part: Part, towards: str) -> Standing:
        """The most protected standing on the levels that the part's queue does not share with another."""
        found = [self.lines[name][part] for name in self.apart(self.jobs[part.job].queue, towards)]
        return min(found, key=STANDINGS.index, default="borrowed")

    # Rights.

    def yields_by_value(self, part: Part, taker: Worker) -> bool:
        """Whether what a job borrowed is of a value that the taker's queue takes back; of queues that say nothing of shares. All
        values compare in worlds where any queue says so.
        """
        job = self.jobs[part.job]
        below = self.below_value.get(taker.queue)
        if below is None or job.queue in self.not_for_shares or self.standing(part, taker.queue) != "borrowed":
            return False
        return job.value < min(below, taker.value)

    def is_overdue(self, job: Worker) -> bool:
        """It has waited for so long that nothing may delay its guarantee."""
        return self.now - job.submitted >= self.reclaim_within[job.queue]

    def is_early(self, job: Worker) -> bool:
        """It has to wait on before others leave for it."""
        return self.now < job.preempts_from

    def is_protected(self, job: Worker) -> bool:
        """It may not be evicted yet, by its class."""
        return self.now < job.protected_until

    def lower(self, taker: Worker) -> list[Part]:
        """What of its own queue yields to a job by value: lower jobs, and tasks beyond the minima of those that are no higher; by
        age also newer ones of its value, where the queue says so.
        """
        return [
            part
            for job in self.running
            if job.queue == taker.queue and job.preemptible and self.within.get(job.queue) != "never"
            for part in job.parts
            if job.value < taker.value or (job.value == taker.value and (part.number or self.is_newer(job, taker)))
        ]

    def is_newer(self, job: Worker, taker: Worker) -> bool:
        """Whether a job came after another of its queue, in which the older goes before."""
        return self.within.get(job.queue) == "lower-or-newer" and job.submitted > taker.submitted

    def has_room(self, job: Worker, milli: int, leaving: Iterable[Part] = ()) -> bool:
        """Whether no max on its path forbids so much more, once these have left."""
        gone = self.added_up((self.jobs[part.job].queue, part.milli) for part in leaving)
        limits = ((name, self.most[name]) for name in self.path(job.queue))
        return all(limit is None or self.used[name] - gone[name] + milli <= limit for name, limit in limits)

    def is_inside(self, job: Worker, levels: Iterable[str], leaving: Iterable[Part] = ()) -> bool:
        """Whether it lies inside these guarantees beside all that is held, but for work of other queues that leaves."""
        others = ((self.jobs[part.job].queue, part.milli) for part in leaving)
        gone = self.added_up((queue, milli) for queue, milli in others if queue != job.queue)
        return all(self.used[name] - gone[name] + job.need <= self.guaranteed[name] for name in levels)

    def common_levels(self, job: Worker, leaving: Iterable[Part] = ()) -> tuple[str, ...]:
        """The queue above a job's that shares its guarantee, and those above that; () where there is none, or where some leave that
        are below it themselves, or where the job may not borrow.
        """
        path = self.path(job.queue)
        sharing = next((name for name in reversed(path[1:]) if name in self.shared), None)
        others = {self.jobs[part.job].queue for part in leaving} - {job.queue}
        if sharing is None or any(sharing in self.path(queue) for queue in others):
            return ()
        may_borrow = (job.preemptible or job.may_borrow) and self.now >= job.backs_off_until
        return path[path.index(sharing) :] if may_borrow else ()

    def is_in_common(self, job: Worker, leaving: Iterable[Part] = ()) -> bool:
        """Whether it lies inside what a queue above shares, beside all that is held, but for what leaves."""
        levels = self.common_levels(job, leaving)
        return bool(levels) and self.is_inside(job, levels, leaving)

    def might_be_in_common(self, job: Worker, leaving: Iterable[Part] = ()) -> bool:
        """Whether some reading has it so: once all has left below that queue that does."""
        levels = self.common_levels(job)
        gone = self.added_up((self.jobs[part.job].queue, part.milli) for part in leaving)
        return bool(levels) and self.used[levels[0]] - gone[levels[0]] + job.need <= self.guaranteed[levels[0]]

    def is_inside_before_lower(self, job: Worker) -> bool:
        """Whether it lies inside every guarantee on its path if lower work of its queue stands behind it."""
        lower = sum(part.milli for part in self.lower(job))
        return all(self.used[name] - lower + job.need <= self.guaranteed[name] for name in self.path(job.queue))

    def may_start(self, job: Worker) -> bool:
        """Whether its class lets it start on what is free: what can't be preempted or lent stays inside guarantees."""
        return job.preemptible or job.may_borrow or self._is_beside_fixed(job)

    def _is_beside_fixed(self, job: Worker) -> bool:
        """Whether it lies inside guarantees beside what is not preemptible."""
        return all(self.fixed[name] + job.need <= self.guaranteed[name] for name in self.path(job.queue))

    def is_entitled(self, job: Worker) -> bool:
        """Whether it is inside its guarantees by any reading that the rules are sure of."""
        fixed = not job.preemptible and not job.may_borrow
        inside = self.is_inside(job, self.path(job.queue)) or self.is_inside_before_lower(job)
        return inside or (fixed and self.may_start(job))

    def might_be_entitled(self, job: Worker, leaving: Iterable[Part] = ()) -> bool:
        """Whether some reading has it inside the guarantee of its own queue: once work there has left, and before lower work; or
        beside not preemptible work alone, if it is such.
        """
        own = [part for part in leaving if self.jobs[part.job].queue == job.queue]
        gone = sum(part.milli for part in {*own, *self.lower(job)})
        inside = self.used[job.queue] - gone + job.need <= self.guaranteed[job.queue]
        return inside or self.is_entitled(job) or (not job.preemptible and self._is_beside_fixed(job))

    def lost(self, job: Worker, milli: int) -> Fraction:
        """GPU-seconds that are thrown away if so much of a running job leaves."""
        ran = max(0, self.now - (self.now if job.since is None else job.since))
        return Fraction(milli * (ran + self.restart_ms), GPU * 1000)

    def with_changes(self, joins: Iterable[str], leaving: Iterable[Part]) -> Book:
        """The same once some have left, and some that wait hold what they need: for sums alone, nobody says where."""
        gone, jobs = set(leaving), dict(self.jobs)
        for name in {part.job for part in gone}:
            stays = tuple(spot for part in jobs[name].parts if part not in gone for spot in part.spots)
            jobs[name] = replace(jobs[name], spots=stays)
        for name in joins:
            held = tuple(Spot(number, "", (f"{name}/{number}",), jobs[name].unit) for number in range(jobs[name].least))
            jobs[name] = replace(jobs[name], spots=held, promised=True)
        return replace(self, jobs=jobs)


def improves(before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> bool:
    """Whether the least served have more: ascending vectors of min(use, fair share) / fair share."""

    def served(pairs: Sequence[tuple[int, int]]) -> list[Fraction]:
        return sorted(Fraction(min(use, fair), fair) if fair > 0 else Fraction(1) for use, fair in pairs)

    return served(after) > served(before)


def _in_order(chosen: Iterable[str], others: Iterable[str], key: Callable[[str], tuple[Fraction | bool, ...]]) -> bool:
    """Whether nobody who was left out comes before somebody who was chosen."""
    left_out = [key(other) for other in others]
    return all(key(one) <= other for one in chosen for other in left_out)


def _nearest(said: Mapping[str, Said | None], parent: Mapping[str, str | None]) -> dict[str, Said | None]:
    """What each queue says, or the nearest above it that says something."""

    def of(name: str | None) -> Said | None:
        return None if name is None else of(parent[name]) if said[name] is None else said[name]

    return {name: of(name) for name in said}


def _places(gpus: int, unit: int) -> int:
    """Tasks for which a node has room when it is empty."""
    return gpus // (unit // GPU) if unit >= GPU else gpus * (GPU // unit)


def _worker(job: Job, snapshot: Snapshot, policy: Policy, delays: Mapping[str, Duration | None]) -> Worker:
    (group,) = job.spec.task_groups
    known = policy.priority_class(job)
    assert known is not None
    promised = next(
        (i for i in snapshot.in_flight.intents if i.kind == "nominate" and i.job == job.name and not job.placement),
        None,
    )
    protection, began = known.protection, job.started_at
    until = (began + protection.min_runtime) if began is not None else 0
    if job.evicted_at:
        until = max(until, job.evicted_at[-1] + protection.cool_down)
        lately = [at for at in job.evicted_at if at + DAY_MS > snapshot.time]
        if protection.evictions_per_day is not None and len(lately) >= protection.evictions_per_day:
            until = max(until, lately[-protection.evictions_per_day] + DAY_MS)
    delay = delays[job.spec.queue] if known.preempt_after is None else known.preempt_after
    first = policy.scheduling.evictions.back_off
    rests = min(first * 2 ** (len(job.evicted_at) - 1), max(first, HOUR_MS)) if job.evicted_at else 0
    return Worker(
        str(job.name),
        str(job.spec.queue),
        known.value,
        known.preemptible,
        known.may_borrow,
        int(group.shape.cost),
        group.least,
        group.replicas,
        int(job.submitted_at),
        None if began is None else int(began),
        tuple(map(spot_of, promised.tasks if promised else job.placement)),
        int(until),
        int(job.evicted_at[-1] + rests) if job.evicted_at else int(job.submitted_at),
        promised is not None,
        max([job.submitted_at, *job.evicted_at]) + delay if delay else 0,
    )


def spot_of(task: TaskPlacement) -> Spot:
    """Where a task is."""
    share = GPU if task.share is None else int(task.share)
    return Spot(task.index, str(task.node), tuple(map(str, task.devices)), share)
