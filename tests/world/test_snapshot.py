"""Equal worlds give equal snapshots, a name occurs once, and the topology is a tree."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from solver.world.document import decode, encode
from solver.world.quantities import Instant
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.topology import NotATreeError, topology_of
from tests.solver.worlds import job, node, snapshots


@given(snapshots())
def test_a_snapshot_survives_its_own_json(snapshot: Snapshot) -> None:
    again = decode(encode(snapshot), Snapshot)
    assert again == snapshot
    assert again.digest == snapshot.digest


def test_names_that_occur_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="node 'n1' occurs twice"):
        snapshot_of(Instant(0), [node("n1", 8), node("n1", 4)], [])
    with pytest.raises(ValueError, match="job 'a' occurs twice"):
        snapshot_of(Instant(0), [], [job("a", "q", 1, 1), job("a", "q", 1, 2)])
    twin = msgspec.structs.replace(node("n2", 8), gpus=node("n1", 8).gpus)
    with pytest.raises(ValueError, match="GPU 'n1/0' occurs twice"):
        snapshot_of(Instant(0), [node("n1", 8), twin], [])


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `nodez`"):
        decode('{"time": "2026-11-20T00:00:00Z", "nodes": [], "jobs": [], "nodez": []}', Snapshot)


def test_a_rack_in_two_blocks_is_refused() -> None:
    nodes = [node("n1", 8, rack="r", block="b1"), node("n2", 8, rack="r", block="b2")]
    with pytest.raises(NotATreeError, match="rack h100/r lies in block h100/b1 and block h100/b2"):
        topology_of(nodes)


def test_racks_of_different_pools_may_share_a_name() -> None:
    nodes = [node("n1", 8, rack="r", block="b"), node("n2", 8, "A100", rack="r", block="b")]
    assert topology_of(nodes)["rack"].names == ("a100/r", "h100/r")


def test_undeclared_domains_are_shared_with_nobody() -> None:
    topology = topology_of([node("n1", 8), node("n2", 8)])
    assert [len(topology[level].names) for level in ("island", "rack", "block", "pool")] == [2, 2, 2, 1]
