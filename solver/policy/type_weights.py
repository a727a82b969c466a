"""What a GPU of each type is worth beside one of another: which of several types that a job likes equally it gets.

A weight is a number without a unit, like those of Slurm's TRESBillingWeights; only how weights compare matters. They never
change what a queue is charged, which is counted for each type on its own; and where GPUs of all types are added up, for dominant
shares (quota/dominance), they change the order of demand alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from solver.model.cluster import GpuType
from solver.model.document import Document

UNSTATED = 1.0
"""The weight of a type of which the policy says nothing."""


class GpuTypeWeight(Document, frozen=True):
    """The weight of one GPU of a type."""

    gpu_type: GpuType
    weight: float


TypeWeights = Mapping[GpuType, float]
"""By type; what is missing weighs `UNSTATED`."""


def weights_of(stated: Iterable[GpuTypeWeight]) -> dict[GpuType, float]:
    """The weights that a policy states."""
    return {known.gpu_type: known.weight for known in stated}


def weighed(milli: Mapping[GpuType, float], weights: TypeWeights) -> float:
    """Milli-GPU of several types added up."""
    return sum(count * weights.get(gpu_type, UNSTATED) for gpu_type, count in milli.items())


def above_lightest(gpu_types: Iterable[GpuType], weights: TypeWeights) -> dict[GpuType, float]:
    """By how much a GPU of each of these types weighs more than one of the lightest of them."""
    stated = {gpu_type: weights.get(gpu_type, UNSTATED) for gpu_type in gpu_types}
    return {gpu_type: weight - min(stated.values()) for gpu_type, weight in stated.items()}


def by_name(stated: Iterable[GpuTypeWeight]) -> tuple[GpuTypeWeight, ...]:
    """In an order of their own: where they stand in a document means nothing."""
    return tuple(sorted(stated, key=lambda known: known.gpu_type))
