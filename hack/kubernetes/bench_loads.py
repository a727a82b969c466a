"""The cases of bench_rounds: how many nodes, what runs there already, and what is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hack.kubernetes.large import Sent
from reconciler.kubernetes.objects import names

GPU_TYPE = "H100-SXM5-80GB"
GPUS_OF_NODE = 8
NODES_OF_RACK = 16
RACK = "cloud.provider.com/topology-rack"
"""The label of a node that says it."""


class Load(NamedTuple):
    """So many gangs of so many pods of so many GPUs, of a queue; `rack`: each within one."""

    gangs: int
    size: int
    gpus: int
    queue: str = "owner"
    rack: bool = False

    @property
    def pods(self) -> int:
        """How many there are."""
        return self.gangs * self.size


class Case(NamedTuple):
    """What runs already (`held`), what is asked for, and what is waited for: that it is `bound`, or that it is told it can't be."""

    nodes: int
    asked: Load
    held: Load | None = None
    until: str = "bound"
    before: bool = False
    """The pods are there before the scheduler is."""


CASES = {
    "pods": Case(1_250, Load(2_000, 1, 4), before=True),
    "gangs": Case(1_250, Load(250, 8, 4), before=True),
    "gangs-rack": Case(1_250, Load(250, 8, 4, rack=True), before=True),
    "gang512": Case(500, Load(1, 512, 1)),
    "fill4000": Case(500, Load(4_000, 1, 1)),
    "reclaim2000": Case(500, Load(1, 250, 8), held=Load(4_000, 1, 1, queue="borrower")),
    "verdict": Case(500, Load(1, 10, 8), held=Load(500, 1, 8), until="told"),
}


def smaller(case: Case, by: int) -> Case:
    """The same with so much less of everything."""

    def cut(load: Load) -> Load:
        return load._replace(
            gangs=max(load.gangs // by, 1), size=load.size if load.gangs > 1 else max(load.size // by, 1)
        )

    return case._replace(
        nodes=-(-case.nodes // by) + 1, asked=cut(case.asked), held=cut(case.held) if case.held else None
    )


def sent_nodes(count: int) -> Iterator[Sent]:
    """Each as a kubelet, a device plugin and a labeller would write it."""
    for number in range(count):
        offers = {"cpu": "96", "memory": "1Ti", "pods": "110", names.GPU: str(GPUS_OF_NODE)}
        labels = {
            names.HOSTNAME: f"n{number}",
            names.PRODUCT: "NVIDIA-H100-80GB-HBM3",
            RACK: f"rack-{number // NODES_OF_RACK}",
        }
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        status = {"allocatable": offers, "capacity": offers, "conditions": ready}
        yield {"metadata": {"name": f"n{number}", "labels": labels}, "status": status}


def sent_pods(prefix: str, load: Load) -> Iterator[Sent]:
    """One after the other, gang by gang."""
    asked = {"cpu": "4", "memory": "16Gi", names.GPU: str(load.gpus)}
    for gang in range(load.gangs):
        notes = {names.QUEUE: load.queue}
        if load.size > 1:
            notes |= {names.GANG: f"{prefix}-{gang}", names.GANG_SIZE: str(load.size)}
        if load.rack:
            notes[names.KUEUE_REQUIRED] = RACK
        for index in range(load.size):
            resources = {"requests": asked, "limits": asked}
            yield {
                "metadata": {"name": f"{prefix}-{gang}-{index}", "annotations": notes},
                "spec": {
                    "schedulerName": names.SCHEDULER,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "none", "resources": resources}],
                },
            }
