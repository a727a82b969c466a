"""What NVLink says of islands counts where Git declares none, and where it says otherwise that is shown."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.control.islands import contradictions, reported_cliques, with_reported_islands
from reconciler.model.facts import GpuFacts, NodeFacts
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory
from solver.model.shape import Shape
from solver.model.topology import topology_of
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TopologyRequest
from solver.plan.plan import Inadmissible
from tests.reconciler.control.plane import Site

N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")


def node(name: str, island: str = "", rack: str = "", block: str = "", pool: str = "p") -> Node:
    return Node(NodeName(name), pool, Cpu(1), Memory(1), island=island, rack=rack, block=block)


def facts(name: str, *cliques: str | None) -> NodeFacts:
    gpus = tuple(GpuFacts(DeviceId(f"{name}/{index}"), clique=clique) for index, clique in enumerate(cliques))
    return NodeFacts(NodeName(name), Instant(0), gpus)


@pytest.mark.parametrize(
    ("cliques", "told"),
    [
        ((), {}),
        ((None, None), {}),
        (("c", "c"), {N1: "c"}),
        (("c", None), {N1: "c"}),
        (("", ""), {N1: ""}),
        (("c", "d"), {N1: ""}),
        (("c", ""), {N1: ""}),
    ],
    ids=repr,
)
def test_a_node_is_in_a_clique_if_all_its_gpus_that_answer_are(
    cliques: tuple[str | None, ...], told: dict[NodeName, str]
) -> None:
    assert reported_cliques({N1: facts("n1", *cliques)}) == told


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([node("n1"), node("n2")], {"n1": ("c", "c"), "n2": ("c", "c")}, id="nothing is declared"),
        pytest.param(
            [node("n1", rack="r", block="b"), node("n2", rack="r", block="b")],
            {"n1": ("c", "r"), "n2": ("c", "r")},
            id="racks are",
        ),
        pytest.param([node("n1", rack="r"), node("n2", rack="s")], {"n1": ("", "r"), "n2": ("", "s")}, id="two racks"),
        pytest.param([node("n1", rack="r"), node("n2")], {"n1": ("", "r"), "n2": ("", "")}, id="one rack is missing"),
        pytest.param([node("n1", "i", "r"), node("n2")], {"n1": ("i", "r"), "n2": ("c", "c")}, id="Git comes first"),
        pytest.param([node("n1", "c", "r"), node("n2")], {"n1": ("c", "r"), "n2": ("", "")}, id="Git has the name"),
        pytest.param(
            [node("n1", rack="r"), node("n2", rack="s", pool="q")], {"n1": ("c", "r"), "n2": ("c", "s")}, id="two pools"
        ),
    ],
)
def test_islands_that_are_told_make_a_tree(nodes: list[Node], expected: dict[str, tuple[str, str]]) -> None:
    placed = with_reported_islands(nodes, {N1: "c", N2: "c"})
    assert {known.name: (known.island, known.rack) for known in placed} == expected
    topology_of(placed)


def test_contradictions_are_said_of_each_node_that_tells() -> None:
    nodes = [node("n1", "i"), node("n2", "i"), node("n3", "j"), node("n4", "j")]
    assert contradictions(nodes, {N1: "c", N2: "", N3: "c"}) == {
        N1: "NVLink joins it to n3, its island to n2",
        N2: "NVLink joins it to no other node, its island to n1",
        N3: "NVLink joins it to n1, its island to no other node",
    }
    assert contradictions(nodes, {N1: "c", N2: "c", N3: ""}) == {}
    assert contradictions([node("n1"), node("n2")], {N1: "", N2: ""}) == {}


def test_a_gang_that_needs_one_island_starts_once_nodes_say_that_they_share_one(site: Site) -> None:
    group = TaskGroup("worker", 2, Shape(gpus=4))
    spec = JobSpec(QueueName("q"), (group,), topology=TopologyRequest(required="island"), command=("sleep", "forever"))
    name = JobName("gang")
    site.store.jobs.submit(name, spec, "ada", site.clock.now(), "key")
    (verdict,) = site.one_pass().plan.verdicts
    assert isinstance(verdict, Inadmissible)
    for known in ("n1", "n2"):
        site.cluster.report(facts(known, "c"), site.clock.now())
    site.until(name, "running")
    snapshot = site.one_pass().snapshot
    assert [known.island for known in snapshot.nodes] == ["c", "c"]


def test_git_comes_before_what_nodes_say(site: Site) -> None:
    site.declared = tuple(msgspec.structs.replace(known, island=f"i-{known.name}") for known in site.declared)
    for known in ("n1", "n2"):
        site.cluster.report(facts(known, "c"), site.clock.now())
    assert [known.island for known in site.one_pass().snapshot.nodes] == ["i-n1", "i-n2"]
