"""Bare metal from end to end: two control planes on one PostgreSQL, three agents, and a gang that nothing takes anything from.

A machine loses its power, a more important job comes, a node is cut off, the control plane that leads is killed. Nodes have
network namespaces where this machine gives us any, so that what is cut off loses packets, also those between tasks.
"""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from solver.model.workload import JobName
from tests.e2e import training, witness
from tests.e2e.allocations import allocations, audit
from tests.e2e.bare_metal import RUN, Cluster, bare_metal_policy
from tests.e2e.control_plane import ControlPlane, in_postgresql
from tests.e2e.links import Network, namespaces_or_wires, wires
from tests.e2e.nodes import eventually, three_nodes
from tests.reconciler.gitops.source.origin import Origin

SERVING = JobName("serving")
HEALTH = (
    "apiVersion: quorate.dev/v1\nkind: HealthPolicy\nmetadata: {{name: health}}\n"
    "spec: {{nodeLease: 10s, nodeLostAfter: {lost_after}}}\n"
)


@contextmanager
def two_planes(policy: Path, folder: Path, *options: str) -> Iterator[list[ControlPlane]]:
    """Both run, with one authority; the first of them leads."""
    made = [ControlPlane(policy, folder / name) for name in ("first", "second")]
    try:
        made[0].start(*options).until_ready()
        made[1].start(*options, "--agents-authority", str(made[0].folder.path / "agents" / "authority.pem"))
        yield made
    finally:
        for plane in made:
            plane.end()


@pytest.fixture(params=[namespaces_or_wires, pytest.param(wires, marks=pytest.mark.long)], ids=["network", "wires"])
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    made: Callable[[], AbstractContextManager[Network]] = request.param
    with made() as found:
        yield found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[tuple[list[str], Engine]]:
    with in_postgresql(tmp_path) as made:
        yield made


@pytest.fixture
def cluster(network: Network, origin: Origin, database: tuple[list[str], Engine], tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "witness").mkdir()
    origin.commit(bare_metal_policy(tmp_path) | {"policies/health.yaml": HEALTH.format(lost_after="20s")})
    store, engine = database
    with ExitStack() as closing:
        listen = ("--agents-listen", f"{network.host}:0")
        planes = closing.enter_context(two_planes(origin.folder, tmp_path, *store, *listen))
        audit(engine)
        members = [(plane, closing.enter_context(plane.client())) for plane in planes]
        ports = [plane.agents_port for plane in planes]
        nodes = closing.enter_context(three_nodes(network, ports, members[0][1], tmp_path))
        made = Cluster(members, nodes, tmp_path)
        eventually("every node is ready", made.ready)
        yield made


@pytest.mark.postgresql
def test_a_gang_comes_through_whatever_happens_to_its_cluster(
    cluster: Cluster,
    network: Network,
    origin: Origin,
    database: tuple[list[str], Engine],
    record_property: Callable[[str, object], None],
) -> None:
    began = time.monotonic()
    cluster.client.submit(RUN, cluster.training_run())
    eventually("it has saved its work", lambda: cluster.saved() > 20)
    assert cluster.client.job(RUN).attempt == 1
    assert sorted(cluster.where().values()) == [2, 4]

    recovered_s = a_machine_loses_its_power(cluster)
    a_more_important_job_comes(cluster)
    revision = origin.commit({"policies/health.yaml": HEALTH.format(lost_after="5m")})
    eventually("that is policy", lambda: cluster.client.status().last_applied_revision == revision)
    a_node_is_cut_off(cluster)
    followed_s, heard_s = the_leader_is_killed(cluster)

    cluster.enough.touch()
    outcome = cluster.outcome()
    assert outcome.state == "succeeded", outcome.message
    assert cluster.client.job(RUN).attempt == 3
    (weight, steps) = re.findall(r"result (\d+) of (\d+) steps", cluster.client.log(RUN, attempt=3).decode())[0]
    assert int(weight) == training.trained(int(steps))

    used, held = list(witness.uses(cluster.folder / "witness")), list(allocations(database[1]))
    assert Counter(use.who.split("-")[0] for use in used) == {RUN: 3 * 6, SERVING: 2 * 4}
    assert Counter(use.who for use in held) == {RUN: 3 * 6, SERVING: 2 * 4}
    assert witness.overlaps(used) == []
    assert witness.overlaps(held) == []
    record_property(
        "figure",
        f"The story of bare metal, on {network.described}: {time.monotonic() - began:.0f} s. The gang's next checkpoint came "
        f"{recovered_s:.1f} s after its machine was lost, of which 20 s is how long one waits for a node; "
        f"another control plane led {followed_s:.1f} s after the first was killed, and knew of every node after {heard_s:.1f} s.",
    )


def resumed(cluster: Cluster) -> list[int]:
    """From which steps its attempts after the first began."""
    return [int(step) for step in re.findall(r"going on from step (\d+)", " ".join(cluster.causes("resumes")))]


def a_machine_loses_its_power(cluster: Cluster) -> float:
    """The gang goes on elsewhere from its checkpoint. Returns after how many seconds it had saved more than before."""
    lost = next(cluster.nodes[node] for node, tasks in cluster.where().items() if tasks == 2)
    lost.link.cut()  # so that it says nothing of its end, not even by TCP
    lost.kill(with_tasks=True)
    at, saved = time.monotonic(), cluster.saved()
    eventually("it goes on elsewhere", lambda: cluster.runs(2))
    assert lost.node not in cluster.where()
    (begun,) = resumed(cluster)
    assert begun >= saved
    eventually("it has saved more", lambda: cluster.saved() > begun)
    recovered_s = time.monotonic() - at
    lost.link.heal()
    lost.start()
    eventually("the node is back", cluster.ready)
    return recovered_s


def a_more_important_job_comes(cluster: Cluster) -> None:
    """The gang saves its work, leaves, and comes back from there."""
    cluster.client.submit(SERVING, cluster.server())
    assert cluster.outcome(SERVING).state == "succeeded"
    (ends,) = cluster.causes("ends")
    told = re.fullmatch(r"it has saved step (\d+)", ends)
    assert told, ends
    saved = int(told[1])
    eventually("the gang is back", lambda: cluster.runs(3))
    begun = resumed(cluster)[-1]
    assert begun >= saved, "it saves on, until it is told to end"
    eventually("all of it works", lambda: cluster.saved() > begun)


def a_node_is_cut_off(cluster: Cluster) -> None:
    """Nothing is killed by that alone, neither there nor elsewhere."""
    running = cluster.tasks()
    cut = cluster.nodes[next(iter(cluster.where()))]
    cut.link.cut()
    eventually("nobody hears of it", lambda: not cluster.ready(cut.node))
    assert cluster.tasks() == running
    cut.link.heal()
    eventually("the node is back", cluster.ready)
    assert cluster.tasks() == running
    assert cluster.runs(3)


def the_leader_is_killed(cluster: Cluster) -> tuple[float, float]:
    """Another leads, finds every task, and the gang works on. Returns after how many seconds it led, and knew of every node."""
    running = cluster.tasks()
    leader = cluster.leader
    leader[0].signal(signal.SIGKILL)
    at = time.monotonic()
    cluster.planes.remove(leader)
    assert cluster.leader != leader
    followed_s = time.monotonic() - at
    eventually("it knows of all nodes", cluster.ready)
    heard_s = time.monotonic() - at
    saved = cluster.saved()
    eventually("the gang works on", lambda: cluster.saved() > saved)
    assert cluster.tasks() == running
    assert cluster.runs(3)
    return followed_s, heard_s
