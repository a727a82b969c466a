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
    """What ways to serve one job cost, by every reading of the order of harm."""

    book: Book
    taker: Worker
    _known: dict[Way, tuple[Key, ...]] = field(default_factory=dict)

    def is_less(self, one: Way, other: Way) -> bool:
        """Whether the first is less harmful than the other, whatever the reading."""
        return all(mine < theirs for mine, theirs in zip(self._keys(one), self._keys(other), strict=True))

    def _keys(self, way: Way) -> tuple[Key, ...]:
        if way not in self._known:
            self._known[way] = tuple(self._readings(way))
        return self._known[way]

    def _readings(self, way: Way) -> Iterator[Key]:
        """What exceeds GPU for GPU comes before all means, or before the mildest; what a queue holds above its share goes first,
        or not; the price of a job is nothing, or all.
        """
        excess = int(sum(part.milli for part in way.leaving) > self.taker.need)
        inside_shares = [(self._inside_share(way, fair),) for fair in self.book.divisions]
        for by_job in (False, True):
            for by_value in (False, True):
                strata = self._strata(way, by_job=by_job, by_value=by_value)
                for among in ((), *inside_shares):
                    worse, milder = strata[:2], (among, *strata[2:])
                    yield tuple(chain((excess,), *worse, *milder))
                    yield tuple(chain(*worse, (excess,), *milder))

    def _inside_share(self, way: Way, fair: Mapping[str, int]) -> int:
        """What others give up of their fair shares."""
        book = self.book
        gone = book.added_up((book.jobs[p.job].queue, p.milli) for p in way.leaving)
        queues = {book.jobs[part.job].queue for part in way.leaving} - {self.taker.queue}
        return sum(max(0, gone[name] - max(0, book.used[name] - fair[name])) for name in queues)

    def _strata(self, way: Way, *, by_job: bool, by_value: bool) -> list[tuple[Fraction | int, ...]]:
        """Costs from the worst means down: own work, what straddles, what is borrowed, moves."""
        own, straddling, borrowed = list[Part](), list[Part](), list[Part]()
        for part in way.leaving:
            if self.book.jobs[part.job].queue == self.taker.queue:
                own.append(part)
            else:
                loans = self.book.standing(part, self.taker.queue) == "borrowed"
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
