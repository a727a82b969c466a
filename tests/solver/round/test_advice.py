"""What would fit instead, in the words that a refused job is answered with."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from solver.model.amounts import amounts_of
from solver.model.cluster import GpuType
from solver.model.quantities import Cpu, Memory, MilliGpu
from solver.model.workload import QueueName
from solver.plan.reason import HostResource
from solver.plan.reasons import AnyReason, HostResources, ScarceResource
from solver.plan.refusals import (
    AboveMax,
    ClassNotAllowed,
    GpuTooSmall,
    NamespaceNotAllowed,
    NeverFits,
    TooLittleHost,
    TooLittleResource,
    UnknownName,
)
from solver.round.advice import OTHERWISE, what_would_fit

H100 = GpuType("H100")
TEAM = QueueName("team")
SIX, EIGHT = MilliGpu.gpus(6), MilliGpu.gpus(8)


def never(tasks: int, gpus: int, fit: int, largest: int = 8) -> NeverFits:
    return NeverFits("worker", H100, tasks, MilliGpu.gpus(gpus), fit, MilliGpu.gpus(largest))


def small(has: Memory, *others: GpuType) -> GpuTooSmall:
    return GpuTooSmall("worker", GpuType("A100"), Memory(2**37), has > 0, has, least=True, others=others)


def lacking(*resources: HostResource, **more: Any) -> NeverFits:
    host = TooLittleHost(Cpu(200_000), Memory(2**41), Cpu(96_000), Memory(2**40), resources)
    return msgspec.structs.replace(never(1, 1, 0), host=host, **more)


def no_node_has(name: str, wanted: int, largest: int) -> NeverFits:
    return msgspec.structs.replace(never(1, 1, 0), resource=TooLittleResource(name, wanted, largest))


def test_of_which_resource_there_is_too_little_is_said_in_its_words() -> None:
    few = HostResources("worker", H100, Cpu(0), Memory(0), 8, 3, resource=ScarceResource("pods", 1, 3))
    there = "3 places for pods free on H100 nodes: 3 of 8 tasks fit"
    assert str(few) == f"group worker needs 1 place for pods for each task; {there}"
    scarce = ScarceResource("hostPort/UDP/53/10.0.0.1", 1000, 1)
    port = HostResources("worker", H100, Cpu(0), Memory(0), 2, 1, "fast", 2, resource=scarce)
    there = "1 node with port 53 (UDP) of 10.0.0.1 free on the 2 nodes that it may be on (fast): 1 of 2 tasks fit"
    assert str(port) == f"group worker needs port 53 (UDP) of 10.0.0.1 on its node for each task; {there}"
    together = HostResources("worker", H100, Cpu(8000), Memory(0), 2, 1, resources=amounts_of({"rdma/hca": 1}))
    there = "too little of all together is free: 1 of 2 tasks fit on H100 nodes"
    assert str(together) == f"group worker needs 8 cores and 1 rdma/hca beside each task's GPUs; {there}"
    disk = no_node_has("ephemeral-storage", 2**38, 2**37)
    assert str(disk) == "group worker needs 256Gi ephemeral-storage for each task; the most that a node has is 128Gi"


def test_what_no_node_has_is_said_with_what_the_largest_has() -> None:
    assert str(lacking("cpu")) == "group worker needs 200 cores for each task; the largest node with H100 has 96 cores"
    assert str(lacking()).endswith("needs 200 cores and 2Ti of memory for each task; no node with H100 has all of that")
    limited = str(lacking("memory", node_set="fast", nodes_allowed=2))
    assert limited.endswith(
        "needs 2Ti of memory for each task; the largest node that it may be on (fast) has 1Ti of memory"
    )


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (AboveMax(TEAM, H100, SIX, EIGHT), "Up to 6 H100 would fit in queue team."),
        (AboveMax(TEAM, H100, MilliGpu(0), EIGHT), "Queue team holds no H100: choose another queue or GPU type."),
        (AboveMax(TEAM, H100, SIX, EIGHT, per_user=True), "Up to 6 H100 of one user would fit in queue team."),
        (
            ClassNotAllowed("batch", TEAM, ("inference", "training")),
            "Queue team takes the priority class inference or training.",
        ),
        (
            NamespaceNotAllowed("lab", TEAM, "other-queues", tuple(map(QueueName, "abcdefg"))),
            "Use queue a, b, c, d, e and 2 more, or list lab in access.namespaces of queue team.",
        ),
        (NamespaceNotAllowed("lab", TEAM, "unlisted"), "List lab in access.namespaces of queue team."),
        (
            NamespaceNotAllowed("lab", TEAM, "class", priority_class="inference", classes=("batch", "training")),
            "Use the priority class batch or training in queue team.",
        ),
        (never(2, 16, 0), "Tasks of up to 8 H100 would fit a node."),
        (never(4, 8, 3), "Up to 3 tasks of group worker would fit."),
        (
            NeverFits("worker", H100, 4, EIGHT, 3, EIGHT, "rack"),
            "Up to 3 tasks of group worker would fit, or ask for a wider domain than one rack.",
        ),
        (
            lacking("cpu"),
            "Ask for at most 96 cores for each task of group worker.",
        ),
        (
            lacking("cpu", "memory", node_set="fast", nodes_allowed=2),
            "Ask for at most 96 cores and 1Ti of memory for each task of group worker, or let it be on more than 2 nodes.",
        ),
        (
            no_node_has("ephemeral-storage", 2**38, 2**37),
            "Ask for at most 128Gi ephemeral-storage for each task of group worker, or add nodes that have more.",
        ),
        (no_node_has("rdma/hca", 1, 0), "Add nodes that have it, or ask for none."),
        (lacking(), "Ask for less CPU and memory for each task of group worker."),
        (never(4, 8, 4), "Each task group fits alone, but not all of them together: ask for fewer tasks."),
        (never(4, 8, 0, largest=0), OTHERWISE),
        (
            NeverFits("worker", H100, 4, EIGHT, 3, EIGHT, node_set="fast", nodes_allowed=3),
            "Up to 3 of its tasks would fit there, or let group worker be on more than 3 nodes.",
        ),
        (
            NeverFits("worker", H100, 4, EIGHT, 0, MilliGpu(0), node_set="fast", nodes_allowed=1),
            "Let group worker be on more than 1 node.",
        ),
        (small(Memory(40 * 2**30)), "Of an A100 up to 40Gi would do."),
        (small(Memory(40 * 2**30), H100), "Accept H100 too: those have as much."),
        (small(Memory(0)), "Declare gpuMemory in the NodePools of A100, or ask for gpuTypes."),
        (
            UnknownName("gpu-type", ("H200",), (H100, "A100"), group="worker"),
            "Accept H100 or A100 too, or any: name no type.",
        ),
        (UnknownName("gpu-type", ("H200",), group="worker"), OTHERWISE),
        (UnknownName("queue", ("taem",), ("team",)), "Submit to team."),
        (UnknownName("queue", ("org",), children=("team", "other")), "Submit to team or other."),
        (UnknownName("queue", ("xyz",)), OTHERWISE),
        (UnknownName("priority-class", ("trainnig",), ("training",)), "Use the priority class training."),
        (UnknownName("priority-class", ("xyz",)), OTHERWISE),
        (UnknownName("mig-profile", ("9g.90gb",), ("7g.80gb",), group="worker", of=H100), "Ask for 7g.80gb."),
        (UnknownName("data", ("imagenat",), ("imagenet",)), "Name the data imagenet."),
    ],
)
def test_each_reason_has_its_advice(reason: AnyReason, advice: str) -> None:
    assert what_would_fit((reason,)) == advice


def test_advice_is_said_once() -> None:
    above = AboveMax(TEAM, H100, SIX, EIGHT)
    assert what_would_fit((above, never(4, 8, 3), above)) == (
        "Up to 6 H100 would fit in queue team. Up to 3 tasks of group worker would fit."
    )


@pytest.mark.parametrize("what", get_args(get_type_hints(UnknownName)["what"]))
def test_whatever_does_not_exist_something_near_is_named(what: Any) -> None:
    assert "near" in what_would_fit((UnknownName(what, ("naer",), ("near",)),))


@pytest.mark.parametrize(
    ("accepted", "there", "said"),
    [
        (("H200",), (H100,), "group worker accepts only H200; the cluster has H100"),
        (("H200",), (), "group worker accepts only H200; the cluster has no GPUs"),
        ((), (), "group worker needs GPUs; the cluster has no GPUs"),
    ],
)
def test_a_cluster_without_the_gpus_is_told_from_one_without_any(
    accepted: tuple[str, ...], there: tuple[str, ...], said: str
) -> None:
    assert str(UnknownName("gpu-type", accepted, there, group="worker")) == said
