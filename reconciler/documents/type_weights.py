"""What is wrong with weights and peaks of GPU types beside the node pools: types that no pool has, or that are named twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.cluster import GpuType
from solver.policy.policy import SchedulingPolicy


def type_weight_problems(
    documents: Iterable[Declaration[SchedulingPolicy]], declared: Collection[str]
) -> Iterator[Problem]:
    """`declared`: the GPU types of all node pools; empty where they are not known, and then no type is called unknown."""
    for settings in documents:
        weights = [entry.gpu_type for entry in settings.value.gpu_types]
        peaks = [entry.gpu_type for entry in settings.value.gpu_use.peaks]
        yield from _problems(settings, ("spec", "gpuTypes"), "weights", weights, declared)
        yield from _problems(settings, ("spec", "gpuUse", "peaks"), "peaks", peaks, declared)


def _problems(
    settings: Declaration[SchedulingPolicy], of: Path, what: str, types: Iterable[GpuType], declared: Collection[str]
) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, gpu_type in enumerate(types):
        at: Path = (*of, index, "gpuType")
        if gpu_type in seen:
            yield settings.problem(at, "duplicate-gpu-type", f"{gpu_type} has two {what}", "Keep one of them.")
        seen.add(gpu_type)
        if declared and gpu_type not in declared:
            message, fix = f"no NodePool has GPUs of type {gpu_type}", did_you_mean(gpu_type, declared)
            yield settings.problem(at, "unknown-gpu-type", message, fix)
