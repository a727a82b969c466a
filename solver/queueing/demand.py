"""What wants to start this round: each pending job with its place in the order and the GPU types it may use.

Order (DESIGN section 5): SLO class, then the rank of the job's priority value (queueing/ranks) among its own queue's waiting
values, so that no team outranks another by writing larger numbers; inside such a sub-layer the jobs that waiting has lifted
them by the most bands, and in one band the queue furthest below its guarantee first, counting what its earlier jobs would
already take; then, above guarantees, the queue with the least dominant share by weight (quota/dominance).
Which job of one queue is earlier is the queue's own affair (queueing/turns); nothing here ever turns its order round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from solver.capacity.reserved_view import NOBODY, Against
from solver.model.quantities import Instant
from solver.model.workload import Job, JobName, JobSpec, QueueName
from solver.policy.policy import SLO_CLASSES, Policy
from solver.policy.precedence import ordering_of
from solver.policy.tree import QuotaLine
from solver.queueing.entry import may_borrow
from solver.queueing.fallback import as_open_at
from solver.queueing.ranks import RANKS_MAX, ranks_of
from solver.queueing.turns import Seniority, in_turn, rising, with_those_behind
from solver.queueing.user_turns import with_users_in_turn
from solver.quota.dominance import HostUse, Owed, beside_wanted
from solver.quota.entitlement import Charge, Shares
from solver.quota.options import Option

BANDS = 64
"""Steps of the place in the order that the program tells apart. More would split job classes without changing plans."""

FIRST_OVER_LAST = 0.07
"""How much more a GPU of the first job in the order counts than one of the last: order matters, packing still may."""

AGE_BANDS_MAX = 8
"""Bands by which waiting can lift a job (DESIGN section 5)."""

HOUR_MS = 3_600_000


class SubLayer(NamedTuple):
    """Which GPUs are served before which: SLO class (as index in SLO_CLASSES), then priority rank.

    All that gangs need to start comes before all by which they grow.
    """

    growth: bool
    slo: int
    rank: int

    def __str__(self) -> str:
        return f"{SLO_CLASSES[self.slo]}.{self.rank}{'.growth' if self.growth else ''}"

    @property
    def of_growth(self) -> SubLayer:
        """Where the GPUs count by which its gangs grow."""
        return self._replace(growth=True)


Turn = tuple[Seniority, float, tuple[Instant, JobName], int]
"""Sorts a job among those of all queues: seniority, position of its queue, submission, place in its queue."""


@dataclass(frozen=True, slots=True)
class StartCandidate:
    """A pending job that may start, with its place in the order.

    `likeness` is the same number for jobs of one queue that ask for the same (and are one user's, where that matters):
    what one can't have, none of them can. `inside_only`: it may start only inside its guarantee at every level. `strict`: it
    may not delay one of its queue that comes earlier and waits. `against`: the holders of reservations that hold it back.
    """

    job: Job
    sub_layer: SubLayer
    band: int
    options: tuple[Option, ...]
    likeness: int
    inside_only: bool = False
    strict: bool = False
    against: Against = NOBODY

    def is_inside_only(self, option: Option) -> bool:
        """Whether it starts this way only inside its guarantee: it may not borrow, or is too early for these types."""
        return self.inside_only or option.inside_only

    @property
    def weight(self) -> float:
        """What one of its GPUs counts for: between 1 (last in the order) and 1.07 (first)."""
        return 1 + FIRST_OVER_LAST * (BANDS - 1 - self.band) / (BANDS - 1)

    @property
    def can_grow(self) -> bool:
        """Whether its gang may be larger, in GPUs, than it must be to start."""
        return any(option.growth for option in self.options)


def sub_layers_of(candidates: Iterable[StartCandidate]) -> tuple[SubLayer, ...]:
    """The sub-layers that candidates fall into, in the order in which they are served."""
    layers = set()
    for candidate in candidates:
        layers.add(candidate.sub_layer)
        if candidate.can_grow:
            layers.add(candidate.sub_layer.of_growth)
    return tuple(sorted(layers))


def age_band(job: Job, policy: Policy, now: Instant) -> int:
    """By how many bands its waiting lifts a job: 0 (just submitted, or its class does not age) to AGE_BANDS_MAX."""
    known = policy.priority_class(job)
    waited_h = max(0, now - job.submitted_at) / HOUR_MS
    return min(AGE_BANDS_MAX, int(waited_h * known.aging_per_hour)) if known else 0


def in_order(
    jobs: Iterable[tuple[Job, tuple[Option, ...]]], policy: Policy, shares: Shares, now: Instant
) -> tuple[StartCandidate, ...]:
    """Sort admissible jobs into the order in which they are served; `now` is what waiting is counted up to."""
    admitted = [(job, as_open_at(choices, job, policy, now)) for job, choices in jobs]
    asked = [job for job, _ in admitted]
    layers = _sub_layers(asked, policy, ranks_of(asked, policy, shares.tree))
    turns = _turns_of(admitted, layers, policy, shares, now)
    options = {job.name: choices for job, choices in admitted}
    per_layer: dict[SubLayer, list[Job]] = defaultdict(list)
    for job in sorted(asked, key=lambda job: turns[job.name]):
        per_layer[layers[job.name]].append(job)
    likeness: dict[object, int] = {}
    return tuple(
        _candidate(job, layer, place * BANDS // len(members), options[job.name], policy, shares, now, likeness)
        for layer, members in per_layer.items()
        for place, job in enumerate(members)
    )


def with_turns(
    jobs: Iterable[tuple[Job, tuple[Option, ...]]],
    ranks: Mapping[JobName, int],
    policy: Policy,
    shares: Shares,
    now: Instant,
    likeness: dict[object, int],
    before: Mapping[JobName, StartCandidate],
) -> list[tuple[Turn, StartCandidate]]:
    """Admissible jobs of one queue in its own order, each with its turn among those of all queues: sorted by turns, the queues'
    jobs are in the order of a round. `ranks`: of these jobs among all that wait. `likeness`: known ones, to which it adds.
    `before`: jobs as they were found for the same instant.
    """
    admitted = [(job, as_open_at(choices, job, policy, now)) for job, choices in jobs]
    layers = _sub_layers([job for job, _ in admitted], policy, ranks)
    turns = _turns_of(admitted, layers, policy, shares, now)

    def candidate(job: Job, choices: tuple[Option, ...]) -> StartCandidate:
        known = before.get(job.name)
        if known is not None and known.sub_layer == layers[job.name]:
            return known
        return _candidate(job, layers[job.name], 0, choices, policy, shares, now, likeness)

    return sorted(((turns[job.name], candidate(job, choices)) for job, choices in admitted), key=itemgetter(0))


def _candidate(
    job: Job,
    layer: SubLayer,
    band: int,
    options: tuple[Option, ...],
    policy: Policy,
    shares: Shares,
    now: Instant,
    known: dict[object, int],
) -> StartCandidate:
    inside_only = not may_borrow(job, policy, now)
    alike = _likeness(job, options, shares, known, inside_only=inside_only)
    in_line = ordering_of(shares.tree, job.spec.queue).in_line
    return StartCandidate(job, layer, band, options, alike, inside_only, in_line)


def _turns_of(
    admitted: Sequence[tuple[Job, tuple[Option, ...]]],
    layers: Mapping[JobName, SubLayer],
    policy: Policy,
    shares: Shares,
    now: Instant,
) -> dict[JobName, Turn]:
    """Merge what each queue has in its own order: by seniority, then by how far the queue would be towards its guarantee."""
    jobs, options = [job for job, _ in admitted], {job.name: choices for job, choices in admitted}
    aged = {job.name: age_band(job, policy, now) for job in jobs}
    bands = with_those_behind(jobs, aged, {name: layer.slo for name, layer in layers.items()}, shares.tree)
    seniority = {name: Seniority(layer.slo, layer.rank, AGE_BANDS_MAX - bands[name]) for name, layer in layers.items()}
    turn: dict[JobName, Turn] = {}
    for line in in_turn(jobs, seniority, policy, shares.tree, shares.precedence):
        members = with_users_in_turn(line, seniority, options, shares)
        turn |= _turns(members, rising(members, seniority), options, shares)
    return turn


def _likeness(
    job: Job, options: tuple[Option, ...], shares: Shares, known: dict[object, int], *, inside_only: bool
) -> int:
    spec = job.spec
    user = job.user if shares.users.user_matters(spec.queue) else ""
    asked = (spec.queue, spec.task_groups, spec.effective_topology, user, options, inside_only)
    return known.setdefault(asked, len(known))


def _sub_layers(jobs: Sequence[Job], policy: Policy, ranks: Mapping[JobName, int]) -> dict[JobName, SubLayer]:
    """By SLO class and rank."""
    classes = {job.name: policy.priority_class(job) for job in jobs}
    last = SubLayer(False, len(SLO_CLASSES) - 1, RANKS_MAX - 1)
    of_class = {
        slo_class: [SubLayer(False, slo, rank) for rank in range(RANKS_MAX)]
        for slo, slo_class in enumerate(SLO_CLASSES)
    }
    return {name: of_class[known.slo_class][ranks[name]] if known else last for name, known in classes.items()}


def _turns(
    members: Sequence[Job],
    seniority: Mapping[JobName, Seniority],
    options: Mapping[JobName, tuple[Option, ...]],
    shares: Shares,
) -> Iterator[tuple[JobName, Turn]]:
    """Sort keys for one queue's jobs, given in its own order; they rise along it, so that merging queues keeps it.

    Position: how far the queue would be when the job's turn comes, towards its guarantee and above it.
    The highest age band does not ask: there only jobs submitted earlier come first, so no new job passes one that reached it.
    """
    standing = _Standing(members[0].spec.queue, shares)
    before: Seniority | None = None
    position, submitted = 0.0, (Instant(0), JobName(""))
    for place, job in enumerate(members):
        senior, charge = seniority[job.name], options[job.name][0].charge
        mine = standing.position(charge) if senior.bands_left else 0.0
        at = (job.submitted_at, job.name)
        position, submitted = (mine, at) if senior != before else (max(position, mine), max(submitted, at))
        before = senior
        yield job.name, (senior, position, submitted, place)
        standing.serve(job, charge)


class _Standing:
    """What one queue would hold once the jobs before the next have started, by type and beside GPUs."""

    def __init__(self, queue: QueueName, shares: Shares) -> None:
        self._queue, self._shares = queue, shares
        self._held = {gpu_type: shares.used.get(QuotaLine(queue, gpu_type), 0) for gpu_type in shares.cluster.gpus}
        self._beside = shares.cluster.held_beside.get(queue, HostUse())
        self._not_counted: list[JobSpec] = []

    def serve(self, job: Job, charge: Charge) -> None:
        """The next job has started too."""
        for gpu_type, gpus in charge.items():
            self._held[gpu_type] = self._held.get(gpu_type, 0) + gpus
        self._not_counted.append(job.spec)

    def position(self, charge: Charge) -> float:
        """Below 1: how much of its guarantee the queue has of the types charged. From 1: its dominant share above, by weight."""
        filled = 0.0
        for gpu_type in charge:
            guaranteed = self._shares.guaranteed.get(QuotaLine(self._queue, gpu_type), 0)
            held = self._held.get(gpu_type, 0)
            if held >= guaranteed:
                return self._above()
            filled = max(filled, held / guaranteed)
        return filled if charge else self._above()

    def _above(self) -> float:
        while self._not_counted:
            self._beside = self._beside.plus(beside_wanted(self._not_counted.pop()))
        share = self._owed.dominant_share(self._held, self._beside)
        return 1.0 + share / max(1, self._shares.tree.by_name[self._queue].weight)

    @cached_property
    def _owed(self) -> Owed:
        """What few queues are asked for: those that are above their guarantee."""
        return Owed.to(self._queue, self._shares.guaranteed, self._shares.cluster)
