"""Jobs that start, and what a set of starts is worth in each layer: the yardstick for any two answers to a round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape
from solver.model.workload import JobSpec, QueueName, TaskPlacement
from solver.placement.placement import PlacedGang
from solver.queueing.demand import StartCandidate, SubLayer
from solver.quota.dominance import HostUse
from solver.quota.entitlement import Charge, Inside, QuotaHeadroom, Shares
from solver.quota.options import Option, charge_of

ENTITLED = "entitled."
FAIR = "fair."
LEFTOVER = "leftover."
FIT = "fit"
TYPE_WEIGHT = "type-weight"
"""Names of layers: all but the last two are followed by a sub-layer."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job that starts in this round: how it is served, where, and with how many tasks of each group."""

    candidate: StartCandidate
    option: Option
    placed: PlacedGang
    tasks: tuple[int, ...]
    charge: Charge = field(init=False, compare=False)
    """What it costs its queue."""

    def __post_init__(self) -> None:
        """Work out once what is asked for again and again."""
        object.__setattr__(self, "charge", charge_of(self.option.shapes, self.option.gpu_types, self.tasks))

    @property
    def growth(self) -> float:
        """GPUs beyond those without which it would not start."""
        return (sum(self.charge.values()) - sum(self.option.charge.values())) / MILLI_PER_GPU

    @property
    def queue(self) -> QueueName:
        """The queue that is charged."""
        return self.candidate.job.spec.queue

    @property
    def beside(self) -> HostUse:
        """CPU and memory of all its tasks."""
        cpu = memory = 0
        for shape, count in zip(self.option.shapes, self.tasks, strict=True):
            cpu += int(shape.cpu) * count
            memory += int(shape.memory) * count
        return HostUse(cpu, memory)

    @property
    def inside_only(self) -> bool:
        """Whether all of it must lie inside its guarantee."""
        return self.candidate.is_inside_only(self.option)

    @property
    def shapes(self) -> dict[str, Shape]:
        """What a task of each group takes."""
        groups = self.candidate.job.spec.task_groups
        return {group.name: shape for group, shape in zip(groups, self.option.shapes, strict=True)}

    @property
    def held(self) -> Iterator[tuple[TaskPlacement, Shape]]:
        """Its tasks, each with what it takes."""
        return held_by(self.candidate.job.spec, self.option, self.placed.tasks)

    def joined(self, before: JobStart) -> tuple[TaskPlacement, ...]:
        """The tasks by which it has grown since."""
        there = {(task.group, task.index) for task in before.placed.tasks}
        return tuple(task for task in self.placed.tasks if (task.group, task.index) not in there)

    @property
    def misfit(self) -> float:
        """How far from its wishes, in GPUs: down its list of types, and further apart."""
        return misfit(self.option.worth + self.growth, self.option, self.placed.strain)

    @property
    def excess_weight(self) -> float:
        """How much heavier the GPUs are that it gets than they could be, in GPUs of weight 1."""
        return self.option.excess_weight(self.tasks)


def held_by(spec: JobSpec, option: Option, tasks: Iterable[TaskPlacement]) -> Iterator[tuple[TaskPlacement, Shape]]:
    """Tasks of a gang served this way, each with what it takes."""
    shapes = {group.name: shape for group, shape in zip(spec.task_groups, option.shapes, strict=True)}
    return ((task, shapes[task.group]) for task in tasks)


def misfit(gpus: float, option: Option, strain: float) -> float:
    """What the fit layer makes small, for a gang of so many GPUs."""
    return gpus * (option.fallback + strain)


class Segment(NamedTuple):
    """Milli-GPU of one queue, type and place in the order: what entitlement is counted in. Sorts as it is served.

    What may not borrow is inside by necessity, so it is counted first.
    """

    may_borrow: bool
    sub_layer: SubLayer
    band: int
    queue: QueueName
    gpu_type: GpuType


def segments_of(candidate: StartCandidate, option: Option, charge: Charge) -> Iterable[tuple[Segment, int]]:
    """The segments that a gang of a size falls into, and its milli-GPU in each: those it starts with, those it has grown by."""
    queue, layer, may_borrow = candidate.job.spec.queue, candidate.sub_layer, not candidate.is_inside_only(option)
    for gpu_type, milli in sorted(charge.items()):
        least = option.charge[gpu_type]
        yield Segment(may_borrow, layer, candidate.band, queue, gpu_type), least
        if milli > least:
            yield Segment(may_borrow, layer.of_growth, candidate.band, queue, gpu_type), milli - least


def parts_inside(milli: Mapping[Segment, int], inside: Inside) -> dict[Segment, int]:
    """The most of each segment that lies inside the lines (guarantees, or fair shares) of every queue on its path.

    Such lines nest, so serving segments in order is optimal for every layer at once (the greedy algorithm on a
    polymatroid; J. Edmonds, "Submodular functions, matroids, and certain polyhedra", 1970).
    """
    return {segment: inside.take_of(segment.queue, segment.gpu_type, milli[segment]) for segment in sorted(milli)}


def layer_names(sub_layers: Sequence[SubLayer]) -> tuple[str, ...]:
    """Entitled demand by sub-layer, fair shares of idle capacity by sub-layer, what is left over by sub-layer, fit, weights."""
    return (*(f"{kind}{layer}" for kind in (ENTITLED, FAIR, LEFTOVER) for layer in sub_layers), FIT, TYPE_WEIGHT)


def layer_values(
    starts: Sequence[JobStart], sub_layers: Sequence[SubLayer], shares: Shares, outside: Sequence[JobStart] = ()
) -> tuple[float, ...]:
    """What the starts are worth in each layer, in GPUs, in the order of `layer_names`; the last two count downwards from 0.

    The fair and the left-over layers count all that their sub-layer got inside a fair share, or at all: what the layers
    above settled is part of it, so only the rest can differ. `outside`: starts whose least size is counted inside no share here;
    what they have grown by is, as any other's.
    """
    milli: dict[Segment, int] = {}
    weight: dict[Segment, float] = {}
    every, headroom = (*starts, *outside), QuotaHeadroom(shares)
    for number, start in enumerate(every):
        for segment, count in segments_of(start.candidate, start.option, start.charge):
            if number < len(starts) or segment.sub_layer.growth:
                milli[segment] = milli.get(segment, 0) + count
                weight[segment] = start.candidate.weight
    entitled = _by_layer(parts_inside(milli, headroom.entitled), weight, sub_layers)
    fair = _by_layer(parts_inside(milli, headroom.fair), weight, sub_layers)
    served = dict.fromkeys(sub_layers, 0.0)
    for start in every:
        layer, weighs = start.candidate.sub_layer, start.candidate.weight
        served[layer] += weighs * start.option.worth
        if start.growth:
            served[layer.of_growth] += weighs * start.growth
    unfit, heavy = sum(start.misfit for start in every), sum(start.excess_weight for start in every)
    values = (*entitled, *fair, *served.values(), 0.0 - unfit, 0.0 - heavy)
    # Answers are compared layer by layer: the order in which floats were added up must not decide between them.
    return tuple(round(value, 9) for value in values)


def _by_layer(
    parts: Mapping[Segment, int], weight: Mapping[Segment, float], sub_layers: Sequence[SubLayer]
) -> tuple[float, ...]:
    worth = dict.fromkeys(sub_layers, 0.0)
    for segment, part in parts.items():
        worth[segment.sub_layer] += weight[segment] * part / MILLI_PER_GPU
    return tuple(worth.values())
