"""A GPU is drawn as it is divided: whole, in instances where they lie, in shares one after the other."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.web.gpu_rows import gpu_rows
from reconciler.web.node_faults import NodeFault
from reconciler.web.node_index import KeptTask, TaskOnNode
from solver.model.cluster import DeviceId, GpuType, MigInstance, Node
from solver.model.quantities import MilliGpu
from solver.model.workload import Job, JobName, MigSlot, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, spec

NODE = msgspec.structs.replace(NODES[0], gpu_type=GpuType("H100-SXM5-80GB"), gpus=NODES[0].gpus[:1])
(GPU,) = NODE.gpus


def task(name: str, **of: object) -> TaskOnNode:
    placement = msgspec.structs.replace(TaskPlacement("worker", 0, NODE.name, (GPU.id,)), **of)
    return TaskOnNode(Job(JobName(name), NOW, spec(), "ada", placement=(placement,)), placement)


def divided(*instances: MigInstance, gpu_type: str = NODE.gpu_type) -> Node:
    gpus = (msgspec.structs.replace(GPU, instances=instances),)
    return msgspec.structs.replace(NODE, gpus=gpus, gpu_type=GpuType(gpu_type))


def on(instance: MigInstance, cost: int) -> dict[str, object]:
    return {"devices": (instance.id_on(GPU.id),), "mig": MigSlot(GPU.id, instance, MilliGpu(cost))}


LARGE, SMALL = MigInstance("3g.40gb", 4), MigInstance("1g.10gb", 0)


@pytest.mark.parametrize(
    ("node", "tasks", "parts"),
    [
        (NODE, (), [(0, 1000, "", None)]),
        (NODE, (task("whole"),), [(0, 1000, "", "whole")]),
        (
            NODE,
            (task("half", share=MilliGpu(500)), task("tenth", share=MilliGpu(100))),
            [(0, 500, "", "half"), (500, 100, "", "tenth"), (600, 400, "", None)],
        ),
        (divided(), (), []),
        (
            divided(LARGE, SMALL),
            (task("there", **on(LARGE, 500)),),
            [(0, 125, "1g.10gb", None), (500, 500, "3g.40gb", "there")],
        ),
        # One task has instances of several GPUs: of this one it has one.
        (
            divided(LARGE, SMALL),
            (
                task(
                    "pair", **{**on(SMALL, 125), "mig_beside": (MigSlot(DeviceId("elsewhere"), LARGE, MilliGpu(500)),)}
                ),
            ),
            [(0, 125, "1g.10gb", "pair"), (500, 500, "3g.40gb", None)],
        ),
        # Its model is not known: where its instances lie is not, either.
        (divided(LARGE, gpu_type="X100"), (task("there", **on(LARGE, 500)),), [(0, 500, "3g.40gb", "there")]),
    ],
)
def test_parts_lie_where_they_are(
    node: Node, tasks: tuple[TaskOnNode, ...], parts: list[tuple[int, int, str, str | None]]
) -> None:
    (row,) = gpu_rows(node, tasks, (), ())
    found = [(part.start, part.size, part.profile, part.of and part.of.job.name) for part in row.parts]
    assert found == parts


def test_a_gpu_says_what_is_kept_on_it_and_what_speaks_against_it() -> None:
    kept = KeptTask(JobName("waits"), "", True, task("waits").task, NOW, None)
    elsewhere = KeptTask(JobName("other"), "", True, TaskPlacement("worker", 0, NODE.name, ()), NOW, None)
    own = NodeFault(NODE.name, GPU.id, "drained", "XID 79", "health")
    of_node = NodeFault(NODE.name, "", "cordoned", "fan 3", "ada")
    (row,) = gpu_rows(NODE, (), (kept, elsewhere), (own, of_node))
    assert (row.kept, row.faults) == ((kept,), (own,))
