"""The ways in which a gang can be served: which GPU type each of its groups gets, and what that costs its queue."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from types import MappingProxyType

from solver.capacity.sharing import Sharing
from solver.model.cluster import GpuType, NodeName
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape, kept_to
from solver.model.workload import Job, JobSpec, TaskGroup, Unit
from solver.policy.policy import SloClass
from solver.policy.type_weights import TypeWeights, above_lightest
from solver.quota.entitlement import Charge

OPTIONS_MAX = 16
"""GPU-type combinations tried per job in production, most preferred first: two groups of four types each, or one of sixteen."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve a gang: a GPU type per task group (None: a group without GPUs), and how far down its wish list that is
    (a group that names no type likes all of them equally).

    `heavier`: by how much a GPU of each group weighs more than one of the lightest type; 0 where the group names types.
    `shapes`: what a task of each group takes under it; `charge`: what it costs to start; `wanted`: what it costs at its full size.
    `inside_only`: it is too early for these types, unless the gang lies inside its guarantee (queueing/fallback).
    """

    gpu_types: tuple[GpuType | None, ...]
    fallback: int
    heavier: tuple[float, ...]
    shapes: tuple[Shape, ...]
    charge: Charge = field(hash=False)
    wanted: Charge = field(hash=False)
    inside_only: bool = False

    @property
    def worth(self) -> float:
        """GPUs of the least gang, as a layer counts them; one without GPUs counts a thousandth, so that it is started too."""
        return (sum(self.charge.values()) or 1) / MILLI_PER_GPU

    @property
    def growth(self) -> float:
        """GPUs by which the gang may grow."""
        return (sum(self.wanted.values()) - sum(self.charge.values())) / MILLI_PER_GPU

    def excess_weight(self, tasks: Iterable[int]) -> float:
        """What so many tasks of each group weigh, in GPUs, beyond as many GPUs of the lightest type."""
        parts = zip(tasks, self.shapes, self.heavier, strict=True)
        # Options that weigh the same must not differ by the order in which floats were added up.
        return round(sum(count * shape.cost * more for count, shape, more in parts) / MILLI_PER_GPU, 9)


def option_of_unit(option: Option, unit: Unit, nodes: Sequence[str] | None = None) -> Option:
    """One more unit of a gang that is served so, as a gang of its own. `nodes`: the sets of nodes of its groups, if not theirs."""
    shapes = tuple(option.shapes[number] for number in unit.groups)
    if nodes is not None:
        shapes = tuple(kept_to(shape, name) for shape, name in zip(shapes, nodes, strict=True))
    types = tuple(option.gpu_types[number] for number in unit.groups)
    charge = charge_of(shapes, types, unit.sizes)
    return Option(types, 0, (0.0,) * len(types), shapes, charge, charge, inside_only=True)


def options_of(
    spec: JobSpec,
    known: Iterable[GpuType],
    sharing: Sharing,
    slo_class: SloClass = "standard",
    most: int | None = OPTIONS_MAX,
    weights: TypeWeights = MappingProxyType({}),
    in_set: Mapping[str, Collection[GpuType]] = MappingProxyType({}),
) -> tuple[Option, ...]:
    """The GPU-type combinations a job accepts in this cluster, most preferred first, of those liked equally the lightest.

    () where a group accepts none. `most`: how many of them; None: all. `in_set`: the types of each set of nodes, where they are
    known: one that a group finds there on none of its nodes is left out, unless it finds none at all.
    """
    heavier = above_lightest((gpu_type for gpu_type in known if gpu_type), weights)
    in_cluster = sorted(heavier, key=lambda gpu_type: (heavier[gpu_type], gpu_type))
    per_group = [_accepted(group, in_cluster) for group in spec.task_groups]
    wishes = [bool(group.shape.gpu_types) for group in spec.task_groups]

    def fallback(ranks: tuple[int, ...]) -> int:
        return sum(rank for rank, wish in zip(ranks, wishes, strict=True) if wish)

    every = product(
        *(_there(types, in_set.get(group.nodes)) for types, group in zip(per_group, spec.task_groups, strict=True))
    )
    combined = sorted(every, key=lambda ranks: (fallback(ranks), ranks))
    options = []
    for ranks in islice(combined, most):
        gpu_types = tuple(types[rank] for types, rank in zip(per_group, ranks, strict=True))
        more = (0.0 if wish or not used else heavier[used] for wish, used in zip(wishes, gpu_types, strict=True))
        options.append(_option(spec, gpu_types, fallback(ranks), tuple(more), sharing, slo_class))
    least = [group.least for group in spec.task_groups]
    return tuple(sorted(options, key=lambda option: (option.fallback, option.excess_weight(least))))


def served_alike(spec: JobSpec, slo_class: SloClass) -> Hashable:
    """Equal for jobs that have the same options: queue and class decide with whom GPUs are shared, and nothing else of them."""
    shares_gpus = any(group.shape.is_shared for group in spec.task_groups)
    return spec.task_groups, (spec.queue, slo_class) if shares_gpus else None


def option_of(job: Job, options: Iterable[Option], gpu_types: Mapping[NodeName, GpuType]) -> Option | None:
    """The way in which a job that holds devices is served; None where it is none of these."""
    used = {task.group: gpu_types.get(task.node) for task in job.placement if task.devices}

    def matches(option: Option) -> bool:
        named = zip(job.spec.task_groups, option.gpu_types, strict=True)
        return all(used.get(group.name, gpu_type) == gpu_type for group, gpu_type in named if gpu_type is not None)

    return next(filter(matches, options), None)


def charge_of(shapes: Iterable[Shape], gpu_types: Iterable[GpuType | None], tasks: Iterable[int]) -> Charge:
    """What so many tasks of each group cost, with the shapes that they have on these types."""
    charge: dict[GpuType, int] = {}
    for shape, gpu_type, count in zip(shapes, gpu_types, tasks, strict=True):
        if gpu_type is not None:
            charge[gpu_type] = charge.get(gpu_type, 0) + count * shape.cost
    return charge


def _accepted(group: TaskGroup, in_cluster: list[GpuType]) -> list[GpuType | None]:
    if not group.shape.uses_gpus:
        return [None]
    wishes = group.shape.gpu_types or tuple(in_cluster)
    return [gpu_type for gpu_type in dict.fromkeys(wishes) if gpu_type in in_cluster]


def _there(accepted: list[GpuType | None], in_set: Collection[GpuType] | None) -> list[int]:
    """The places in a wish list of those that the group finds in its set; of all, where it finds none or has no set."""
    found = [place for place, gpu_type in enumerate(accepted) if in_set and gpu_type in in_set]
    return found or [*range(len(accepted))]


def _option(
    spec: JobSpec,
    gpu_types: tuple[GpuType | None, ...],
    fallback: int,
    heavier: tuple[float, ...],
    sharing: Sharing,
    slo_class: SloClass,
) -> Option:
    shapes = tuple(
        kept_to(sharing.served(group.shape, gpu_type, spec.queue, slo_class), group.nodes)
        for group, gpu_type in zip(spec.task_groups, gpu_types, strict=True)
    )
    least = charge_of(shapes, gpu_types, [group.least for group in spec.task_groups])
    wanted = charge_of(shapes, gpu_types, [group.replicas for group in spec.task_groups])
    return Option(gpu_types, fallback, heavier, shapes, least, wanted)
