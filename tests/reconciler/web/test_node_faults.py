"""What is out of order with a node is told once, with who says so; what the last pass saw is not held against what is so since."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.model.health_record import HealthFinding, NodeHealth, PartHealth
from reconciler.model.intervention_record import Intervention, Subject
from reconciler.web.node_faults import NodeEvidence
from solver.model.cluster import DeviceId, MigInstance, Node
from solver.model.inflight import Repartitioning
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW

NODE = NODES[0]
GPU = NODE.gpus[2]
SEEN = {node.name: node for node in NODES}
CORDON = Intervention("cordon", Subject("node", NODE.name), "ada", "fan 3", NOW, NOW.after(1_000), 1)


def without_gpu(node: Node, *, told: bool) -> Node:
    """As its agent tells of it: one GPU is not well, or is not told of at all."""
    gpus = (msgspec.structs.replace(gpu, healthy=False) if gpu == GPU else gpu for gpu in node.gpus)
    return msgspec.structs.replace(node, gpus=tuple(gpu for gpu in gpus if told or gpu.healthy))


CLOSED = msgspec.structs.replace(NODE, cordoned=True)
AWAY = msgspec.structs.replace(NODE, ready=False)
ILL = without_gpu(NODE, told=True)
DRAINED = PartHealth(GPU.id, "drained", NOW, "XID 79", NOW.after(5))
LOST = HealthFinding("lost", "", "", NOW, NOW, "it is not ready")


@pytest.mark.parametrize(
    ("node", "known", "told"),
    [
        (NODE, {}, []),
        (CLOSED, {"cordons": {NODE.name: CORDON}}, [("", "cordoned", "fan 3", "ada")]),
        # The next pass sees it: the page that follows on a cordon does not wait for that.
        (NODE, {"cordons": {NODE.name: CORDON}}, [("", "cordoned", "fan 3", "ada")]),
        (CLOSED, {}, [("", "cordoned", "what closed it is over; the next pass sees it so", "last pass")]),
        (CLOSED, {"declared": {NODE.name: CLOSED}}, [("", "cordoned", "its NodePool says so", "policy repository")]),
        (
            CLOSED,
            {"declared": {NODE.name: CLOSED}, "cordons": {NODE.name: CORDON}},
            [("", "cordoned", "fan 3", "ada"), ("", "cordoned", "its NodePool says so", "policy repository")],
        ),
        (
            CLOSED,
            {"seen": {NODE.name: CLOSED}},
            [
                (
                    "",
                    "cordoned",
                    "its cluster closes it: by a cordon, a taint, or as many pods as it may have",
                    "backend",
                )
            ],
        ),
        (
            CLOSED,
            {"health": {NODE.name: NodeHealth(NODE.name, parts=(PartHealth("", "cordoned", NOW, "eth0 is down"),))}},
            [("", "cordoned", "eth0 is down", "health")],
        ),
        (AWAY, {"seen": {}}, [("", "not ready", "nothing is heard of it", "backend")]),
        (
            AWAY,
            {"seen": {NODE.name: AWAY}, "health": {NODE.name: NodeHealth(NODE.name, (LOST,))}},
            [("", "not ready", "it does not take work, as is told of it", "backend")],
        ),
        (ILL, {"seen": {NODE.name: ILL}}, [(GPU.id, "not well", "its node says so", "backend")]),
        (
            ILL,
            {"seen": {NODE.name: without_gpu(NODE, told=False)}},
            [(GPU.id, "not well", "its node does not tell of it", "backend")],
        ),
        (
            ILL,
            {"health": {NODE.name: NodeHealth(NODE.name, parts=(DRAINED,))}},
            [(GPU.id, "drained", "XID 79", "health")],
        ),
        (ILL, {}, [(GPU.id, "not well", "what closed it is over; the next pass sees it so", "last pass")]),
        (NODE, {"nvlink": {NODE.name: "NVLink joins it to n2"}}, [("", "linked otherwise", "NVLink joins it to n2", "backend")]),
    ],
)  # fmt: skip
def test_each_fault_is_told_with_who_says_so(
    node: Node, known: dict[str, object], told: list[tuple[str, str, str, str]]
) -> None:
    evidence = NodeEvidence(NOW, **({"seen": SEEN} | known))  # type: ignore[arg-type]
    found = evidence.faults(node)
    assert [(fault.part, fault.state, fault.why, fault.by) for fault in found] == told


def test_a_fault_says_since_when_and_until_when_it_is_so() -> None:
    health = {NODE.name: NodeHealth(NODE.name, (LOST,), (DRAINED,))}
    evidence = NodeEvidence(NOW, seen=SEEN, health=health, cordons={NODE.name: CORDON})
    found = {(fault.state, fault.part): (fault.since, fault.until) for fault in evidence.faults(AWAY)}
    assert found == {
        ("not ready", ""): (NOW, None),
        ("cordoned", ""): (NOW, NOW.after(1_000)),
        ("drained", GPU.id): (NOW, NOW.after(5)),
    }


@pytest.mark.parametrize(
    ("instances", "says"),
    [
        (None, "it becomes one whole GPU"),
        ((), "it becomes no instances"),
        ((MigInstance("3g.40gb", 0), MigInstance("1g.10gb", 4)), "it becomes 3g.40gb, 1g.10gb"),
    ],
)
def test_a_gpu_that_is_being_partitioned_says_into_what_and_when_that_is_late(
    instances: tuple[MigInstance, ...] | None, says: str
) -> None:
    asked = Repartitioning(NODE.name, GPU.id, 3, NOW, NOW.after(100), instances)
    changing = {DeviceId(GPU.id): asked}
    (early,) = NodeEvidence(NOW, seen=SEEN, changing=changing).faults(NODE)
    (late,) = NodeEvidence(NOW.after(100), seen=SEEN, changing=changing).faults(NODE)
    assert (early.part, early.state, early.why, early.since, early.closes) == (
        GPU.id,
        "being partitioned",
        says,
        NOW,
        True,
    )
    assert late.why == f"{says}; that should have been done by {NOW.after(100)}"


def test_what_is_suspect_or_linked_otherwise_takes_new_jobs() -> None:
    suspect = PartHealth("", "suspect", NOW, "slow", test_from=None, held_back=True)
    tested = PartHealth(GPU.id, "drained", NOW, "XID 79", test_from=NOW.after(7))
    health = {NODE.name: NodeHealth(NODE.name, parts=(suspect, tested))}
    found = NodeEvidence(NOW, seen=SEEN, health=health, nvlink={NODE.name: "?"}).faults(NODE)
    assert [(fault.state, fault.closes) for fault in found] == [
        ("suspect", False),
        ("linked otherwise", False),
        ("drained", True),
    ]
    assert found[-1].why == f"XID 79; it is tested from {NOW.after(7)} on, and takes work again once it passes"
