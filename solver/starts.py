"""Jobs that start, and what a set of starts is worth in each layer: the yardstick for any two answers to a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from solver.placement import Placed
from solver.rules.demand import Candidate, Option, SubLayer
from solver.rules.entitlement import Headroom, Inside, Shares
from solver.world.cluster import GpuType
from solver.world.quantities import MILLI_PER_GPU
from solver.world.room import Room
from solver.world.workload import QueueName, Shape

ENTITLED = "entitled."
FAIR = "fair."
LEFTOVER = "leftover."
FIT = "fit"
"""Names of layers: all but the last are followed by a sub-layer."""


@dataclass(frozen=True, slots=True)
class Start:
    """A job that starts in this round: how it is served and where."""

    candidate: Candidate
    option: Option
    placed: Placed

    @property
    def queue(self) -> QueueName:
        """Who is charged."""
        return self.candidate.job.spec.queue

    @property
    def shapes(self) -> dict[str, Shape]:
        """What a task of each group takes."""
        groups = self.candidate.job.spec.task_groups
        return {group.name: shape for group, shape in zip(groups, self.option.shapes, strict=True)}

    def take_from(self, room: Room) -> None:
        """Take exactly its devices from a room with the same free capacity as the one it was placed in."""
        shapes = self.shapes
        for task in self.placed.tasks:
            room.hold(task, shapes[task.group])

    @property
    def misfit(self) -> float:
        """How far from its wishes, in GPUs: down its list of types, and outside its preferred level."""
        return misfit(self.option, self.placed.preferred_met)


def misfit(option: Option, preferred_met: bool) -> float:
    """What the fit layer makes small."""
    return option.worth * (option.fallback + (not preferred_met))


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """Milli-GPU of one queue, type and place in the order: what entitlement is counted in. Sorts as it is served."""

    sub_layer: SubLayer
    band: int
    queue: QueueName
    gpu_type: GpuType


def segments_of(candidate: Candidate, option: Option) -> Iterable[tuple[Segment, int]]:
    """The segments a gang falls into under an option, and its milli-GPU in each."""
    queue = candidate.job.spec.queue
    for gpu_type, milli in sorted(option.charge.items()):
        yield Segment(candidate.sub_layer, candidate.band, queue, gpu_type), milli


def parts_inside(milli: Mapping[Segment, int], inside: Inside) -> dict[Segment, int]:
    """The most of each segment that lies inside the lines (guarantees, or fair shares) of every queue on its path.

    Such lines nest, so serving segments in order is optimal for every layer at once (the greedy algorithm on a
    polymatroid; J. Edmonds, "Submodular functions, matroids, and certain polyhedra", 1970).
    """
    return {segment: inside.take(segment.queue, {segment.gpu_type: milli[segment]}) for segment in sorted(milli)}


def layer_names(sub_layers: Sequence[SubLayer]) -> tuple[str, ...]:
    """Entitled demand by sub-layer, fair shares of idle capacity by sub-layer, what is left over by sub-layer, then fit."""
    return (*(f"{kind}{layer}" for kind in (ENTITLED, FAIR, LEFTOVER) for layer in sub_layers), FIT)


def layer_values(starts: Sequence[Start], sub_layers: Sequence[SubLayer], shares: Shares) -> tuple[float, ...]:
    """What the starts are worth in each layer, in GPUs, in the order of `layer_names`; fit counts downwards from 0.

    The fair and the left-over layers count all that their sub-layer got inside a fair share, or at all: what the layers
    above settled is part of it, so only the rest can differ.
    """
    milli: dict[Segment, int] = {}
    weight: dict[Segment, float] = {}
    for start in starts:
        for segment, count in segments_of(start.candidate, start.option):
            milli[segment] = milli.get(segment, 0) + count
            weight[segment] = start.candidate.weight
    headroom = Headroom(shares)
    entitled = _by_layer(parts_inside(milli, headroom.entitled), weight, sub_layers)
    fair = _by_layer(parts_inside(milli, headroom.fair), weight, sub_layers)
    served = dict.fromkeys(sub_layers, 0.0)
    for start in starts:
        served[start.candidate.sub_layer] += start.candidate.weight * start.option.worth
    values = (*entitled, *fair, *served.values(), 0.0 - sum(start.misfit for start in starts))
    # Answers are compared layer by layer: the order in which floats were added up must not decide between them.
    return tuple(round(value, 9) for value in values)


def _by_layer(
    parts: Mapping[Segment, int], weight: Mapping[Segment, float], sub_layers: Sequence[SubLayer]
) -> tuple[float, ...]:
    worth = dict.fromkeys(sub_layers, 0.0)
    for segment, part in parts.items():
        worth[segment.sub_layer] += weight[segment] * part / MILLI_PER_GPU
    return tuple(worth.values())
