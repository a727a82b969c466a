"""The nodes of a seeded cluster: three GPU types, racks and blocks, and of each type a few nodes whose GPUs are used in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from solver.model.cluster import DeviceId, Gpu, GpuType, MigInstance, Node, NodeName
from solver.model.mig_layout import model_of_type, realisations
from solver.model.quantities import Cpu, Memory
from solver.policy.division import MigChanges, MigGeometry, SharingPolicy

H100, A100, L40S = map(GpuType, ("H100-SXM5-80GB", "A100-SXM4-80GB", "L40S-48GB"))
SHARES: Final = {H100: 0.6, A100: 0.3, L40S: 0.1}
GPUS_PER_NODE: Final = 8
NODES_PER_RACK: Final = 32
RACKS_PER_BLOCK: Final = 16
CORES: Final = 128

IN_PARTS: Final = 0.04
"""Which part of the nodes of a type is in a pool of its own for what needs less than a GPU; at least one node is."""
POOLS_IN_PARTS: Final = {H100: "h100-mig", A100: "a100-mig", L40S: "l40s-shared"}
LAYOUTS: Final = ("7x 1g.10gb", "3x 2g.20gb + 1g.10gb", "3g.40gb + 2g.20gb + 2x 1g.10gb")
CHANGES: Final = MigChanges(per_pool_per_hour=32)

MIG: Final = (
    MigGeometry("small-models", POOLS_IN_PARTS[H100], "bounded", model_of_type(H100), LAYOUTS, CHANGES),
    MigGeometry("notebooks", POOLS_IN_PARTS[A100], "free", model_of_type(A100), changes=CHANGES),
)
SHARING: Final = (SharingPolicy("fractions", (POOLS_IN_PARTS[L40S],), "mps"),)


def nodes_of(gpus: int, *, parts: bool = True) -> Iterator[Node]:
    """As many nodes as have so many GPUs; those in parts are the last of their type. `parts`: there are such."""
    number = 0
    for gpu_type, share in SHARES.items():
        kind = gpu_type.partition("-")[0].lower()
        many = int(gpus * share) // GPUS_PER_NODE
        whole = many - max(1, round(many * IN_PARTS)) if parts else many
        for index in range(many):
            pool = kind if index < whole else POOLS_IN_PARTS[gpu_type]
            yield _node(number, kind, pool, gpu_type, index // NODES_PER_RACK)
            number += 1


def _node(number: int, kind: str, pool: str, gpu_type: GpuType, rack: int) -> Node:
    name = f"n{number:06}"
    cut = pool in (POOLS_IN_PARTS[H100], POOLS_IN_PARTS[A100])
    gpus = tuple(
        Gpu(DeviceId(f"{name}/{gpu}"), gpu, instances=_instances(gpu_type, number + gpu) if cut else None)
        for gpu in range(GPUS_PER_NODE)
    )
    room = Cpu(1000 * CORES), Memory(1 << 40)
    return Node(
        NodeName(name), pool, *room, gpu_type, gpus, rack=f"{kind}-r{rack}", block=f"{kind}-b{rack // RACKS_PER_BLOCK}"
    )


def _instances(gpu_type: GpuType, number: int) -> tuple[MigInstance, ...]:
    """What a GPU is partitioned into: the layouts by turns."""
    geometry = realisations(model_of_type(gpu_type), LAYOUTS[number % len(LAYOUTS)])[0]
    return tuple(MigInstance(placed.profile.name, placed.start) for placed in geometry)
