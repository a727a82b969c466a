"""Equal worlds give equal snapshots, a name occurs once, and the topology is a tree."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from solver.model.cluster import NodeName
from solver.model.document import decode, encode
from solver.model.node_sets import NodeSet, narrowed
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.topology import NotATreeError, topology_of
from tests.solver.worlds import job, node, snapshots


@given(snapshots())
def test_a_snapshot_survives_its_own_json(snapshot: Snapshot) -> None:
    again = decode(encode(snapshot), Snapshot)
    assert again == snapshot
    assert again.digest == snapshot.digest


def test_the_digest_is_worked_out_once_and_only_of_itself() -> None:
    world = snapshot_of(Instant(0), [node("n1", 8)], [job("a", "q", 1, 1)])
    assert world.digest is world.digest
    later = msgspec.structs.replace(world, time=Instant(1))
    assert later.digest != world.digest == msgspec.structs.replace(later, time=Instant(0)).digest


def test_names_that_occur_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="node 'n1' occurs twice"):
        snapshot_of(Instant(0), [node("n1", 8), node("n1", 4)], [])
    with pytest.raises(ValueError, match="job 'a' occurs twice"):
        snapshot_of(Instant(0), [], [job("a", "q", 1, 1), job("a", "q", 1, 2)])
    twin = msgspec.structs.replace(node("n2", 8), gpus=node("n1", 8).gpus)
    with pytest.raises(ValueError, match="GPU 'n1/0' occurs twice"):
        snapshot_of(Instant(0), [node("n1", 8), twin], [])


def of_sets(*node_sets: NodeSet, named: str = "") -> Snapshot:
    known = job("a", "q", 1, 1)
    groups = tuple(msgspec.structs.replace(group, nodes=named) for group in known.spec.task_groups)
    known = msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))
    return snapshot_of(Instant(0), [node("n1", 8), node("n2", 8)], [known], node_sets=node_sets)


N1, N2 = NodeName("n1"), NodeName("n2")


def test_sets_of_nodes_are_sorted() -> None:
    world = of_sets(NodeSet("s", (N2, N1)), NodeSet("none", ()), named="s")
    assert world.node_sets == (NodeSet("none", ()), NodeSet("s", (N1, N2)))
    assert world == of_sets(NodeSet("none", ()), NodeSet("s", (N1, N2)), named="s")
    assert decode(encode(world), Snapshot) == world


@pytest.mark.parametrize(
    ("node_sets", "named", "said"),
    [
        ([NodeSet("s", (N1,)), NodeSet("s", (N2,))], "s", "set of nodes 's' occurs twice in the snapshot"),
        ([NodeSet("s", (N1, N1))], "s", "node 'n1' occurs twice in the set of nodes 's'"),
        ([NodeSet("", (N1,))], "", "a set of nodes has no name"),
        ([NodeSet("s", (N1, NodeName("n9")))], "s", "the set of nodes 's' has n9, which is no node"),
        ([NodeSet("s", (N1,))], "t", "group worker of job a may be on the nodes 't', which are no set here; add it to"),
    ],
)
def test_sets_of_nodes_that_can_not_be_meant_are_refused(node_sets: list[NodeSet], named: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        of_sets(*node_sets, named=named)


def test_sets_lose_the_nodes_that_are_not_there_any_more() -> None:
    assert narrowed([NodeSet("s", (N1, N2)), NodeSet("t", (N1,))], {N2}) == (NodeSet("s", (N2,)), NodeSet("t", ()))


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `nodez`"):
        decode('{"time": "2026-11-20T00:00:00Z", "nodes": [], "jobs": [], "nodez": []}', Snapshot)


def test_a_rack_in_two_blocks_is_refused() -> None:
    nodes = [node("n1", 8, rack="r", block="b1"), node("n2", 8, rack="r", block="b2")]
    with pytest.raises(NotATreeError, match="rack h100/r lies in block h100/b1 and block h100/b2"):
        topology_of(nodes)


def test_racks_of_different_pools_may_share_a_name() -> None:
    nodes = [node("n1", 8, rack="r", block="b"), node("n2", 8, "A100", rack="r", block="b")]
    assert topology_of(nodes)["rack"].names == ("h100/r", "a100/r"), "in the order of their first nodes"


def test_undeclared_domains_are_shared_with_nobody() -> None:
    topology = topology_of([node("n1", 8), node("n2", 8)])
    assert [len(topology[level].names) for level in ("island", "rack", "block", "pool")] == [2, 2, 2, 1]
