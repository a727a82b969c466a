"""What is wrong with MigGeometry documents beside the others, and what those that are right say of declared GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from reconciler.documents.declarations import Declaration
from reconciler.documents.inventory import FixedLayouts, NodePoolSpec, Pools
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.cluster import MigInstance
from solver.model.mig import mig_model
from solver.model.mig_layout import find_profile, profiles_of, realisations
from solver.model.mig_table import MODELS
from solver.plan.reason import count
from solver.plan.words import with_article
from solver.policy.division import MigGeometry, SharingPolicy

Geometries = Sequence[Declaration[MigGeometry]]


def mig_problems(
    documents: Geometries, pools: Pools, pools_known: set[str] | None, sharing: Sequence[Declaration[SharingPolicy]]
) -> Iterator[Problem]:
    """`pools_known`: names of all pools, None where some are unreadable."""
    shared = {pool: known for known in sharing for pool in known.value.pools}
    specs = {pool.name: pool.value for pool in pools}
    owner: dict[str, Declaration[MigGeometry]] = {}
    models: dict[str, tuple[str, str]] = {}
    for geometry in documents:
        pool, at = geometry.value.pool, ("spec", "pool")
        yield from _mode_problems(geometry)
        if pools_known is not None and pool not in pools_known:
            yield geometry.problem(at, "unknown-pool", f"there is no NodePool {pool}", did_you_mean(pool, pools_known))
        first = owner.setdefault(pool, geometry)
        if first is not geometry:
            message = f"the pool {pool} is partitioned already, at {first.origin}"
            yield geometry.problem(at, "duplicate-pool", message, "Name it in one MigGeometry.")
        if pool in shared:
            message = f"the pool {pool} is shared, at {shared[pool].origin}: GPUs are divided by one of the two"
            yield geometry.problem(at, "shared-and-partitioned", message, "Keep one of them, or make two pools.")
        if pool in specs:
            yield from _pool_problems(geometry, specs[pool], models)


def with_models(documents: Geometries, pools: Pools) -> tuple[MigGeometry, ...]:
    """The documents, each with the model of its pool's GPUs. They are free of problems."""
    model_of = {pool.name: pool.value.effective_mig_model for pool in pools}
    return tuple(msgspec.structs.replace(known.value, model=model_of[known.value.pool]) for known in documents)


def fixed_layouts(geometries: Sequence[MigGeometry]) -> FixedLayouts:
    """The instances of declared GPUs that are partitioned for good: each layout as its first realisation has it."""
    return {
        known.pool: [_instances(known.model, layout) for layout in known.layouts]
        for known in geometries
        if known.mode == "fixed"
    }


def _instances(model: str, layout: str) -> tuple[MigInstance, ...]:
    return tuple(MigInstance(placed.profile.name, placed.start) for placed in realisations(model, layout)[0])


def _mode_problems(geometry: Declaration[MigGeometry]) -> Iterator[Problem]:
    value = geometry.value
    if value.mode == "free" and value.layouts:
        message = "a free pool has no layouts: a round decides"
        yield geometry.problem(("spec", "layouts"), "not-in-this-mode", message, "Delete them, or choose bounded.")
    if value.mode != "free" and not value.layouts:
        yield geometry.problem(("spec", "mode"), "missing-field", f"a {value.mode} pool needs layouts", "Add some.")
    if value.mode == "fixed" and value.changes is not None:
        message = "a fixed pool is never changed"
        yield geometry.problem(("spec", "changes"), "not-in-this-mode", message, "Delete it, or choose bounded.")


def _pool_problems(
    geometry: Declaration[MigGeometry], pool: NodePoolSpec, models: dict[str, tuple[str, str]]
) -> Iterator[Problem]:
    """`models`: what the pools before have said of each GPU type, and where."""
    name, at = geometry.value.pool, ("spec", "pool")
    if not pool.gpus_per_node:
        yield geometry.problem(at, "no-gpus", f"pool {name} has no GPUs", "Name another pool.")
        return
    model = pool.effective_mig_model
    if not model:
        message = f"nothing says which GPU model the {pool.gpu_type} of pool {name} is"
        fix = f"Add migModel to the NodePool: one of {', '.join(known.name for known in MODELS)}."
        yield geometry.problem(at, "unknown-mig-model", message, fix)
        return
    before, where = models.setdefault(pool.gpu_type, (model, geometry.origin))
    if before != model:
        message = f"GPU type {pool.gpu_type} is {with_article(model)} here and {with_article(before)} at {where}"
        yield geometry.problem(at, "two-mig-models", message, "Give the two kinds of GPU types of their own.")
    if geometry.value.mode == "fixed" and len(geometry.value.layouts) > pool.gpus_per_node:
        message = f"there are {len(geometry.value.layouts)} layouts for {count(pool.gpus_per_node, 'GPU')} in each node"
        yield geometry.problem(("spec", "layouts"), "too-many-layouts", message, "GPU i has layout i: delete the rest.")
    for index, layout in enumerate(geometry.value.layouts):
        yield from _layout_problems(geometry, ("spec", "layouts", index), model, layout)


def _layout_problems(geometry: Declaration[MigGeometry], at: Path, model: str, layout: str) -> Iterator[Problem]:
    try:
        names = profiles_of(layout)
    except ValueError as error:
        yield geometry.problem(at, "layout", str(error), "Join profiles by ` + `.")
        return
    profiles = {profile.name for profile in mig_model(model).profiles}
    unknown = [name for name in dict.fromkeys(names) if find_profile(mig_model(model), name) is None]
    for name in unknown:
        message = f"{with_article(model)} has no profile {name}"
        yield geometry.problem(at, "unknown-mig-profile", message, did_you_mean(name, profiles))
    if not unknown and not realisations(model, layout):
        counted = ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))
        message = f"no {model} can have {counted} at a time"
        yield geometry.problem(at, "impossible-layout", message, "docs/mig.md shows where instances can begin.")
