"""The best first round of a very tiny world, by trying everything together: which jobs start, leave, shrink and move, and where.

First the GPUs of jobs that lie inside guarantees, by the rank of their value; then the harm by which these are served; then the
GPUs of jobs inside fair shares, and the harm by which those are. A decision counts only where every reading of the rules allows
it, and does less harm than a plan only where every reading of the order of harm says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count, product
from typing import NamedTuple

import msgspec

from tests.solver.laws.best import (
    MOVES_TRIED,
    Way,
    can_move,
    candidates,
    find_places,
    fits,
    free_of,
    may_take,
    may_take_for_share,
    ranks_of,
    sets_of,
    tasks_of,
)
from tests.solver.laws.book import Book, Part, Worker
from tests.solver.laws.generator import drawn
from tests.solver.laws.harm import Harm
from tests.solver.laws.judge import moved_in
from tests.solver.laws.loop import Decide, Round
from tests.solver.laws.worlds import World

NODES_MAX = 3
JOBS_MAX = 6
ABOUT = 1.07
"""Of two sets of about as many GPUs the order of jobs may decide."""

Shared = Mapping[str, Way]
"""By job that is served, what leaves and moves for it."""


def very_tiny(seed: int = 1) -> Iterator[tuple[int, World]]:
    """Worlds of at most three nodes and six jobs of which two wait or more, with their numbers."""
    for number in count():
        world = drawn(number, seed)
        jobs = world.snapshot.jobs
        if len(world.snapshot.nodes) <= NODES_MAX and len(jobs) <= JOBS_MAX and sum(not j.placement for j in jobs) > 1:
            yield number, world


def to_be_exact(world: World) -> World:
    """The same world, whose rounds are to be exact."""
    scheduling = world.policy.scheduling
    solver = msgspec.structs.replace(scheduling.solver, mode="exact")
    changed = msgspec.structs.replace(scheduling, solver=solver)
    return World(world.snapshot, msgspec.structs.replace(world.policy, scheduling=changed))


class Layer(NamedTuple):
    """GPUs by rank, in thousandths, that a round serves and that the best one does; `less`: how it could with less harm."""

    served: Counter[int]
    best: Counter[int]
    by: str
    less: str

    @property
    def missing(self) -> int:
        """What the first rank lacks that has less than it could."""
        for rank in sorted({*self.served, *self.best}):
            if self.served[rank] != self.best[rank]:
                lacks = self.best[rank] > ABOUT * self.served[rank]
                return self.best[rank] - self.served[rank] if lacks else 0
        return 0


class Beside(NamedTuple):
    """A first round beside the best."""

    held: Round
    entitled: Layer
    fair: Layer

    @property
    def missing(self) -> int:
        """GPUs that it lacks in the first layer in which it has less than it could, in thousandths."""
        return self.entitled.missing or self.fair.missing

    @property
    def is_as_harmless(self) -> bool:
        """Whether nothing would have served the same with less harm."""
        return not (self.entitled.less or self.fair.less)


def beside_the_best(world: World, decide: Decide) -> Beside:
    """What a way to decide makes of a world's first round, beside the best."""
    held = Round(world.snapshot, decide(*world), world.policy, 0)
    book = held.book
    served = [book.jobs[name] for name in held.starts]
    inside = [job for job in served if book.might_be_entitled(job, held.leaving)]
    rest = [job for job in served if job not in inside]
    entitled = _Tier(book, book.waiting, entitled=True)
    gone = frozenset[Part]().union(*(held.leaving_for(job.name) for job in inside))
    moved = moved_in(held, {name for name, to in held.moves.items() if to in {job.name for job in inside}})
    after = moved.with_changes([job.name for job in inside], gone)
    # What leaves beyond what those get is promised to nobody, and free in the next round; growth inside guarantees comes before.
    exceeds = sum(part.milli for part in gone) > sum(job.need for job in inside)
    grows = any(_grows(after, job) for job in [*after.running, *(after.jobs[job.name] for job in inside)])
    waiting = () if exceeds or grows else tuple(job for job in after.waiting if not book.jobs[job.name].spots)
    fair = _Tier(after, waiting, entitled=False, served=tuple(inside))
    return Beside(
        held,
        Layer(_worth(book, inside), *entitled.best(), entitled.less_harm(held, inside)),
        Layer(fair.within_shares(rest), *fair.best(), fair.less_harm(held, rest)),
    )


def _grows(book: Book, job: Worker) -> bool:
    """Whether a job that runs, or is served, may have more tasks inside its guarantees."""
    inside = all(book.used[name] + job.unit <= book.guaranteed[name] for name in book.path(job.queue))
    return inside and len(job.spots) < job.most


def _worth(book: Book, jobs: Sequence[Worker]) -> Counter[int]:
    ranks, worth = ranks_of(book), Counter[int]()
    for job in jobs:
        worth[ranks[job.name]] += job.need
    return worth


@dataclass(frozen=True)
class _Tier:
    """All that serves jobs inside guarantees, or inside fair shares once the others are `served`."""

    book: Book
    waiting: Sequence[Worker]
    entitled: bool
    served: tuple[Worker, ...] = ()

    def best(self) -> tuple[Counter[int], str]:
        """The most GPUs by rank, and how they are served."""
        best, by = Counter[int](), ""
        for size in range(1, len(self.waiting) + 1):
            for takers in combinations(self.waiting, size):
                worth = _worth(self.book, takers)
                if (
                    _is_more(worth, best)
                    and self._is_sure(takers)
                    and (way := next(self.ways(takers), None)) is not None
                ):
                    best, by = worth, _told(way)
        return best, by

    def less_harm(self, held: Round, takers: Sequence[Worker]) -> str:
        """How the same jobs could be served with less harm, "" for not at all."""
        actual = {
            job.name: Way(held.leaving_for(job.name), frozenset(n for n, to in held.moves.items() if to == job.name))
            for job in takers
        }
        if not any(way.leaving or way.moving for way in actual.values()) or not self._is_sure(takers):
            return ""
        harm, ways = Harm(self.book), list(self.ways(takers))
        same = [way for way in ways if _union(way) == _union(actual)] + [actual]
        # Which leaves for which may be told in several ways.
        least = [min(keys) for keys in zip(*map(harm.keys, same), strict=True)]
        for way in ways:
            if all(mine < theirs for mine, theirs in zip(harm.keys(way), least, strict=True)):
                return f"{_told(actual)}; it would do if {_told(way)}"
        return ""

    # What is sure.

    def _is_sure(self, takers: Sequence[Worker]) -> bool:
        """Whether all of them together surely lie inside, and no job that is left out may claim what they get."""
        book, need = self.book, self.book.added_up((job.queue, job.need) for job in takers)
        out = [job for job in self.waiting if job not in takers]
        if any(not book.admissible(job) or not book.may_start(job) for job in takers):
            return False
        if any(limit is not None and book.used[n] + need[n] > limit for n in need for limit in (book.most[n],)):
            return False
        if any(one.queue == job.queue and one.value > job.value for job in takers for one in out):
            return False
        if self.entitled:
            return all(book.used[name] + need[name] <= book.guaranteed[name] for name in need)
        if any(book.might_be_entitled(job) for job in takers) or any(map(self._could_claim, out)):
            return False
        return all(book.used[name] + need[name] <= fair[name] for name in need for fair in book.divisions)

    def _could_claim(self, job: Worker) -> bool:
        """Whether a job might take from others what they are given."""
        most = max(fair[job.queue] for fair in self.book.divisions)
        return self.book.might_be_entitled(job) or self.book.used[job.queue] + job.need <= most

    def within_shares(self, takers: Sequence[Worker]) -> Counter[int]:
        """What of these jobs might lie inside the fair shares of their queues, the highest values first."""
        book, ranks, worth = self.book, ranks_of(self.book), Counter[int]()
        left = {job.queue: max(fair[job.queue] for fair in book.divisions) - book.used[job.queue] for job in takers}
        for job in sorted(takers, key=lambda job: ranks[job.name]):
            given = max(0, min(job.need, left[job.queue]))
            worth[ranks[job.name]] += given
            left[job.queue] -= given
        return worth

    # All ways.

    def ways(self, takers: Sequence[Worker]) -> Iterator[Shared]:
        """Every lawful way to serve these jobs together; each once for each of its tellings."""
        tasks = tasks_of([*takers, *self.served])
        for movers in self._movers():
            moving = {job.name for job in movers}
            stay = [part for part in self._candidates(takers) if part.job not in moving]
            for leaving in sets_of(stay, self.book):
                if self._has_room(movers, leaving, tasks):
                    yield from self._shared_out(takers, leaving, sorted(moving))

    def _movers(self) -> Iterator[tuple[Worker, ...]]:
        """Sets of jobs that may move; none beside what others leave for those that are served before."""
        able = [] if self.served else [job for job in self.book.running if can_move(self.book, job)]
        for size in range(min(MOVES_TRIED, self.book.moves, len(able)) + 1):
            yield from combinations(able, size)

    def _candidates(self, takers: Sequence[Worker]) -> list[Part]:
        if self.entitled:
            return sorted({part for job in takers for part in candidates(self.book, job)})
        queues = {job.queue for job in takers}
        parts = [part for job in self.book.running for part in job.parts]
        return [p for p in parts if any(self.book.standing(p, queue) == "borrowed" for queue in queues)]

    def _has_room(self, movers: Sequence[Worker], leaving: frozenset[Part], tasks: tuple[int, ...]) -> bool:
        if movers:
            return find_places(self.book, movers, leaving, tasks)
        return fits(free_of(self.book, leaving), tasks)

    def _shared_out(
        self, takers: Sequence[Worker], leaving: frozenset[Part], moving: Sequence[str]
    ) -> Iterator[Shared]:
        names = sorted({part.job for part in leaving})
        for chosen in product(takers, repeat=len(names) + len(moving)):
            to = dict(zip((*names, *moving), chosen, strict=True))
            shared = {
                job.name: Way(
                    frozenset(part for part in leaving if to[part.job] is job),
                    frozenset(name for name in moving if to[name] is job),
                )
                for job in takers
            }
            if all(self._may(job, takers, leaving, shared[job.name]) for job in takers):
                yield shared

    def _may(self, job: Worker, takers: Sequence[Worker], leaving: frozenset[Part], way: Way) -> bool:
        """Whether a job may have this beside what the others are given."""
        if not way.leaving and not way.moving:
            return True
        beside = self.book.with_changes([one.name for one in takers if one is not job], leaving - way.leaving)
        taker = beside.jobs[job.name]
        if self.entitled:
            return may_take(beside, taker, way.leaving, way.moving)
        if way.moving:
            given_up = sum(self.book.jobs[name].milli for name in way.moving)
            return not way.leaving and job.need >= self.book.min_gain * given_up
        return may_take_for_share(beside, taker, way.leaving)


def _union(shared: Shared) -> Way:
    ways = shared.values()
    return Way(
        frozenset[Part]().union(*(way.leaving for way in ways)), frozenset[str]().union(*(way.moving for way in ways))
    )


def _told(shared: Shared) -> str:
    return "; ".join(f"for {name} {way}" for name, way in sorted(shared.items()))


def _is_more(one: Counter[int], other: Counter[int]) -> bool:
    ranks = sorted({*one, *other})
    return [one[rank] for rank in ranks] > [other[rank] for rank in ranks]
