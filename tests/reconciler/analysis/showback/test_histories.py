"""Random histories in real stores, with kills and clocks set back: no moment is left out or counted twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reconciler.analysis.showback.account import account_of
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.capacity import DeviceState, NodeCapacity
from solver.model.cluster import DeviceId, GpuType
from solver.model.quantities import Instant
from tests.contracts.stores import NOW, SqlStores, lead, sqlite_stores
from tests.reconciler.store.test_placement_stories import NODES, Story, cut_off

GPUS = 5
STATES: tuple[DeviceState, ...] = ("idle", "idle", "reserved", "unhealthy", "partitioning")
STEPS_MS = (1, 10, 300, 900, 900, 20_000, -5_000, -30_000)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[SqlStores]:
    with sqlite_stores(tmp_path) as made:
        yield made


class ClusterStory(Story):
    """Beside what jobs do, GPUs come to be in other states; the nodes are always there."""

    def __init__(self, stores: SqlStores, seed: int) -> None:
        super().__init__(stores, seed)
        self.latest = NOW
        self.stores.capacities.keep(self.epoch, {node: self._drawn(str(node)) for node in NODES}, NOW)

    def go_on(self) -> None:
        self.now = Instant(max(NOW, self.now.after(self.chance.choice(STEPS_MS))))
        self.latest = max(self.latest, self.now)
        if self.chance.random() < 0.5:
            super().go_on()
        else:
            self._change()

    def _change(self) -> None:
        changed = {node: self._drawn(str(node)) for node in NODES if self.chance.random() < 0.5}
        if self.chance.random() < 0.3:
            with cut_off(self.stores.database.engine, self.chance.randrange(1, 8)), suppress(StaleEpochError):
                self.stores.capacities.keep(self.epoch, changed, self.now)
            self.stores.reopen()
            self.epoch = lead(self.stores, now=self.now)
        else:
            self.stores.capacities.keep(self.epoch, changed, self.now)

    def _drawn(self, node: str) -> NodeCapacity:
        devices = tuple(DeviceId(f"{node}/{index}") for index in range(GPUS))
        return NodeCapacity("pool", GpuType("H100"), devices, tuple(self.chance.choices(STATES, k=GPUS)))


@pytest.mark.parametrize("seed", range(12))
def test_every_gpu_and_millisecond_is_accounted_for_once(stores: SqlStores, seed: int) -> None:
    story = ClusterStory(stores, seed)
    for _ in range(60):
        story.go_on()
    end = story.latest.after(50_000)
    moments = sorted({NOW, end, *(NOW.after(story.chance.randrange(end - NOW)) for _ in range(6))})
    windows = [(NOW, end), *((begun, over) for begun, over in itertools.pairwise(moments))]
    allocated = []
    for begun, over in windows:
        placed = stores.placements.in_window(begun, over)
        account = account_of(begun, over, stores.capacities.spans(begun, over), placed)
        assert account.overheld == 0
        assert sum(map(account.capacity, account.totals)) == len(NODES) * GPUS * 1_000 * (over - begun)
        allocated.append(sum(of["allocated"] for of in account.totals.values()))
        assert sum(piece.amount for piece in account.held) == allocated[-1]
        lasted = [
            (min(one.placement.until or over, over) - max(one.placement.since, begun)) * one.gpus for one in placed
        ]
        assert sum(lasted) == allocated[-1]
    assert allocated[0] == sum(allocated[1:]) > 0
