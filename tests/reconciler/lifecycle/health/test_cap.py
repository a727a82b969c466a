"""However wrong detectors are, no more of a pool is closed than policy allows, and what is held back says so."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.health.cap import held_back, within_cap
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.health_record import NodeHealth, PartHealth, PartState
from reconciler.server.services import health_conditions
from solver.model.cluster import DeviceId, Gpu, Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory

NOW = Instant(1_000)


def node(name: str, pool: str = "p", gpus: int = 4) -> Node:
    made = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(gpus))
    return Node(NodeName(name), pool, Cpu(1), Memory(1), gpus=made)


def health(name: str, *parts: str, state: PartState = "drained", since: int = 1_000) -> NodeHealth:
    return NodeHealth(
        NodeName(name), parts=tuple(PartHealth(part, state, Instant(since), "why", test_from=NOW) for part in parts)
    )


def capped(records: list[NodeHealth], before: list[NodeHealth], nodes: list[Node], most: str) -> dict[str, NodeHealth]:
    judged, known = ({record.node: record for record in each} for each in (records, before))
    return {
        str(name): record for name, record in within_cap(judged, known, nodes, HealthPolicy(max_unhealthy=most)).items()
    }


@pytest.mark.parametrize(
    ("most", "nodes", "spared"),
    [("20%", 10, 8), ("20%", 11, 8), ("20%", 1, 0), ("1%", 10, 9), ("0%", 10, 10), ("100%", 10, 0)],
)
def test_nodes_are_counted_in_whole_ones_rounded_up(most: str, nodes: int, spared: int) -> None:
    names = [f"n{number:02}" for number in range(nodes)]
    after = capped([health(name, "") for name in names], [], [node(name) for name in names], most)
    assert len(held_back(after.values())) == spared
    assert held_back(after.values()) == tuple(names[nodes - spared :])


def test_what_is_closed_stays_and_who_was_found_first_comes_first() -> None:
    nodes = [node(f"n{number}") for number in range(5)]
    before = [health("n4", "", since=900), health("n3", "", state="suspect", since=800)]
    before[1] = msgspec.structs.replace(
        before[1], parts=(msgspec.structs.replace(before[1].parts[0], held_back=True, since=Instant(800)),)
    )
    judged = [health("n2", ""), health("n3", ""), health("n4", "", since=900)]
    after = capped(judged, before, nodes, "40%")
    assert [after[name].parts[0].state for name in ("n2", "n3", "n4")] == ["suspect", "drained", "drained"]
    (spared,) = after["n2"].parts
    assert (spared.held_back, spared.test_from) == (True, None)
    assert spared.reason == "why; it is not drained, since no more than 40% of its pool may be closed"
    lowered = capped([health("n3", "", since=900), health("n4", "", since=900)], list(after.values()), nodes, "0%")
    assert held_back(lowered.values()) == (), "what is closed stays so"


def test_a_gpu_counts_as_its_part_of_a_node_and_pools_are_apart() -> None:
    nodes = [node("a1"), node("a2"), node("b1", pool="q", gpus=1)]
    judged = [health("a1", "a1/0", "a1/1", "a1/2"), health("a2", "", "a2/1"), health("b1", "b1/0")]
    after = capped(judged, [], nodes, "20%")
    assert held_back(after.values()) == ("a2",), "a GPU of it still has room"
    assert held_back(capped([health("a1", "", "a1/0", "a1/1")], [], nodes, "1%").values()) == ()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", "0", "1", "2", "3"])), unique=True),
    st.integers(0, 100),
)
def test_no_more_is_ever_closed_and_judging_again_changes_nothing(found: list[tuple[int, str]], percent: int) -> None:
    names = [f"n{number}" for number in range(6)]
    parts = {name: sorted(f"{name}/{part}" if part else "" for n, part in found if f"n{n}" == name) for name in names}
    judged = [health(name, *of) for name, of in parts.items() if of]
    nodes, most = [node(name) for name in names], f"{percent}%"
    after = capped(judged, [], nodes, most)
    taken = Fraction(0)
    for record in after.values():
        closed = {part.part for part in record.parts if part.is_closed}
        taken += 1 if "" in closed else Fraction(len(closed), 4)
    assert taken <= ceil(Fraction(6 * percent, 100))
    again = capped(judged, list(after.values()), nodes, most)
    assert again == after


def test_status_says_what_is_held_back_and_nothing_where_nothing_is() -> None:
    names = [f"n{number}" for number in range(8)]
    after = capped([health(name, "") for name in names], [], [node(name) for name in names], "0%")
    (told,) = health_conditions(after.values())
    assert (told.type, told.status, told.reason) == ("HealthHeldBack", True, "TooManyUnhealthy")
    assert told.message == "health would close 8 more (n0, n1, n2, n3, n4, ...), and maxUnhealthy does not let it"
    assert list(health_conditions([health("n1", "")])) == []
