"""What wants to start this round: each pending job with its place in the order and the GPU types it may use.

Order (DESIGN section 5): SLO class, then the rank of the job's priority value among its own queue's waiting values, so
that no team outranks another by writing larger numbers; inside such a sub-layer the jobs whose waiting has lifted them by
the most bands, and in one band the queue furthest below its guarantee first, counting what its earlier jobs would already take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, product

from solver.rules.entitlement import Charge, Shares
from solver.rules.entry import may_borrow
from solver.rules.policy import SLO_CLASSES, Policy, SloClass
from solver.rules.sharing import Sharing
from solver.rules.tree import Line
from solver.world.cluster import GpuType
from solver.world.quantities import MILLI_PER_GPU, Instant
from solver.world.workload import Job, JobName, JobSpec, QueueName, Shape, TaskGroup

OPTIONS_MAX = 16
"""GPU-type combinations tried per job, most preferred first: two groups of four types each, or one of sixteen."""

RANKS_MAX = 8
"""Priority values told apart per queue and SLO class; lower ones share the last sub-layer."""

BANDS = 64
"""Steps of the place in the order that the program tells apart. More would split job classes without changing plans."""

FIRST_OVER_LAST = 0.07
"""How much more a GPU of the first job in the order counts than one of the last: order matters, packing still may."""

AGE_BANDS_MAX = 8
"""Bands by which waiting can lift a job (DESIGN section 5)."""

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, order=True)
class SubLayer:
    """Which GPUs are served before which: SLO class (as index in SLO_CLASSES), then priority rank inside the queue.

    All that gangs need to start comes before all by which they grow.
    """

    growth: bool = field(default=False, kw_only=True)
    slo: int
    rank: int

    def __str__(self) -> str:
        return f"{SLO_CLASSES[self.slo]}.{self.rank}{'.growth' if self.growth else ''}"

    @property
    def of_growth(self) -> SubLayer:
        """Where the GPUs count by which its gangs grow."""
        return SubLayer(self.slo, self.rank, growth=True)


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve a gang: a GPU type per task group (None: a group without GPUs), and how far down its wish list that is.

    `shapes`: what a task of each group takes under it; `charge`: what it costs to start; `wanted`: what it costs at its full size.
    """

    gpu_types: tuple[GpuType | None, ...]
    fallback: int
    shapes: tuple[Shape, ...]
    charge: Charge = field(hash=False)
    wanted: Charge = field(hash=False)

    @property
    def worth(self) -> float:
        """GPUs of the least gang, as a layer counts them; one without GPUs counts a thousandth, so that it is started too."""
        return (sum(self.charge.values()) or 1) / MILLI_PER_GPU

    @property
    def growth(self) -> float:
        """GPUs by which the gang may grow."""
        return (sum(self.wanted.values()) - sum(self.charge.values())) / MILLI_PER_GPU


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pending job that may start, with its place in the order.

    `likeness` is the same number for jobs of one queue that ask for the same (and are one user's, where that matters):
    what one can't have, none of them can. `inside_only`: it may start only inside its guarantee at every level.
    """

    job: Job
    sub_layer: SubLayer
    band: int
    options: tuple[Option, ...]
    likeness: int
    inside_only: bool = False

    @property
    def weight(self) -> float:
        """What one of its GPUs counts for: between 1 (last in the order) and 1.07 (first)."""
        return 1 + FIRST_OVER_LAST * (BANDS - 1 - self.band) / (BANDS - 1)

    @property
    def can_grow(self) -> bool:
        """Whether its gang may be larger, in GPUs, than it must be to start."""
        return any(option.growth for option in self.options)


def options_of(
    spec: JobSpec, known: Iterable[GpuType], sharing: Sharing, slo_class: SloClass = "standard"
) -> tuple[Option, ...]:
    """The GPU-type combinations a job accepts in this cluster, most preferred first; () where a group accepts none."""
    in_cluster = sorted(gpu_type for gpu_type in known if gpu_type)
    per_group = [_accepted(group, in_cluster) for group in spec.task_groups]
    combined = sorted(product(*(range(len(types)) for types in per_group)), key=lambda ranks: (sum(ranks), ranks))
    return tuple(
        _option(
            spec,
            tuple(types[rank] for types, rank in zip(per_group, ranks, strict=True)),
            sum(ranks),
            sharing,
            slo_class,
        )
        for ranks in islice(combined, OPTIONS_MAX)
    )


def charge_of(shapes: Iterable[Shape], gpu_types: Iterable[GpuType | None], tasks: Iterable[int]) -> Charge:
    """What so many tasks of each group cost, with the shapes that they have on these types."""
    charge: dict[GpuType, int] = {}
    for shape, gpu_type, count in zip(shapes, gpu_types, tasks, strict=True):
        if gpu_type is not None:
            charge[gpu_type] = charge.get(gpu_type, 0) + count * shape.cost
    return charge


def sub_layers_of(candidates: Iterable[Candidate]) -> tuple[SubLayer, ...]:
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
) -> tuple[Candidate, ...]:
    """Sort admissible jobs into the order in which they are served; `now` is what waiting is counted up to."""
    options = {job.name: choices for job, choices in jobs}
    queued = [job for job, _ in jobs]
    layers = _sub_layers(queued, policy)
    seniority = {job.name: (layers[job.name], AGE_BANDS_MAX - age_band(job, policy, now)) for job in queued}
    position = _positions(queued, seniority, options, shares)
    ordered = sorted(queued, key=lambda job: (seniority[job.name], position[job.name], job.submitted_at, job.name))
    per_layer: dict[SubLayer, list[Job]] = defaultdict(list)
    for job in ordered:
        per_layer[layers[job.name]].append(job)
    likeness: dict[object, int] = {}
    inside_only = {job.name: not may_borrow(job, policy, now) for job in queued}

    def alike(job: Job) -> int:
        return _likeness(job, options[job.name], shares, likeness, inside_only=inside_only[job.name])

    return tuple(
        Candidate(job, layer, place * BANDS // len(members), options[job.name], alike(job), inside_only[job.name])
        for layer, members in per_layer.items()
        for place, job in enumerate(members)
    )


def _likeness(
    job: Job, options: tuple[Option, ...], shares: Shares, known: dict[object, int], *, inside_only: bool
) -> int:
    spec = job.spec
    user = job.user if shares.users.user_matters(spec.queue) else ""
    asked = (spec.queue, spec.task_groups, spec.effective_topology, user, options, inside_only)
    return known.setdefault(asked, len(known))


def _accepted(group: TaskGroup, in_cluster: list[GpuType]) -> list[GpuType | None]:
    if not group.shape.uses_gpus:
        return [None]
    wishes = group.shape.gpu_types or tuple(in_cluster)
    return [gpu_type for gpu_type in dict.fromkeys(wishes) if gpu_type in in_cluster]


def _option(
    spec: JobSpec, gpu_types: tuple[GpuType | None, ...], fallback: int, sharing: Sharing, slo_class: SloClass
) -> Option:
    shapes = tuple(
        sharing.served(group.shape, gpu_type, spec.queue, slo_class)
        for group, gpu_type in zip(spec.task_groups, gpu_types, strict=True)
    )
    least = charge_of(shapes, gpu_types, [group.least for group in spec.task_groups])
    wanted = charge_of(shapes, gpu_types, [group.replicas for group in spec.task_groups])
    return Option(gpu_types, fallback, shapes, least, wanted)


def _sub_layers(jobs: list[Job], policy: Policy) -> dict[JobName, SubLayer]:
    classes = {job.name: policy.priority_class(job) for job in jobs}
    waiting: dict[QueueName, set[int]] = defaultdict(set)
    for job in jobs:
        known = classes[job.name]
        waiting[job.spec.queue].add(known.value if known else 0)
    ranks = {
        (queue, value): min(rank, RANKS_MAX - 1)
        for queue, values in waiting.items()
        for rank, value in enumerate(sorted(values, reverse=True))
    }
    return {
        job.name: SubLayer(SLO_CLASSES.index(known.slo_class), ranks[job.spec.queue, known.value])
        if (known := classes[job.name])
        else SubLayer(len(SLO_CLASSES) - 1, RANKS_MAX - 1)
        for job in jobs
    }


def _positions(
    jobs: list[Job],
    seniority: dict[JobName, tuple[SubLayer, int]],
    options: dict[JobName, tuple[Option, ...]],
    shares: Shares,
) -> dict[JobName, float]:
    """How far its queue would be towards its guarantee when this job's turn comes (0: nothing held, 1: all of it).

    The highest age band does not ask: there only jobs submitted earlier come first, so nobody new can pass one that reached it.
    """
    ahead: dict[Line, int] = defaultdict(int)
    position: dict[JobName, float] = {}
    for job in sorted(jobs, key=lambda job: (seniority[job.name], job.submitted_at, job.name)):
        charge = options[job.name][0].charge
        lines = [Line(job.spec.queue, gpu_type) for gpu_type in charge]
        _, bands_left = seniority[job.name]
        position[job.name] = max((_filled(line, ahead[line], shares) for line in lines if bands_left), default=0.0)
        for line in lines:
            ahead[line] += charge[line.gpu_type]
    return position


def _filled(line: Line, ahead: int, shares: Shares) -> float:
    held = shares.used.get(line, 0) + ahead
    guaranteed = shares.guaranteed.get(line, 0)
    if guaranteed:
        return held / guaranteed
    # Without a guarantee everything is borrowed: such queues come after those below theirs, by what they hold per weight.
    return 1.0 + held / max(1, shares.tree.by_name[line.queue].weight)
