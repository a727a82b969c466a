"""What is wrong with the weights of GPU types beside the node pools: types that no pool has, or that are named twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.policy.policy import SchedulingPolicy


def type_weight_problems(
    documents: Iterable[Declaration[SchedulingPolicy]], declared: Collection[str]
) -> Iterator[Problem]:
    """`declared`: the GPU types of all node pools; empty where they are not known, and then no type is called unknown."""
    for settings in documents:
        seen: set[str] = set()
        for index, entry in enumerate(settings.value.gpu_types):
            at: Path = ("spec", "gpuTypes", index, "gpuType")
            if entry.gpu_type in seen:
                message = f"{entry.gpu_type} has two weights"
                yield settings.problem(at, "duplicate-gpu-type", message, "Keep one of them.")
            seen.add(entry.gpu_type)
            if declared and entry.gpu_type not in declared:
                message, fix = f"no NodePool has GPUs of type {entry.gpu_type}", did_you_mean(entry.gpu_type, declared)
                yield settings.problem(at, "unknown-gpu-type", message, fix)
