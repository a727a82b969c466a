"""What it costs to serve a job by some leaving or moving, in the order of harm, by every reading of that order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain

from tests.solver.laws.best import Way
from tests.solver.laws.book import GPU, Book, Part, Worker

Key = tuple[Fraction | int, ...]


@dataclass(frozen=True)
class Harm:
    """What ways to serve jobs cost, by every reading of the order of harm. Jobs are served together: each by a way of its own."""

    book: Book
    _known: dict[frozenset[tuple[str, Way]], tuple[Key, ...]] = field(default_factory=dict)

    def is_less(self, one: Mapping[str, Way], other: Mapping[str, Way]) -> bool:
        """Whether the first is less harmful than the other, whatever the reading. By job, the way in which it is served."""
        return all(mine < theirs for mine, theirs in zip(self.keys(one), self.keys(other), strict=True))

    def keys(self, shared: Mapping[str, Way]) -> tuple[Key, ...]:
        """By each reading, what compares."""
        known = frozenset(shared.items())
        if known not in self._known:
            self._known[known] = tuple(self._readings(shared))
        return self._known[known]

    def _readings(self, shared: Mapping[str, Way]) -> Iterator[Key]:
        """What exceeds GPU for GPU, of each job or of all, comes before all means, or before the mildest; what a queue holds above
        its share goes first, or not; the price of a job is nothing, or all.
        """
        takers = [(self.book.jobs[name], way) for name, way in shared.items()]
        each_exceeds = sum(sum(part.milli for part in way.leaving) > taker.need for taker, way in takers)
        gone = sum(part.milli for _, way in takers for part in way.leaving)
        all_exceed = int(gone > sum(taker.need for taker, _ in takers))
        inside_shares = [(self._inside_share(takers, fair),) for fair in self.book.divisions]
        for by_job in (False, True):
            for by_value in (False, True):
                each = [self._strata(taker, way, by_job=by_job, by_value=by_value) for taker, way in takers]
                strata = [tuple(map(sum, zip(*means, strict=True))) for means in zip(*each, strict=True)]
                for among in ((), *inside_shares):
                    worse, milder = strata[:2], (among, *strata[2:])
                    for excess in (each_exceeds, all_exceed):
                        yield tuple(chain((excess,), *worse, *milder))
                        yield tuple(chain(*worse, (excess,), *milder))

    def _inside_share(self, takers: Sequence[tuple[Worker, Way]], fair: Mapping[str, int]) -> int:
        """What others give up of their fair shares."""
        book, own = self.book, {taker.queue for taker, _ in takers}
        parts = [part for _, way in takers for part in way.leaving]
        gone = book.added_up((book.jobs[part.job].queue, part.milli) for part in parts)
        queues = {book.jobs[part.job].queue for part in parts} - own
        return sum(max(0, gone[name] - max(0, book.used[name] - fair[name])) for name in queues)

    def _strata(self, taker: Worker, way: Way, *, by_job: bool, by_value: bool) -> list[tuple[Fraction | int, ...]]:
        """Costs from the worst means down: own work, what straddles, what is borrowed, moves."""
        own, straddling, borrowed = list[Part](), list[Part](), list[Part]()
        for part in way.leaving:
            if self.book.jobs[part.job].queue == taker.queue:
                own.append(part)
            else:
                loans = self.book.standing(part, taker.queue) == "borrowed"
                (borrowed if loans else straddling).append(part)
        moved = [part for name in way.moving for part in self.book.jobs[name].parts]
        return [self._cost(parts, by_job, by_value) for parts in (own, straddling, borrowed, moved)]

    def _cost(self, parts: Sequence[Part], by_job: bool, by_value: bool) -> tuple[Fraction | int, ...]:
        """Per rank of value, the highest first: what leaves as a whole, then what others give up."""
        whole = {part.job for part in parts if not part.number}
        ranks = range(8, -1, -1) if by_value else (None,)
        found = list[Fraction | int]()
        for rank in ranks:
            here = [part for part in parts if rank is None or self._rank(part) == rank]
            for kinds in (
                ([p for p in here if p.job in whole], [p for p in here if p.job not in whole]) if by_value else (here,)
            ):
                jobs = {part.job for part in kinds}
                prices = sum(min(GPU, sum(p.milli for p in kinds if p.job == name)) for name in jobs)
                found += [prices] if by_job else []
                found.append(sum((self.book.lost(self.book.jobs[p.job], p.milli) for p in kinds), Fraction(0)))
        return tuple(found)

    def _rank(self, part: Part) -> int:
        job = self.book.jobs[part.job]
        return len({one.value for one in self.book.running if one.queue == job.queue and one.value < job.value})
