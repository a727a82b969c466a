"""Jobs that start, and what a set of starts is worth in each layer: the yardstick for any two answers to a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from solver.placement import Placed
from solver.rules.demand import Candidate, Option, SubLayer
from solver.rules.entitlement import Headroom, Shares
from solver.world.cluster import GpuType
from solver.world.workload import QueueName

ENTITLED = "entitled."
IDLE = "idle."
FIT = "fit"
"""Names of layers: the first two are followed by a sub-layer."""


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
    def misfit(self) -> float:
        """How far from its wishes, in GPUs: down its list of types, and outside its preferred level."""
        return misfit(self.candidate.worth, self.option, self.placed.preferred_met)


def misfit(worth: float, option: Option, preferred_met: bool) -> float:
    """What the fit layer makes small."""
    return worth * (option.fallback + (not preferred_met))


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """GPUs of one queue, type and place in the order: what entitlement is counted in. Sorts as it is served."""

    sub_layer: SubLayer
    band: int
    queue: QueueName
    gpu_type: GpuType


def segments_of(candidate: Candidate, option: Option) -> Iterable[tuple[Segment, int]]:
    """The segments a gang's GPUs fall into under an option."""
    queue = candidate.job.spec.queue
    for gpu_type, gpus in sorted(option.charge.items()):
        yield Segment(candidate.sub_layer, candidate.band, queue, gpu_type), gpus


def entitled_parts(gpus: dict[Segment, int], shares: Shares) -> dict[Segment, int]:
    """The most of each segment that lies inside the guarantees of every queue on its path.

    Guarantees nest, so serving segments in order is optimal for every layer at once (the greedy algorithm on a
    polymatroid; J. Edmonds, "Submodular functions, matroids, and certain polyhedra", 1970).
    """
    headroom = Headroom(shares)
    return {segment: headroom.take(segment.queue, {segment.gpu_type: gpus[segment]}) for segment in sorted(gpus)}


def layer_names(sub_layers: Sequence[SubLayer]) -> tuple[str, ...]:
    """Entitled demand by sub-layer, then idle capacity by sub-layer, then fit."""
    return (*(f"{ENTITLED}{layer}" for layer in sub_layers), *(f"{IDLE}{layer}" for layer in sub_layers), FIT)


def layer_values(starts: Sequence[Start], sub_layers: Sequence[SubLayer], shares: Shares) -> tuple[float, ...]:
    """What the starts are worth in each layer, in the order of `layer_names`; fit counts downwards from 0."""
    gpus: dict[Segment, int] = {}
    weight: dict[Segment, float] = {}
    for start in starts:
        for segment, count in segments_of(start.candidate, start.option):
            gpus[segment] = gpus.get(segment, 0) + count
            weight[segment] = start.candidate.weight
    entitled = dict.fromkeys(sub_layers, 0.0)
    for segment, part in entitled_parts(gpus, shares).items():
        entitled[segment.sub_layer] += weight[segment] * part
    served = dict.fromkeys(sub_layers, 0.0)
    for start in starts:
        served[start.candidate.sub_layer] += start.candidate.weight * start.candidate.worth
    # The idle layer counts all that its sub-layer got: with the entitled part settled above, only the idle part can differ.
    return (*entitled.values(), *served.values(), 0.0 - sum(start.misfit for start in starts))
