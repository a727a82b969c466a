"""One program for a tier: which waiting jobs are served, which running ones leave for them, and on which nodes.

A job is served in one of three manners. `inside`: it lies inside its queue's share once others have left, and takes what others
borrowed. `ahead`: it stands ahead of lower work of its own queue and takes the place of that. `firm`: it is not preemptible and
lies inside the share beside the not preemptible work alone; it takes what is free. Rules: DESIGN section 5, amendments 1 to 6.
Every node has rows of its own, so what the program promises fits; docs/solver-victims.md has the rows and what they take.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from solver.milp.builder import ProgramBuilder
from solver.milp.lending import ChargedColumn, LendingRows
from solver.milp.lines import LineRows, WayInLine
from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType, Level
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import MigShape, Shape
from solver.model.workload import QueueName
from solver.policy.harm import MEANS, Evictions
from solver.policy.tree import QuotaLine
from solver.preemption.attempts import Attempts
from solver.preemption.consolidation_candidates import ConsolidationCandidate
from solver.queueing.demand import StartCandidate
from solver.quota.dominance import HostUse
from solver.quota.fairshare import to_spare
from solver.quota.guarantees import UNBOUNDED
from solver.quota.host_shares import HostBorrowing, sum_of, tasks_with_shapes
from solver.quota.options import Option
from solver.quota.users import CapLine, HostLine
from solver.quota.vacated import Tier, holds_more, left_inside, limits_of, lines_of
from solver.quota.victims import PreemptorJob

Manner = Literal["inside", "ahead", "firm"]

ONE_BY_ONE_MAX = 96
"""Of so many jobs that may leave each is told apart in what it costs; of more those of one queue, value and size are alike."""

UNLAWFUL = -1
"""In an array of means by holder: it may not be evicted."""

PREEMPT, TURN, STRADDLE = (MEANS.index(means) for means in ("preempt", "turn", "straddle"))


@dataclass(frozen=True, slots=True, eq=False)
class PreemptorFamily:
    """Preemptors of one queue for which the same running jobs may leave, by the same means: by holder, or UNLAWFUL."""

    queue: QueueName
    manner: Manner
    preemptor: PreemptorJob
    means: Ints

    @property
    def lawful(self) -> Mask:
        """By holder, whether it may be evicted for them."""
        found: Mask = self.means != UNLAWFUL
        return found


@dataclass(frozen=True, slots=True, eq=False)
class PreemptorClass:
    """Waiting jobs that are served alike, in their order. `firm`: they are not preemptible."""

    members: tuple[StartCandidate, ...]
    preemptor: PreemptorJob
    firm: bool

    @property
    def first(self) -> StartCandidate:
        """The first of them in order."""
        return self.members[0]

    @property
    def queue(self) -> QueueName:
        """The one in which they wait."""
        return self.first.job.spec.queue

    @property
    def strict(self) -> bool:
        """No job of their queue may pass them, nor they one ahead of them: they stand together in its line."""
        return self.first.strict


class ServedColumn(NamedTuple):
    """What a column counts: jobs of a class that are served with an option in a manner."""

    job_class: PreemptorClass
    option: Option
    family: int
    manner: Manner

    @property
    def queue(self) -> QueueName:
        """The queue that is charged."""
        return self.job_class.queue

    @property
    def gpus(self) -> float:
        """Of one job."""
        return sum(self.option.charge.values()) / MILLI_PER_GPU

    @property
    def level(self) -> Level | None:
        """The level of which all of a job's tasks are in one domain; None: they may be anywhere."""
        return self.job_class.first.job.spec.effective_topology.required


class ExceptionKind(NamedTuple):
    """Exceptions of a family that are counted together: of jobs that leave so much, and hold so many milli-GPU.

    `apart`: what tells them from others of that size.
    """

    family: int
    leave: int
    gpus: int
    apart: int


@dataclass(slots=True)
class _Exceptions:
    """What may be exceptions to GPU for GPU, while columns are made for it. `divided`: gangs that may leave in parts; `least`: by
    family, of how many milli-GPU more has to leave.

    `alike`: groups whose exceptions are counted together; `of_gangs`: by gang and family, what may leave of it. `larger` has by
    family the columns that are made, each with how much more leaves.
    """

    divided: Collection[int]
    least: Mapping[int, float]
    alike: dict[ExceptionKind, list[int]] = field(default_factory=lambda: defaultdict(list))
    of_gangs: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    larger: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))


@dataclass(slots=True)
class PreemptionProgram:
    """The columns of a tier's program and what they mean; the rows about shares and limits. Rows of nodes: PreemptionPlaces.

    `families` are what classes are served as. `leaving` has the column of each holder that may leave, `moving` that of each mover,
    by its place. `credits` has by group of like holders and family the milli-GPU that leave for it; `exceptions` by the same how
    many of these jobs, each the only one for its preemptor, leave more than that gets. In larger clusters one column counts those
    of all groups of a size. What leaves of a gang in parts is one such job: `rests` has by its column that of how much more it is.
    """

    tier: Tier
    attempts: Attempts
    limits: Evictions
    firm_used: Mapping[QuotaLine, int]
    asked_before: int
    families: list[PreemptorFamily]
    movers: Sequence[ConsolidationCandidate] = ()
    moves_max: int = 0
    grows: bool = False
    is_large: bool = False
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)
    served: dict[int, ServedColumn] = field(default_factory=dict)
    leaving: dict[int, int] = field(default_factory=dict)
    moving: dict[int, int] = field(default_factory=dict)
    credits: dict[tuple[int, int], int] = field(default_factory=dict)
    exceptions: dict[tuple[int, int], int] = field(default_factory=dict)
    rests: dict[int, int] = field(default_factory=dict)
    groups: list[tuple[int, ...]] = field(default_factory=list)
    _instances: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By the name of a MIG profile, who holds how many instances of it."""

    def __post_init__(self) -> None:
        """Count what there is of MIG instances."""
        for number, holder in enumerate(self.attempts.evictable.allocations.holders):
            for task in holder.job.placement:
                for slot in task.slots:
                    self._instances[slot.instance.profile][number] += 1

    def state(self, classes: Sequence[PreemptorClass], families_of: Mapping[int, Sequence[int]]) -> None:
        """Write all columns, and the rows about shares and limits. `families_of`: of each class, by its place, its families."""
        concerned = frozenset(member.job.name for known in classes for member in known.members)
        ways = list[WayInLine]()
        for place, known in enumerate(classes):
            open_ways = [o for o in known.first.options if not self.attempts.lines.blocker(known.first, o, concerned)]
            columns = list(self._columns_of(known, open_ways, families_of[place]))
            self.builder.at_most(dict.fromkeys(columns, 1.0), len(known.members))
            ways += [WayInLine(place, self.served[column].option, column) for column in columns]
        LineRows(self.builder, classes, ways).state()
        self._columns_that_leave()
        self._columns_that_move()
        self._rows_of_credit()
        self._rows_inside()
        self._rows_ahead()
        self._rows_of_firm()
        self._rows_of_max()
        self._rows_of_lending()
        self._rows_of_users()
        self._rows_per_round()
        if self.tier in ("fair", "value"):
            self._rows_of_givers()

    def _columns_of(self, known: PreemptorClass, options: Iterable[Option], families: Iterable[int]) -> Iterator[int]:
        for option in options:
            if sum(option.charge.values()):
                for number in families:
                    manner = self.families[number].manner
                    if self._is_open(known, option, manner) and self._finds_instances(known, option, number):
                        column = self.builder.column(len(known.members))
                        self.served[column] = ServedColumn(known, option, number, manner)
                        yield column

    def _is_open(self, known: PreemptorClass, option: Option, manner: Manner) -> bool:
        """Whether one job alone could be served so, for all that shares say."""
        if self.tier != "entitled" and known.first.is_inside_only(option):
            return False
        if manner == "inside":
            return self._fits(known, option, {kind: self._own_lower(known, kind) for kind in option.charge})
        if known.first.is_inside_only(option) and not known.firm:
            return False
        if manner == "firm" or known.firm:
            return self.tier == "entitled" and all(
                milli <= self._left_of_firm(line)
                for kind, milli in option.charge.items()
                for line in self._lines(known.first.job.spec.queue, kind)
            )
        return all(
            milli <= self._left_ahead(known.first.job.spec.queue, kind, self.seniority(known.preemptor))
            for kind, milli in option.charge.items()
        )

    def _finds_instances(self, known: PreemptorClass, option: Option, number: int) -> bool:
        """Whether there could be as many MIG instances as one job asks for, once all have left who may."""
        room, lawful = self.attempts.soon, self.families[number].lawful
        for shape, kind, group in zip(option.shapes, option.gpu_types, known.first.job.spec.task_groups, strict=True):
            if isinstance(shape, MigShape):
                left = sum(count for holder, count in self._instances[shape.mig or ""].items() if lawful[holder])
                needed = group.least * shape.devices
                # Of what is free on a node, some may be too little for one task as long as nobody leaves.
                single = msgspec.structs.replace(shape, devices=1)
                if left < needed and left + int(room.slots(single, kind).sum()) < needed:
                    return False
        return True

    def _fits(self, known: PreemptorClass, option: Option, leaving: Mapping[GpuType, int]) -> bool:
        queue = known.first.job.spec.queue
        return all(
            milli <= left_inside(self.attempts.headroom, self.tier, queue, kind, leaving.get(kind, 0))
            for kind, milli in option.charge.items()
        )

    def _own_lower(self, known: PreemptorClass, kind: GpuType) -> int:
        """What of its own queue may leave for a class; nothing where the queue holds more than its share (amendment 1)."""
        queue = known.first.job.spec.queue
        if not self._is_within(QuotaLine(queue, kind)):
            return 0
        return self._lower(queue, kind)

    def seniority(self, preemptor: PreemptorJob) -> tuple[int, int]:
        """That of a preemptor in its queue."""
        return self.attempts.evictable.rules.seniority(preemptor.job, preemptor.base_priority)

    def _lower(self, queue: QueueName, kind: GpuType, seniority: tuple[int, int] | None = None) -> int:
        """Milli-GPU of a queue's own work that may leave for jobs of a seniority; None: of any."""
        held = self.attempts.evictable.allocations
        if kind not in held.gpu_types:
            return 0
        column, lower = held.gpu_types.index(kind), np.zeros(len(held.holders), dtype=bool)
        for family in self.families:
            if family.queue == queue and seniority in (None, self.seniority(family.preemptor)):
                lower |= (family.means == PREEMPT) | (family.means == TURN)
        return int(held.charge[lower, column].sum())

    def _columns_that_leave(self) -> None:
        held = self.attempts.evictable.allocations
        lawful = np.zeros(len(held.holders), dtype=bool)
        for known in {served.family for served in self.served.values()}:
            lawful |= self.families[known].lawful
        lawful &= (held.gpus > 0) | self._short_of_host()
        for number in np.flatnonzero(held.with_all_parts(lawful)).tolist():
            self.leaving[number] = self.builder.column(1)
        for number, column in self.leaving.items():
            base = int(held.base[number])
            if base != number and base in self.leaving:
                self.builder.at_most({self.leaving[base]: 1.0, column: -1.0}, 0.0)

    def _short_of_host(self) -> Mask:
        """By holder, whether it has no GPUs, and is on a node that may lack something beside GPUs for those who could be there, or
        below a max of CPU or memory that binds them.
        """
        held, room = self.attempts.evictable.allocations, self.attempts.soon
        shapes = {shape for served in self.served.values() for shape in served.option.shapes}
        short, caps = np.zeros(len(held.holders), dtype=bool), self.attempts.users.caps
        served = [known.job_class.first.job for known in self.served.values()]
        one = HostUse(1, 1)
        capped = {line for job in served for line, _ in caps.host_charges(job.spec.queue, job.user, one)}
        for number in np.flatnonzero(self.host.alone).tolist():
            job = held.holders[number].job
            short[number] = any(line in capped for line, _ in caps.host_charges(job.spec.queue, job.user, one))
            nodes = {room.index[task.node] for task in held.holders[number].job.placement if task.node in room.index}
            for node in nodes:
                tasks = {shape: _most_tasks(shape, len(room.nodes[node].gpus)) for shape in shapes}
                short[number] |= any(
                    need * most > int(room.free_beside[name][node])
                    for shape, most in tasks.items()
                    for name, need in shape.beside.items()
                )
        return short

    @property
    def host(self) -> HostBorrowing:
        """What is held of CPU and memory beyond what GPUs carry."""
        return self.attempts.evictable.rules.host

    def _columns_that_move(self) -> None:
        of_gang = self.attempts.evictable.allocations.of_gang
        for place, mover in enumerate(self.movers if self.moves_max > 0 else ()):
            self.moving[place] = column = self.builder.column(1)
            for number in of_gang.get(mover.name, ()):
                if number in self.leaving:
                    self.builder.at_most({column: 1.0, self.leaving[number]: 1.0}, 1.0)
        if not self.moving:
            return
        self.builder.at_most(dict.fromkeys(self.moving.values(), 1.0), float(self.moves_max))
        if self.limits.min_gain:
            moved = {c: self.limits.min_gain * self.movers[n].gpus for n, c in self.moving.items()}
            gained = {c: -MILLI_PER_GPU * served.gpus for c, served in self.served.items()}
            self.builder.at_most({**moved, **gained}, 0.0)

    def _rows_of_credit(self) -> None:
        """GPU for GPU: what leaves, leaves for a family that may have it, and no more for it than it gets."""
        used = sorted({served.family for served in self.served.values()})
        gpus, into = self.host.milli, defaultdict[int, dict[int, float]](dict)
        able = _Exceptions(self._divided(), self._least_larger())
        for members in self._alike_that_leave(used, able.divided):
            group, most = len(self.groups), float(gpus[members].sum())
            self.groups.append(tuple(members))
            terms = {self.leaving[number]: -float(gpus[number]) for number in members}
            for known in used:
                if self.families[known].means[members[0]] != UNLAWFUL:
                    column = self.credits[group, known] = self.builder.column(most, integer=False)
                    terms[column] = 1.0
                    if self.host.alone[members[0]]:
                        continue  # none of its GPUs leaves
                    into[known][column] = 1.0
                    if not self.grows:
                        self._may_be_exceptions(group, known, able)
            self.builder.equal(terms, 0.0)
        for of_size, groups in able.alike.items():
            able.larger[of_size.family] |= self._exception(of_size, groups)
        for (_, known), groups in able.of_gangs.items():
            able.larger[known] |= self._exception_of_gang(known, groups, able.least[known])
        for known, terms in into.items():
            self._row_gpu_for_gpu(known, terms, able.larger[known])

    def _may_be_exceptions(self, group: int, known: int, able: _Exceptions) -> None:
        """Jobs of a group may leave more than a family gets for each: what leaves of a gang in parts is told from all others."""
        held, number = self.attempts.evictable.allocations, self.groups[group][0]
        base, leave = int(held.base[number]), int(held.leave[number])
        if base in able.divided:
            able.of_gangs[base, known].append(group)
        elif leave > able.least[known]:
            of_size = ExceptionKind(known, leave, int(self.host.milli[number]), group)
            if self.is_large:
                able.alike[of_size._replace(apart=self._payer_of(group, known))].append(group)
            else:
                able.larger[known] |= self._exception(of_size, [group])

    def _least_larger(self) -> dict[int, float]:
        """By family, of how many milli-GPU more has to leave to be more than a job of it gets: in small clusters of almost none."""
        least = dict[int, float]()
        for served in self.served.values():
            gained = MILLI_PER_GPU * served.gpus if self.is_large else 1
            least[served.family] = min(gained, least.get(served.family, inf))
        return least

    def _divided(self) -> set[int]:
        """The gangs of which several parts may leave, by what they can't do without."""
        base = self.attempts.evictable.allocations.base
        return {gang for gang, parts in Counter(int(base[number]) for number in self.leaving).items() if parts > 1}

    def _alike_that_leave(self, families: Sequence[int], divided: Collection[int]) -> Iterable[list[int]]:
        """Groups of holders that are alike in what they cost and in which families they may leave for; parts of each gang apart."""
        held = self.attempts.evictable.allocations
        queues = {queue: place for place, queue in enumerate(held.own)}
        alike = defaultdict[tuple[int, ...], list[int]](list)
        for number in self.leaving:
            gang = int(held.base[number]) if held.base[number] in divided else -1
            means = (int(self.families[known].means[number]) for known in families)
            one_by_one = number if len(self.leaving) <= ONE_BY_ONE_MAX or self.host.alone[number] else 0
            kind, queue = int(held.charge[number].argmax()), queues[held.holders[number].job.spec.queue]
            alike[one_by_one, gang, queue, kind, self.rank(number), int(held.leave[number]), *means].append(number)
        return alike.values()

    def _exception(self, kind: ExceptionKind, groups: Sequence[int]) -> dict[int, float]:
        """A column of how many jobs of these groups leave more than a family gets for them, each with all it has; by how much."""
        one = self.builder.column(sum(len(self.groups[group]) for group in groups))
        credited = dict.fromkeys((self.credits[group, kind.family] for group in groups), -1.0)
        self.builder.at_most({one: float(kind.gpus), **credited}, 0.0)
        self.exceptions |= dict.fromkeys(((group, kind.family) for group in groups), one)
        return {one: float(kind.leave - 1)}

    def _exception_of_gang(self, known: int, groups: Sequence[int], least: float) -> dict[int, float]:
        """The same for what leaves of one gang, be that all of it or some of its tasks: for a family it is one job that leaves."""
        credited = [self.credits[group, known] for group in groups]
        most = self.most_of(dict.fromkeys(credited, 1.0))
        if most <= least:
            return {}
        one, rest = self.builder.column(1), self.builder.column(most - 1, integer=False)
        self.builder.at_most({rest: 1.0, one: 1.0 - most}, 0.0)
        self.builder.at_most({rest: 1.0, one: 1.0, **dict.fromkeys(credited, -1.0)}, 0.0)
        self.exceptions |= dict.fromkeys(((group, known) for group in groups), one)
        self.rests[one] = rest
        return {one: most - 1}

    def _payer_of(self, group: int, known: int) -> int:
        """What tells exceptions of a size apart: whether the own queue pays; for fair shares each line has rows of its own."""
        held, number = self.attempts.evictable.allocations, self.groups[group][0]
        queue = held.holders[number].job.spec.queue
        if self.tier != "fair":
            return int(queue == self.families[known].queue)
        return list(held.own).index(queue) * len(held.gpu_types) + int(held.charge[number].argmax())

    def _row_gpu_for_gpu(self, known: int, credited: Mapping[int, float], larger: Mapping[int, float]) -> None:
        family = self.families[known]
        takers = {column: served for column, served in self.served.items() if served.family == known}
        gained = {column: -MILLI_PER_GPU * served.gpus for column, served in takers.items()}
        beyond = self.builder.column(self.most_of(larger), integer=False)
        rests = (self._rest_of(one, rest) for one, rest in larger.items())
        self.builder.at_most({beyond: 1.0, **{column: -rest for column, rest in rests}}, 0.0)
        self.builder.at_most({**dict.fromkeys(larger, 1.0), **dict.fromkeys(takers, -1.0)}, 0.0)
        self.builder.at_most({**credited, **gained, beyond: -1.0}, 0.0)
        if self.limits.min_gain and not family.preemptor.overdue:
            scaled = dict.fromkeys(credited, self.limits.min_gain)
            self.builder.at_most({**scaled, **gained}, 0.0)

    def _rest_of(self, one: int, most: float) -> tuple[int, float]:
        """What an exception leaves beyond what is got for it: so much where it is all of a job."""
        return (self.rests[one], 1.0) if one in self.rests else (one, most)

    def _lines(self, queue: QueueName, kind: GpuType) -> Sequence[QuotaLine]:
        return self.attempts.headroom.shares.tree.lines(queue, kind)

    def _share(self, line: QuotaLine) -> int:
        return limits_of(self.attempts.headroom.shares, self.tier).get(line, 0)

    def use(self, line: QuotaLine) -> int:
        """What a queue holds, with what it got in this round, in milli-GPU."""
        headroom = self.attempts.headroom
        return headroom.shares.used.get(line, 0) + headroom.taken.get(line, 0)

    def _is_within(self, line: QuotaLine) -> bool:
        """Whether a queue holds no more than its share: then its own work makes room inside it by leaving."""
        return not holds_more(self.attempts.headroom, self.tier, *line)

    def _left(self, line: QuotaLine) -> int:
        return lines_of(self.attempts.headroom, self.tier).left(line)

    def _served_below(self, line: QuotaLine, *manners: Manner) -> dict[int, float]:
        """The columns of a line's queue, and all below it, with the milli-GPU of one job."""
        tree = self.attempts.headroom.shares.tree
        return {
            column: float(served.option.charge.get(line.gpu_type, 0))
            for column, served in self.served.items()
            if served.manner in manners and line in tree.lines(served.queue, line.gpu_type)
        }

    def _charged_lines(self) -> list[QuotaLine]:
        lines = {
            line
            for served in self.served.values()
            for kind, milli in served.option.charge.items()
            if milli
            for line in self._lines(served.queue, kind)
        }
        return sorted(lines)

    def _own_credit(self, line: QuotaLine) -> dict[int, float]:
        """What leaves below a line for jobs of its own queue that holds no more than its share."""
        held, tree = self.attempts.evictable.allocations, self.attempts.headroom.shares.tree
        found = dict[int, float]()
        for (group, known), column in self.credits.items():
            holder, family = held.holders[self.groups[group][0]], self.families[known]
            own = QuotaLine(family.queue, line.gpu_type)
            if (
                holder.job.spec.queue == family.queue
                and holder.charge.get(line.gpu_type)
                and line in tree.lines(family.queue, line.gpu_type)
                and self._is_within(own)
            ):
                found[column] = -1.0
        return found

    def _rows_inside(self) -> None:
        """What is served inside a share fits in it, beside what is served ahead of lower work."""
        for line in self._charged_lines():
            inside = self._served_below(line, "inside")
            if not inside or self._share(line) == UNBOUNDED:
                continue
            left = float(self._left(line))
            ahead = self._served_below(line, "ahead", "firm")
            every = {**inside, **ahead, **self._own_credit(line)}
            beyond = self.most_of(ahead) - left
            if not ahead or beyond <= 0:
                self.builder.at_most(every, left)
                continue
            # What is served ahead of lower work may lie beyond the share afterwards; but then nothing is served inside it.
            some = self.builder.column(1)
            self.builder.at_most({**inside, some: -self.most_of(inside)}, 0.0)
            self.builder.at_most({**every, some: beyond}, left + beyond)

    def most_of(self, terms: Mapping[int, float]) -> float:
        """The most that a sum of columns could be."""
        return sum(factor * self.builder.most(column) for column, factor in terms.items())

    def _left_ahead(self, queue: QueueName, kind: GpuType, seniority: tuple[int, int]) -> int:
        """What fits in the shares once all lower work of a queue stands behind it."""
        lower = self._lower(queue, kind, seniority)
        return left_inside(self.attempts.headroom, self.tier, queue, kind, lower) if lower else 0

    def _rows_ahead(self) -> None:
        """In each queue, what is served of a seniority or more lies inside beside the work of that seniority or more."""
        wanted = {
            (served.queue, kind, self.seniority(served.job_class.preemptor))
            for served in self.served.values()
            if served.manner == "ahead" and not served.job_class.firm
            for kind in served.option.charge
        }
        for queue, kind, seniority in sorted(wanted):
            terms = {
                column: float(served.option.charge.get(kind, 0))
                for column, served in self.served.items()
                if served.queue == queue and self.seniority(served.job_class.preemptor) >= seniority
            }
            left = float(self._left_ahead(queue, kind, seniority))
            ahead = {c: f for c, f in terms.items() if self._is_ahead_at(c, seniority)}
            beyond = self.most_of(terms) - self.most_of(ahead) - left
            if beyond <= 0 or self.is_large:  # there a choice of its own costs branching
                self.builder.at_most(terms, left)
                continue
            # Nothing of this seniority stands ahead: then the others need not leave room for it.
            some = self.builder.column(1)
            self.builder.at_most({**ahead, some: -self.most_of(ahead)}, 0.0)
            self.builder.at_most({**terms, some: beyond}, left + beyond)

    def _is_ahead_at(self, column: int, seniority: tuple[int, int]) -> bool:
        served = self.served[column]
        return served.manner == "ahead" and self.seniority(served.job_class.preemptor) == seniority

    def _left_of_firm(self, line: QuotaLine) -> int:
        return max(0, self._share(line) - self.firm_used.get(line, 0))

    def _rows_of_firm(self) -> None:
        for line in self._charged_lines():
            terms = {
                column: milli
                for column, milli in self._served_below(line, "inside", "ahead", "firm").items()
                if self.served[column].job_class.firm
            }
            if any(self.served[column].manner != "inside" for column in terms):
                self.builder.at_most(terms, float(self._left_of_firm(line)))

    def _rows_of_givers(self) -> None:
        """For a fair share a queue gives what it holds above its own; one job beyond that where the least served still gain."""
        given, ones = (
            defaultdict[QuotaLine, dict[int, float]](dict),
            defaultdict[tuple[QuotaLine, int], dict[int, float]](dict),
        )
        for (group, known), column in self.credits.items():
            if self.tier == "fair" and not self._could_be_fairer(group, known):
                self.builder.at_most({column: 1.0}, 0.0)
                continue
            for line in self._lines_apart(group, known):
                if self.tier == "value" and line.queue in self.attempts.evictable.rules.for_guarantees:
                    continue
                given[line][column] = 1.0
                if self.tier == "fair" and (group, known) in self.exceptions:
                    one, sizes = self.exceptions[group, known], ones[line, known]
                    size = float(self.attempts.evictable.allocations.leave[self.groups[group][0]])
                    sizes[one] = sizes.get(one, 0.0) + self.builder.most(column) if one in self.rests else size
        for line, terms in given.items():
            self._row_of_giver(line, terms, {known: found for (of, known), found in ones.items() if of == line})

    def _could_be_fairer(self, group: int, known: int) -> bool:
        """Whether the least served may have more by it: the preemptors' branch, beside that of the holder, is below its share."""
        holder, queue = self.attempts.evictable.allocations.holders[self.groups[group][0]], self.families[known].queue
        if holder.job.spec.queue == queue:
            return True
        tree, fair = self.attempts.headroom.shares.tree, self.attempts.headroom.shares.fair
        _, mine, _ = tree.parting(holder.job.spec.queue, queue)
        lines = (QuotaLine(mine, kind) for kind, milli in holder.charge.items() if milli)
        return all(self.use(line) < fair.get(line, 0) for line in lines)

    def _lines_apart(self, group: int, known: int) -> Iterator[QuotaLine]:
        """The lines of a holder's queue, from it up, to below the first that it shares with a family's."""
        held, family = self.attempts.evictable.allocations, self.families[known]
        holder, tree = held.holders[self.groups[group][0]], self.attempts.headroom.shares.tree
        path = tree.path(family.queue)
        if holder.job.spec.queue != family.queue:
            for kind in filter(holder.charge.get, holder.charge):
                yield from takewhile(lambda line: line.queue not in path, self._lines(holder.job.spec.queue, kind))

    def _row_of_giver(self, line: QuotaLine, terms: dict[int, float], ones: Mapping[int, Mapping[int, float]]) -> None:
        headroom = self.attempts.headroom
        above = max(0, self.use(line) - headroom.shares.fair.get(line, 0))
        beyond = dict[int, float]()
        for known, columns in ones.items():
            spare = dict(to_spare(headroom, self.families[known].queue, line.gpu_type)).get(line.queue, 0)
            # It keeps more of its share than the preemptor's branch had of its own.
            if above and (more := float(spare - 1 - above)) > 0:
                beyond |= {one: min(more, size) for one, size in columns.items()}
        if beyond:
            # Once for all preemptors: after the first it holds no more than its share.
            column = self.builder.column(max(beyond.values()), integer=False)
            self.builder.at_most({column: 1.0, **{one: -more for one, more in beyond.items()}}, 0.0)
            if not self.rests.keys().isdisjoint(beyond):
                # No more of a gang than leaves of it.
                given = {one: 1.0 if one in self.rests else more for one, more in beyond.items()}
                given |= {self.rests[one]: 1.0 for one in beyond if one in self.rests}
                self.builder.at_most({column: 1.0, **{one: -more for one, more in given.items()}}, 0.0)
            terms[column] = -1.0
        self.builder.at_most(terms, float(above))

    def _rows_of_max(self) -> None:
        held, headroom = self.attempts.evictable.allocations, self.attempts.headroom
        for line in self._charged_lines():
            if line not in headroom.shares.max:
                continue
            left = float(headroom.shares.max[line] - self.use(line))
            terms = self._served_below(line, "inside", "ahead", "firm")
            below = held.below[line.queue]
            if line.gpu_type in held.gpu_types:
                kind = held.gpu_types.index(line.gpu_type)
                for number, column in self.leaving.items():
                    if below.start <= number < below.stop and held.charge[number, kind]:
                        terms[column] = -float(held.charge[number, kind])
            if left < 0:
                # A limit that is broken already: as much has to leave before anybody is served.
                served = {column: milli for column, milli in terms.items() if milli > 0}
                some = self.builder.column(1)
                self.builder.at_most({**served, some: -self.most_of(served)}, 0.0)
                self.builder.at_most({**terms, some: -left}, 0.0)
            else:
                self.builder.at_most(terms, left)

    def _rows_of_lending(self) -> None:
        """No more is lent than may be, once others have left."""
        headroom, holders = self.attempts.headroom, self.attempts.evictable.allocations.holders
        served = (ChargedColumn(known.queue, known.option.charge, column) for column, known in self.served.items())
        left = (
            ChargedColumn(
                holders[number].job.spec.queue, {kind: -milli for kind, milli in holders[number].charge.items()}, column
            )
            for number, column in self.leaving.items()
        )
        LendingRows(self.builder, headroom.shares, headroom.taken).state((*served, *left))

    def _rows_of_users(self) -> None:
        users, terms = self.attempts.users, defaultdict[CapLine, dict[int, float]](dict)
        for column, served in self.served.items():
            for line, amount in users.caps.charges(served.job_class.first.job, served.option.charge):
                terms[line][column] = float(amount)
        for line, charged in terms.items():
            left, back = users.caps.most(line) - users.used(line), self._given_back(line)
            # What leaves makes room below a max of CPU or memory; where that is broken already, once it is kept again.
            some, most = self.builder.column(1), self.most_of(charged)
            slack = max(most, -left)  # nothing is asked of a broken cap as long as nothing is served below it
            self.builder.at_most({**charged, some: -most}, 0.0)
            self.builder.at_most({**charged, **back, some: slack}, left + slack)

    def _given_back(self, line: CapLine) -> dict[int, float]:
        """What leaves of CPU or memory below a queue."""
        if not isinstance(line, HostLine):
            return {}
        held, found = self.attempts.evictable.allocations, dict[int, float]()
        below = held.below[line.queue]
        for number, column in self.leaving.items():
            if below.start <= number < below.stop and line.user in (None, held.holders[number].job.user):
                beside = sum_of(shape for _, shape in tasks_with_shapes(held.holders[number].job))
                amount = beside.cpu if line.resource == "cpu" else beside.memory
                if amount:
                    found[column] = -float(amount)
        return found

    def _rows_per_round(self) -> None:
        most = self.limits.per_round
        if most is None:
            return
        held, gangs = self.attempts.evictable.allocations, defaultdict[int, list[int]](list)
        overdue = [family for family in self.families if family.preemptor.overdue]
        for number, column in self.leaving.items():
            if not any(family.lawful[number] for family in overdue):
                gangs[int(held.base[number])].append(column)
        asked = dict.fromkeys(self.moving.values(), 1.0)
        for columns in gangs.values():
            one = self.builder.column(1)
            asked[one] = 1.0
            for column in columns:
                self.builder.at_most({column: 1.0, one: -1.0}, 0.0)
        self.builder.at_most(asked, float(max(0, most - self.asked_before)))

    def rank(self, number: int) -> int:
        """The place of a holder's value among those of its queue, the lowest 0."""
        rules = self.attempts.evictable.rules
        holder = rules.holders[number]
        return rules.ranks[holder.job.spec.queue, holder.base_priority]


def _most_tasks(shape: Shape, gpus: int) -> int:
    """Tasks of a shape for which so many GPUs suffice; any number of those that need none."""
    return gpus * MILLI_PER_GPU // int(shape.cost) if shape.cost else 10**6
