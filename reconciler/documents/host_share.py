"""What is wrong with what GPUs of a pool carry of CPU and memory: pools that there are not, or that are named twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.policy.policy import SchedulingPolicy


def host_share_problems(
    documents: Iterable[Declaration[SchedulingPolicy]], pools: Collection[str] | None
) -> Iterator[Problem]:
    """`pools`: the names of all node pools; None where they are not known, and then none is called unknown."""
    for settings in documents:
        seen: set[str] = set()
        for index, entry in enumerate(settings.value.host_share):
            at: Path = ("spec", "hostShare", index, "pool")
            if entry.pool in seen:
                yield settings.problem(at, "duplicate-pool", f"{entry.pool} has two host shares", "Keep one of them.")
            seen.add(entry.pool)
            if pools is not None and entry.pool not in pools:
                yield settings.problem(
                    at, "unknown-pool", f"there is no NodePool {entry.pool}", did_you_mean(entry.pool, pools)
                )
