"""Random nodes and jobs: of three types, whole, in parts or partitioned, with all that a job may ask for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from solver.model.cluster import DeviceId, Gpu, GpuType, Level, MigInstance, Node, NodeName, SpreadLevel
from solver.model.mig import Geometry, geometries, mig_model
from solver.model.mig_layout import realisations
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import (
    Bundle,
    Checkpoint,
    GroupTopology,
    Job,
    JobName,
    JobSpec,
    JobType,
    PlacementStyle,
    QueueName,
    Spread,
    TaskGroup,
    TopologyRequest,
)
from tests.disturbed.drawn_policies import MIG_LAYOUTS, MIG_MODELS, DrawnPolicies, hours, maybe, pools_of
from tests.solver.worlds import GIB

PROFILES = {
    "H100": ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "A30": ("1g.6gb", "1g.6gb+me", "2g.12gb", "4g.24gb"),
}
ONE_GEOMETRY_IN = 37
"""Of the hundreds that the driver allows those few are enough."""
SHARES = (125, 250, 400, 500, 600, 1000)

REQUIRED: tuple[Level | None, ...] = (None, None, "island", "rack", "block", "pool")
PREFERRED: tuple[Level | tuple[Level, ...] | None, ...] = (
    None,
    None,
    "island",
    "rack",
    ("island", "rack"),
    ("rack", "block"),
)
STYLES: tuple[PlacementStyle | None, ...] = (None, None, "pack", "spread")
LEVELS_OF_BUNDLES: tuple[Level, ...] = ("island", "rack", "block", "pool")
LEVELS_OF_SPREADS: tuple[SpreadLevel, ...] = ("node", "island", "rack", "block")
REQUIRED_BY_GROUPS: tuple[Level | None, ...] = (None, "island", "rack", "block")
BUNDLES_OF_GROUPS: tuple[Level, ...] = ("island", "rack", "block")
SPREADS_OF_GROUPS: tuple[SpreadLevel, ...] = ("node", "rack")
KINDS: tuple[JobType, ...] = ("gang", "gang", "service", "interactive")


@cache
def partitions(gpu_type: str, free: bool) -> tuple[tuple[MigInstance, ...], ...]:
    """Some of what a GPU may be partitioned into: by layouts, or `free` as the driver allows."""
    made: list[Geometry] = []
    if free:
        made = list(geometries(mig_model(MIG_MODELS[gpu_type])))[::ONE_GEOMETRY_IN]
    else:
        made = [found for layout in MIG_LAYOUTS[gpu_type] for found in realisations(MIG_MODELS[gpu_type], layout)[:2]]
    return tuple(tuple(MigInstance(placed.profile.name, placed.start) for placed in found) for found in made)


class DrawnWorlds:
    """Nodes and jobs for policies."""

    def __init__(self, chance: random.Random, policies: DrawnPolicies) -> None:
        self._chance = chance
        self._policies = policies
        self._features = policies.features
        self._jobs = 0
        islands, racks, blocks = maybe(chance, 0.5), maybe(chance, 0.8), maybe(chance, 0.7)
        self._islands, self._racks, self._blocks = islands and racks, racks, blocks and racks

    def nodes(self, count: int) -> Iterator[Node]:
        for number in range(count):
            yield self._node(number)

    def _node(self, number: int) -> Node:
        chance, gpu_type = self._chance, self._chance.choice(self._policies.gpu_types)
        pool = pools_of(gpu_type)[maybe(chance, 0.3)]
        count = chance.choice([0, 1, 2, 2, 4, 4, 8]) if maybe(chance, 0.9) else 0
        gpus = tuple(self._gpu(f"n{number}", index, gpu_type, pool) for index in range(count))
        return Node(
            NodeName(f"n{number}"),
            pool,
            Cpu(chance.choice([4, 16, 96]) * 1000 if "cpu" in self._features else 96_000),
            Memory(1024 * GIB),
            gpu_type if gpus or maybe(chance, 0.5) else GpuType(""),
            gpus,
            island=f"i{number // 2}" if self._islands else "",
            rack=f"r{number // 2}" if self._racks else "",
            block=f"b{number // 4}" if self._blocks else "",
            ready=maybe(chance, 0.95),
            cordoned=maybe(chance, 0.05),
            keeps_geometry=maybe(chance, 0.1),
            data=("d1",) if maybe(chance, 0.2) else (),
        )

    def _gpu(self, node: str, index: int, gpu_type: str, pool: str) -> Gpu:
        instances = None
        if "mig" in self._features and gpu_type in MIG_MODELS and maybe(self._chance, 0.5):
            instances = self._chance.choice(partitions(gpu_type, self._policies.mig_mode(pool) == "free"))
        memory = Memory((24 if gpu_type == "A30" else 80) * GIB)
        return Gpu(DeviceId(f"{node}/{index}"), index, maybe(self._chance, 0.95), memory, instances)

    def job(self, now: Instant) -> Job:
        """A job that was submitted now or hours ago. Some names are such as sort between, or have signs in them."""
        chance = self._chance
        self._jobs += 1
        name = JobName(f"{chance.choice(['job', 'j', 'a.b', 'X_y', 'zz-9'])}-{self._jobs}")
        spec = self._spec()
        submitted = now.after(-hours(chance.choice([0, 0, 1, 3])))
        return Job(name, submitted, spec, chance.choice(["", "ada", "bob", "cy"]), boosted=maybe(chance, 0.03))

    def _spec(self) -> JobSpec:
        chance, features = self._chance, self._features
        kind = chance.choice(KINDS) if "services" in features else "gang"
        count = 1 if kind == "service" else chance.choice([1, 1, 1, 2, 3])
        groups = tuple(self._group(f"g{number}") for number in range(count))
        pinned = "pinned" if maybe(chance, 0.5) else ""
        name = chance.choice(["inference", "training", "training", "batch", "batch", pinned, ""])
        limit = hours(chance.choice([0.5, 1, 4, 9])) if "limits" in features or maybe(chance, 0.6) else None
        queue = chance.choice(self._policies.leaves if maybe(chance, 0.98) else ("org", "none"))
        return JobSpec(
            QueueName(queue),
            groups,
            name,
            self._topology(),
            limit,
            checkpoint=self._checkpoint() if maybe(chance, 0.4) else None,
            fallback_after=chance.choice([None, hours(2)]) if "fallback" in features else None,
            type=kind,
            data=("d1",) if maybe(chance, 0.1) else (),
            idle_limit=hours(1) if kind == "interactive" and maybe(chance, 0.5) else None,
        )

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(hours(0.5), self._chance.choice([None, Duration(60_000)]))

    def _group(self, name: str) -> TaskGroup:
        chance, features = self._chance, self._features
        replicas = chance.choice([1, 1, 2, 3, 4]) if maybe(chance, 0.97) else chance.choice([16, 64])
        shape = self._shape()
        least = chance.randint(1, replicas) if "elastic" in features and maybe(chance, 0.5) else None
        close = "topology" in features and maybe(chance, 0.2)
        topology = self._topology_of_group() if close else GroupTopology()
        nodes = chance.choice(["", "", "sa", "sb"]) if "sets" in features else ""
        return TaskGroup(name, replicas, shape, min_replicas=least, topology=topology, nodes=nodes)

    def _shape(self) -> Shape:
        chance, features = self._chance, self._features
        h100, a100 = GpuType("H100"), GpuType("A100")
        types = chance.choice([(), (h100,), (a100,), (h100, a100), (a100, h100), self._policies.gpu_types])
        cpu = Cpu(1000 * chance.choice([0, 0, 1, 8]) if "cpu" in features else 0)
        gpus, kind = chance.choice([1, 1, 2, 4, 8]), chance.random()
        if "shares" in features and kind < 0.35:
            return self._part(types, cpu)
        if "mig" in features and kind > 0.6:
            gpu_type = chance.choice(["H100", "A30"])
            types = (GpuType(gpu_type),) if maybe(chance, 0.8) else ()
            return Shape(0, types, cpu, mig=chance.choice(PROFILES[gpu_type]))
        return Shape(gpus, types, cpu) if kind >= 0.38 else Shape(cpu=Cpu(chance.choice([0, 1000, 4000])))

    def _part(self, types: tuple[GpuType, ...], cpu: Cpu) -> Shape:
        share = self._chance.choice(SHARES)
        if maybe(self._chance, 0.2):
            return Shape(0, types, cpu, gpu_memory=Memory(80 * GIB * share // 1000))
        return Shape(0, types, cpu, gpu_fraction=MilliGpu(share))

    def _topology_of_group(self) -> GroupTopology:
        chance, required, bundle = self._chance, None, None
        if maybe(chance, 0.5):
            bundle = Bundle(chance.randint(1, 2), chance.choice(BUNDLES_OF_GROUPS))
        else:
            required = chance.choice(REQUIRED_BY_GROUPS)
        spread = Spread(chance.choice(SPREADS_OF_GROUPS), chance.randint(1, 2)) if maybe(chance, 0.3) else None
        return GroupTopology(required, bundle, spread)

    def _topology(self) -> TopologyRequest:
        chance = self._chance
        if "topology" not in self._features or maybe(chance, 0.4):
            return TopologyRequest()
        bundle = Bundle(chance.randint(1, 3), chance.choice(LEVELS_OF_BUNDLES)) if maybe(chance, 0.15) else None
        spread = Spread(chance.choice(LEVELS_OF_SPREADS), chance.randint(1, 2)) if maybe(chance, 0.15) else None
        bound = maybe(chance, 0.2)
        required, preferred = chance.choice(REQUIRED), chance.choice(PREFERRED)
        if bound:
            return TopologyRequest(required, preferred, bundle, spread, "bound")
        return TopologyRequest(required, preferred, bundle, spread, placement=chance.choice(STYLES))
