"""From any instances to any others, one deed at a time: what stays is not touched, and whoever is killed on the way is followed."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.node.nvml.driver import GpuUuid, Instance, InstancePlacement, Mig
from reconciler.node.nvml.library.nvml import NvmlDriver
from reconciler.node.nvml.partitioning import STEPS_MAX, PartitionRequest, partition
from reconciler.node.nvml.profiles import vocabulary_of
from reconciler.node.nvml.steps import Create, CreateCompute, Destroy, DestroyCompute, SetMode, next_step
from solver.model.cluster import DeviceId, MigInstance
from solver.model.mig import Geometry, geometries, mig_model
from tests.drawn import worlds
from tests.reconciler.node.nvml.conftest import installed
from tests.reconciler.node.nvml.library import Library
from tests.reconciler.node.nvml.made import PRODUCTS, card_of

GPU = DeviceId("n1/0")
ONE, TWO = InstancePlacement(19, 0, 1), InstancePlacement(14, 2, 2)


def whole(instance_id: int, place: InstancePlacement) -> Instance:
    return Instance(instance_id, place, (0,), f"MIG-{instance_id}")


def mig(*instances: Instance) -> Mig:
    return Mig(enabled=True, pending=True, instances=instances)


@pytest.mark.parametrize(
    ("there", "wanted", "step"),
    [
        (Mig(enabled=False, pending=False), None, None),
        (Mig(enabled=False, pending=True), None, None),
        (Mig(enabled=False, pending=False), (), SetMode(on=True)),
        (mig(), None, SetMode(on=False)),
        (mig(), (), None),
        (mig(), (TWO, ONE), Create(ONE)),
        (mig(Instance(5, ONE)), (ONE,), CreateCompute(5)),
        (mig(whole(5, ONE)), (ONE,), None),
        (mig(whole(5, ONE)), (TWO,), DestroyCompute(5, 0)),
        (mig(Instance(5, ONE)), (TWO,), Destroy(5)),
        (mig(Instance(5, TWO, (0, 1))), (TWO,), DestroyCompute(5, 0)),
        (mig(whole(5, ONE), Instance(6, TWO)), (TWO,), DestroyCompute(5, 0)),
    ],
)
def test_the_next_deed_follows_from_what_is_there(
    there: Mig, wanted: tuple[InstancePlacement, ...] | None, step: object
) -> None:
    assert next_step(there, wanted) == step


@lru_cache
def geometries_of(model: str) -> tuple[Geometry, ...]:
    return tuple(geometries(mig_model(model)))


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Geometry | None, Geometry | None, int]:
    """A model, what a GPU is partitioned into and is to be, and after how many deeds the agent is killed."""
    model = draw(st.sampled_from(sorted(PRODUCTS)))
    able = st.none() | st.sampled_from(geometries_of(model))
    return model, draw(able), draw(able), draw(st.integers(0, 20))


def instances_of(geometry: Geometry | None) -> tuple[MigInstance, ...] | None:
    return None if geometry is None else tuple(MigInstance(one.profile.name, one.start) for one in geometry)


def written(geometry: Geometry | None) -> set[str]:
    return {f"{one.profile.name}@{one.start}" for one in geometry or ()}


@given(changes())
@worlds(200)
def test_any_geometry_becomes_any_other_whenever_the_agent_is_killed(
    change: tuple[str, Geometry | None, Geometry | None, int],
) -> None:
    model, before, after, deeds = change
    card = card_of(model)
    with installed(Library([card])):
        driver = NvmlDriver()
        words = vocabulary_of(card.product, driver.profiles(GpuUuid(card.uuid)))
        gpu = GpuUuid(card.uuid)
        assert partition(driver, gpu, words, PartitionRequest(GPU, instances_of(before), ())) == ""
        stays = (
            {part for part in card.parts if f"{part.profile.name}@{part.start}" in written(after)} if after else set()
        )
        names = {part: dict(part.names) for part in stays}
        card.changes.clear()

        card.breaks_after = deeds
        wish = PartitionRequest(GPU, instances_of(after), ())
        try:
            partition(driver, gpu, words, wish)
        except KeyboardInterrupt:
            card.breaks_after = None
        assert partition(driver, gpu, words, wish) == ""

        assert card.enabled == (after is not None)
        assert card.geometry() == written(after)
        assert stays <= set(card.parts)
        assert {part: part.names for part in stays} == names, "what stays was made anew"
        assert len(card.changes) <= 2 * len(written(before) ^ written(after)) + 1 < STEPS_MAX
        done = list(card.changes)
        assert partition(driver, gpu, words, wish) == ""
        assert card.changes == done, "done twice is done once"
