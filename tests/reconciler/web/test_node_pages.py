"""Nodes are found by rack, type and state, page by page; the page of one says what runs there, what is kept, and what is wrong."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.api.services import Services
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.facts import GpuFacts, NicFacts, NodeFacts, Xid
from reconciler.model.health_record import HealthFinding, HealthTrial, NodeHealth, PartHealth
from reconciler.model.intervention_record import Intervention, Subject
from reconciler.protocols.agents import Invitation
from reconciler.protocols.history import Event
from reconciler.web.node_index import NodeRows
from reconciler.web.node_sight import NodeSights
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.inflight import InFlight, Intent, Reservation, declared_holder
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName, QueueName, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, spec
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.tables import cells

EVIL = "<img src=x onerror=alert(1)>"
WORKER = TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"), DeviceId("n1/1")))


def node(name: str, block: str = "b1", rack: str = "r1", gpu_type: str = "H100") -> Node:
    gpus = tuple(msgspec.structs.replace(gpu, id=DeviceId(f"{name}/{gpu.index}")) for gpu in NODES[0].gpus)
    return msgspec.structs.replace(NODES[0], name=NodeName(name), block=block, rack=rack, gpu_type=gpu_type, gpus=gpus)


@pytest.fixture
def cluster(console: Console, monkeypatch: pytest.MonkeyPatch) -> Console:
    """n1 runs a job; r10 comes after r2, as people count."""
    nodes = node("n10", rack="r10"), node("n1"), node("a100", "b2", "r3", "A100"), node("n2", rack="r2")
    monkeypatch.setattr("tests.reconciler.api.conftest.NODES", nodes)
    console.site.sighted = BackendReports({each.name: each for each in nodes}, {})
    submit(console, "runs", 2)
    console.site.bind("runs", WORKER)
    return console


def submit(console: Console, name: str, gpus: int = 1, queue: str = "team") -> None:
    console.site.store.jobs.submit(JobName(name), spec(gpus, queue=queue), "eve", console.clock.now(), f"key-{name}")


def cordon(console: Console, name: str, reason: str = "fan 3") -> None:
    now = console.site.services().clock.now()
    console.site.store.interventions.begin(
        Intervention("cordon", Subject("node", name), "ada", reason, now, now.after(3_600_000))
    )
    console.site.store.history.record_event(Event(now, "cordoned", name, f"until then: {reason}", "ada"))


def names(text: str) -> list[str]:
    return [row[0] for row in cells(text, "Table of nodes")]


def test_nodes_lie_rack_by_rack_as_people_count_with_what_they_hold(cluster: Console) -> None:
    with cluster.browser() as browser:
        rows = cells(browser.get("/nodes").text, "Table of nodes")
    assert [(row[0], row[1], row[3], row[4], row[6]) for row in rows] == [
        ("n1", "b1 / r1", "2", "4", "runs"),
        ("n2", "b1 / r2", "0", "4", ""),
        ("n10", "b1 / r10", "0", "4", ""),
        ("a100", "b2 / r3", "0", "4", ""),
    ]
    assert {row[5] for row in rows} == {"well"}


def test_they_can_be_narrowed_down(cluster: Console) -> None:
    cordon(cluster, "n2")
    expected = {
        "rack=b1+/+r1": ["n1"],
        "rack=r1": ["n1", "n10"],
        "rack=b2": ["a100"],
        "type=A100": ["a100"],
        "prefix=n1": ["n1", "n10"],
        "state=cordoned": ["n2"],
        "state=out+of+order": ["n2"],
        "state=well": ["n1", "n10", "a100"],
        "state=well&prefix=n1&type=H100&rack=r10": ["n10"],
        "rack=&type=&state=&prefix=": ["n1", "n2", "n10", "a100"],
        "state=drained": [],
    }
    with cluster.browser() as browser:
        pages = {query: browser.get(f"/nodes?{query}").text for query in expected}
    assert {query: names(text) for query, text in pages.items()} == expected
    assert [query for query, text in pages.items() if "No node is like that." in text] == ["state=drained"]


def test_they_come_page_by_page_and_keep_to_what_was_asked_for(
    cluster: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.web.node_pages.PAGE", 2)
    seen, path, text = list[list[str]](), "/nodes?type=H100", ""
    with cluster.browser() as browser:
        while path:
            text = browser.get(path).text
            seen.append(names(text))
            link = re.search(r'<a href="([^"]+)" rel="next">', text)
            path = html.unescape(link[1]) if link else ""
            assert not path or "type=H100" in path
        assert 'href="/nodes?type=H100" rel="prev"' in text
        assert names(browser.get("/nodes?page=99").text) == []
        assert [browser.get(f"/nodes?{bad}").status_code for bad in ("page=0", "state=odd", "page=x")] == [422] * 3
    assert seen == [["n1", "n2"], ["n10"]]


def test_a_node_says_who_holds_its_gpus(cluster: Console) -> None:
    with cluster.browser() as browser:
        text = browser.get("/nodes/n1").text
    assert "<b>2</b> of <b>4</b> GPUs held" in text
    assert "It is well, and takes work." in text
    rows = cells(text, "Table of GPUs")
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("0 n1/0", "runs worker/0", "well"),
        ("1 n1/1", "runs worker/0", "well"),
        ("2 n1/2", "free", "well"),
        ("3 n1/3", "free", "well"),
    ]
    assert text.count('class="b-held"') == 2
    assert 'href="/jobs/runs"' in text


def test_the_page_of_a_job_leads_to_its_nodes(cluster: Console) -> None:
    with cluster.browser() as browser:
        assert '<a href="/nodes/n1">n1</a>' in browser.get("/jobs/runs").text


def test_a_node_says_what_is_wrong_with_it_and_what_it_tells_of_itself(cluster: Console) -> None:
    gpu = DeviceId("n1/2")
    finding = HealthFinding("xid-drain", gpu, "", NOW, NOW.after(1_000), "XID 79", int(NOW), confirmed=True)
    trial = HealthTrial(NOW.after(5_000), (gpu,), (gpu,), NOW.after(6_000), detail="exit code 3")
    sick = NodeHealth(
        NodeName("n1"), (finding,), (PartHealth(gpu, "drained", NOW, "XID 79", NOW.after(9_000)),), trial=trial
    )
    cluster.site.store.health.keep(cluster.site.epoch(), (sick,))
    told = GpuFacts(gpu, xids=(Xid(79, NOW),), uncorrectable_errors=4, throttle_reasons=("thermal",), temperature_c=91)
    facts = NodeFacts(NodeName("n1"), NOW.after(2_000), (told,), (NicFacts("eth0", True, 100_000),))
    cluster.site.sighted = BackendReports(cluster.site.sighted.nodes, {}, facts={facts.node: facts})
    agents = cluster.site.agents.agents
    agents.invite(Invitation("hash", facts.node, "ada", NOW, NOW.after(1_000)))
    agents.join("hash", facts.node, "key", NOW, Instant(2_000_000_000_000))
    with cluster.browser() as browser:
        text = browser.get("/nodes/n1").text
    plain = html.unescape(re.sub(r"<[^>]+>", "", text))
    assert f"n1/2: drained XID 79 by health, since {NOW}, until {NOW.after(9_000)}" in plain
    assert cells(text, "Table of findings") == [["xid-drain", "n1/2", "XID 79", str(NOW), str(NOW.after(1_000)), "yes"]]
    assert f"began at {NOW.after(5_000)}, and failed at {NOW.after(6_000)}: exit code 3." in plain
    assert cells(text, "Table of what GPUs tell") == [["n1/2", "91", "", "4", "thermal", f"79 {NOW}", ""]]
    assert "eth0 up at 100,000 Mbit/s." in plain
    assert f"Its agent joined, joined {NOW}" in plain
    assert cells(text, "Table of GPUs")[2][3] == "drained"


def test_a_node_says_what_is_kept_on_it_for_others(cluster: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(cluster, "waits", 4)
    place = msgspec.structs.replace(WORKER, devices=(DeviceId("n1/3"),))
    until = NOW.after(7_000)
    in_flight = InFlight(
        intents=(Intent("nominate", JobName("waits"), 1, NOW, until, (place,)),),
        reservations=(Reservation(declared_holder("maintenance"), (place,), NOW, until),),
    )

    def with_more(time: Any, nodes: Any, jobs: Any, *_: Any, node_sets: Any) -> Snapshot:
        return snapshot_of(time, nodes, jobs, in_flight, node_sets)

    monkeypatch.setattr("tests.reconciler.api.conftest.snapshot_of", with_more)
    with cluster.browser() as browser:
        text = browser.get("/nodes/n1").text
        assert cells(text, "Table of what is kept") == [
            ["waits", "promised", "1", "n1/3", str(NOW), ""],
            ["Reservation maintenance", "reserved", "1", "n1/3", str(NOW), str(until)],
        ]
        assert 'href="/jobs/waits"' in text
        assert text.count('class="b-kept"') == 1


def test_what_happened_to_a_job_of_the_same_name_is_not_told_of_the_node(cluster: Console) -> None:
    cordon(cluster, "n1", "fan 3")
    for kind, cause in (
        ("failed", "exit code 1\nhunter2"),
        ("expired", "hold by eve until x: hunter2 is over"),
        ("expired", "cordon by ada until x: fan 3 is over"),
        ("over", "the job has ended"),
        ("over", "the node is not declared any more"),
        ("node-drained", "XID 79"),
    ):
        cluster.site.store.history.record_event(Event(NOW, kind, "n1", cause, "loop"))
    with cluster.browser() as browser:
        text = browser.get("/nodes/n1").text
    assert [row[1] for row in cells(text, "Table of events")] == ["node-drained", "over", "expired", "cordoned"]
    assert "hunter2" not in text


def test_jobs_that_one_may_not_see_lead_nowhere(cluster: Console) -> None:
    cluster.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",), (QueueName("other"),)),))
    with cluster.browser(cluster.adas) as browser:
        for path in ("/nodes/n1", "/nodes"):
            text = browser.get(path).text
            assert "runs" in text
            assert "/jobs/runs" not in text


def test_names_are_text_and_lead_to_their_pages(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.reconciler.api.conftest.NODES", (node(EVIL, EVIL, EVIL, EVIL),))
    cordon(console, EVIL, EVIL)
    console.site.store.history.record_event(Event(NOW, "node-drained", EVIL, EVIL, EVIL))
    with console.browser() as browser:
        text = browser.get("/nodes").text
        (link,) = set(re.findall(r'<th scope="row"><a href="([^"]+)"', text))
        pages = [text, *(browser.get(path).text for path in (link, f"{link}/cordon", "/health", "/interventions", "/"))]
        rack = re.search(r'<td class="wide"><a href="(/nodes\?rack=[^"]+)"', text)
        assert rack is not None
        pages.append(browser.get(html.unescape(rack[1])).text)
    for each in pages:
        assert EVIL not in each
        assert html.escape(EVIL) in each or "&lt;img src=x onerror=alert(1)&gt;" in each


def test_a_node_that_is_not_there_is_told_with_the_nearest_name(cluster: Console) -> None:
    with cluster.browser() as browser:
        refused = browser.get("/nodes/n11")
    assert (refused.status_code, "Did you mean" in refused.text) == (404, True)


def counted(services: Services, monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """The snapshots of which an index was made."""
    made, plain = list[Snapshot](), NodeRows.of

    def of(snapshot: Snapshot) -> NodeRows:
        made.append(snapshot)
        return plain(snapshot)

    monkeypatch.setattr(NodeRows, "of", of)
    return made


def test_what_a_pass_saw_is_worked_out_once_and_what_is_done_by_hand_is_seen_at_once(
    cluster: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.site.snapshot(), cluster.site.snapshot()
    services = cluster.site.services()
    made = counted(services, monkeypatch)
    shown = [first]
    sights = NodeSights(_with(services, shown))
    sight = sights.latest()
    assert sights.latest() is sight
    cordon(cluster, "n2")
    again = sights.latest()
    assert (again.index, list(sight.faults), list(again.faults)) == (sight.index, [], ["n2"])
    shown[0] = second
    sights.latest()
    assert made == [first, second]


def _with(services: Services, shown: list[Snapshot]) -> Services:
    return replace(services, snapshot=lambda: shown[0])


def test_held_parts_count_as_what_they_are(cluster: Console) -> None:
    submit(cluster, "part")
    part = TaskPlacement("worker", 0, NodeName("n2"), (DeviceId("n2/0"),), MilliGpu(250), "time-slicing")
    cluster.site.bind("part", part)
    with cluster.browser() as browser:
        text = browser.get("/nodes/n2").text
    assert "<b>0.25</b> of <b>4</b> GPUs held" in text
    assert cells(text, "Table of GPUs")[0][2] == "part worker/0, 0.25 of it\nfree"
