"""What a preemption program is asked for, one layer after the other: first the GPUs that are served, then the least harm."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from solver.milp.preemption_program import PREEMPT, STRADDLE, TURN, PreemptionProgram
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import QueueName
from solver.policy.tree import QuotaLine
from solver.queueing.demand import SubLayer
from solver.quota.victims import INSIDE

WEIGHTS = {
    "own exceptions": 300.0,
    "own inside": 100.0,
    "exceptions": 30.0,
    "straddling": 10.0,
    "inside fair": 3.6,
    "borrowed": 1.0,
    "moved": 0.1,
}
"""In large clusters all harm is one layer: so much counts what is lost by each means, in thousands of GPU-seconds, each exception,
and each GPU that a queue gives up of its fair share."""

KEEPS_IT = 1.1
"""What a GPU counts that a running job holds, where one that waits counts for 1 to 1.07: of equal claims its holder keeps it."""


Seniority = tuple[float, float]
"""Of jobs of a queue: the value, and where the queue goes by age also that."""


@dataclass(frozen=True, slots=True)
class PreemptionLayers:
    """Writes the layers of a program whose columns and rows stand. DESIGN section 5, amendment 6."""

    program: PreemptionProgram

    def state(self, name: str) -> None:
        """Sub-layer by sub-layer the GPUs that are served; then least harm, the worst means first."""
        for layer in sorted({served.job_class.first.sub_layer for served in self.program.served.values()}):
            terms = {
                column: served.job_class.first.weight * served.gpus
                for column, served in self.program.served.items()
                if served.job_class.first.sub_layer == layer
            }
            terms |= dict.fromkeys(self._entitled_lost(layer), -KEEPS_IT)
            self.program.builder.maximise(f"{name}{layer}", terms, exact=True)
        if self.program.is_large:
            self._harm_at_once()
        else:
            self._harm_by_means()

    def _harm_by_means(self) -> None:
        credited = self._credited_by_means()
        self._least("own exceptions", self._counted(own=True))
        self._least_lost("own inside", credited["own inside"])
        self._least_lost("straddling", credited["straddling"])
        self._least("exceptions", self._counted(own=False))
        self._least("inside fair", self._inside_fair())
        self._least_lost("borrowed", credited["borrowed"])
        self._least(
            "moved", {column: self.program.movers[n].lost_gpu_s / 1000 for n, column in self.program.moving.items()}
        )
        self._least("fallback", self._fallbacks())
        self._first_come()

    def _harm_at_once(self) -> None:
        """All means in one layer, each weighed heavily against the next."""
        terms = defaultdict[int, float](float)
        for own, name in ((True, "own exceptions"), (False, "exceptions")):
            for column in self._counted(own=own):
                terms[column] += WEIGHTS[name]
        for column, gpus in self._inside_fair().items():
            terms[column] += WEIGHTS["inside fair"] * gpus
        for means, credited in self._credited_by_means().items():
            for number, column in credited:
                terms[column] += WEIGHTS[means] * self._lost(number) / (1000 * self._gpus(number))
        for place, column in self.program.moving.items():
            terms[column] += WEIGHTS["moved"] * self.program.movers[place].lost_gpu_s / 1000
        for column, gpus in self._fallbacks().items():
            terms[column] += gpus / 1000
        self._least("harm", terms)

    def _counted(self, *, own: bool) -> dict[int, float]:
        """Jobs that leave more than is got for them: of a preemptor's own queue, or of others."""
        holders = self.program.attempts.evictable.allocations.holders
        return {
            column: 1.0
            for (group, known), column in self.program.exceptions.items()
            if (holders[self.program.groups[group][0]].job.spec.queue == self.program.families[known].queue) == own
        }

    def _fallbacks(self) -> dict[int, float]:
        """GPUs of types that their jobs like less, times how much less."""
        return {c: s.gpus * s.option.fallback for c, s in self.program.served.items() if s.option.fallback}

    def _entitled_lost(self, layer: SubLayer) -> list[int]:
        """By queue a column of the GPUs inside its share that leave where work of the same value or less is served in this layer.

        It would only take their place. Tasks beyond a job's minima yield to jobs of the same value, and jobs to those that have
        their turn.
        """
        takers = defaultdict[QueueName, dict[int, tuple[int, int]]](dict)
        for column, served in self.program.served.items():
            if served.job_class.first.sub_layer == layer:
                takers[served.queue][column] = self.program.seniority(served.job_class.preemptor)
        return [column for queue, known in takers.items() for column in self._lost_of(queue, known)]

    def _lost_of(self, queue: QueueName, takers: Mapping[int, tuple[int, int]]) -> Iterator[int]:
        """For those of each seniority: what leaves that is no junior to them, but is to the next."""
        above: Seniority = (math.inf, math.inf)
        if queue not in self.program.attempts.evictable.rules.within:
            yield from self._lost_between(queue, list(takers), min(takers.values()), above)
            return
        for least in sorted(set(takers.values()), reverse=True):
            alike = [column for column, seniority in takers.items() if seniority <= least]
            yield from self._lost_between(queue, alike, least, above)
            above = least

    def _lost_between(
        self, queue: QueueName, takers: Sequence[int], least: Seniority, above: Seniority
    ) -> Iterator[int]:
        held = self.program.attempts.evictable.allocations
        own = held.own.get(queue, slice(0, 0))
        lost = {
            column: self._gpus(number)
            for number, column in self.program.leaving.items()
            if own.start <= number < own.stop
            and least <= self._seniority(number) < above
            and self._inside(number)
            and not any(family.means[number] == TURN for family in self.program.families)
        }
        most = self.program.most_of(lost)
        if not most:
            return
        column = self.program.builder.column(most, integer=False)
        if self.program.is_large:
            # A choice of its own costs branching.
            self.program.builder.at_most({**lost, column: -1.0}, 0.0)
        else:
            some, served = self.program.builder.column(1), sum(self.program.builder.most(taker) for taker in takers)
            self.program.builder.at_most({**dict.fromkeys(takers, 1.0), some: -served}, 0.0)
            self.program.builder.at_most({**lost, some: most, column: -1.0}, most)
        yield column

    def _seniority(self, number: int) -> Seniority:
        """That of a holder in its queue. Tasks beyond a job's minima are junior to all of its value."""
        held = self.program.attempts.evictable.allocations
        holder = held.holders[number]
        if held.base[number] != number:
            return holder.base_priority - 1, math.inf
        return self.program.attempts.evictable.rules.seniority(holder.job, holder.base_priority)

    def _least(self, name: str, terms: Mapping[int, float]) -> None:
        self.program.builder.maximise(name, {column: -factor for column, factor in terms.items() if factor}, exact=True)

    def _credited_by_means(self) -> dict[str, list[tuple[int, int]]]:
        """Groups of holders with the columns of what leaves of them, from the worst means down."""
        found = dict[str, list[tuple[int, int]]](**{"own inside": [], "straddling": [], "borrowed": []})
        for (group, known), column in self.program.credits.items():
            number = self.program.groups[group][0]
            if not self._gpus(number):
                continue  # what a gang can't do without may have none: what it costs counts with its other tasks
            means = int(self.program.families[known].means[number])
            is_inside = means in (PREEMPT, TURN) and self._inside(number)
            name = "own inside" if is_inside else "straddling" if means == STRADDLE else "borrowed"
            found[name].append((number, column))
        return found

    def _least_lost(self, name: str, credited: Sequence[tuple[int, int]]) -> None:
        """By value, the highest first: what jobs that leave as a whole lose, then what others give up."""
        base = self.program.attempts.evictable.allocations.base
        for rank in sorted({self.program.rank(number) for number, _ in credited}, reverse=True):
            for whole in (True, False):
                of_kind = [
                    known
                    for known in credited
                    if self.program.rank(known[0]) == rank and (base[known[0]] == known[0]) == whole
                ]
                terms = {column: self._lost(number) / (1000 * self._gpus(number)) for number, column in of_kind}
                self._least(f"{name}, value {rank}, {'whole' if whole else 'parts'}", terms)

    def _inside(self, number: int) -> bool:
        """Whether a holder lies inside its own queue's share."""
        rules = self.program.attempts.evictable.rules
        path = rules.tree.path(rules.holders[number].job.spec.queue)
        return int(rules.standing[number, len(path) - 1]) == INSIDE

    def _inside_fair(self) -> dict[int, float]:
        """By line, the GPUs that leave though its queue holds them inside its fair share."""
        held, shares = self.program.attempts.evictable.allocations, self.program.attempts.headroom.shares
        terms = dict[int, float]()
        for queue, own in held.own.items():
            for place, kind in enumerate(held.gpu_types):
                line = QuotaLine(queue, kind)
                above = max(0, self.program.use(line) - shares.fair.get(line, 0))
                leaving = {
                    column: float(held.charge[number, place])
                    for number, column in self.program.leaving.items()
                    if own.start <= number < own.stop and held.charge[number, place]
                }
                if leaving and sum(leaving.values()) > above:
                    column = self.program.builder.column(sum(leaving.values()), integer=False)
                    self.program.builder.at_most({**leaving, column: -1.0}, float(above))
                    terms[column] = 1 / MILLI_PER_GPU
        return terms

    def _gpus(self, number: int) -> float:
        """What a holder has; one without GPUs those whose share of CPU or memory it holds."""
        return float(self.program.host.milli[number]) / MILLI_PER_GPU

    def _lost(self, number: int) -> float:
        """Thousands of GPU-seconds."""
        evictable, held = self.program.attempts.evictable, self.program.attempts.evictable.allocations
        lost = evictable.harm_gpu_s(number)
        if held.base[number] == number:
            milli = float(self.program.host.milli[number] if self.program.host.alone[number] else held.leave[number])
            lost += self.program.limits.job_cost / 1000 * min(1.0, milli / MILLI_PER_GPU)
        return lost / 1000

    def _first_come(self) -> None:
        """Among answers that are as good, the jobs that come first are served, and the last to be submitted leave."""
        waiting = sorted(self.program.served.items(), key=lambda known: known[1].job_class.first.job.submitted_at)
        self.program.builder.maximise("first served", _falling(column for column, _ in waiting), exact=True)
        held = self.program.attempts.evictable.allocations
        jobs = sorted(self.program.leaving, key=lambda n: (held.holders[n].job.submitted_at, int(held.place[n])))
        weights = _falling(self.program.leaving[number] for number in jobs)
        self._least("first stay", {column: 1 + weight for column, weight in weights.items()})
        by_order = sorted(
            self.program.credits,
            key=lambda known: (
                self.program.families[known[1]].preemptor.job.submitted_at,
                held.holders[self.program.groups[known[0]][0]].job.submitted_at,
                int(held.place[self.program.groups[known[0]][0]]),
                self.program.families[known[1]].manner,
            ),
        )
        weights = _falling((self.program.credits[known] for known in by_order), 0.001)
        self.program.builder.maximise("first gain", weights, exact=True)


def _falling(columns: Iterable[int], unit: float = 1.0) -> dict[int, float]:
    """Weights that fall, and of which no two sums are the same by accident."""
    return {column: unit / (2 + place) ** 0.5 for place, column in enumerate(columns)}
