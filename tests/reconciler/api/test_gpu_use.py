"""What GPUs do and did, over HTTP: for each caller the jobs that they may see, and nothing unknown as 0."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.gpu_payloads import JobUsePoint
from reconciler.api.guard import Guard
from reconciler.api.server import ApiServer
from reconciler.client import ApiError, Client
from reconciler.control.use_summary import GpuUtilisation
from reconciler.model.clock import SystemClock
from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import H100, NOW, TOKEN, Site, spec
from tests.reconciler.api.people import client_of, serving

MINUTE = 60_000
N1, N2 = NODES[0].name, NODES[1].name
WINDOW = str(NOW), str(NOW.after(60 * MINUTE))
"""NOW is no whole minute."""
FIRST = Instant(-(-NOW // MINUTE) * MINUTE)


def gpus(node: NodeName, *indices: int) -> TaskPlacement:
    return TaskPlacement("worker", 0, node, tuple(DeviceId(f"{node}/{index}") for index in indices))


def minute(node: NodeName, start: Instant, **active: float) -> NodeMinute:
    """`g0=50.0`: GPU 0 is half active."""
    told = (
        GpuMinute(
            DeviceId(f"{node}/{name[1:]}"), f"GPU-{name}", record_of(UseFigures("gpm", 12, active=UseSpread(value)))
        )
        for name, value in active.items()
    )
    return NodeMinute(start, tuple(told))


@pytest.fixture
def busy(site: Site) -> Site:
    """`mine` in the queue team has two GPUs of n1, `theirs` of bob in another queue one of n2; n1 tells of itself."""
    site.store.jobs.submit(JobName("mine"), spec(), "mine", NOW, "")
    site.store.jobs.submit(JobName("theirs"), spec(queue="other"), "bob", NOW, "")
    site.bind("mine", gpus(N1, 0, 1))
    site.bind("theirs", gpus(N2, 3))
    just_now = Instant((SystemClock().now() - 90_000) // MINUTE * MINUTE)
    site.minutes[N1] = minute(N1, just_now, g0=50.0, g2=0.0)
    return site


@pytest.mark.usefixtures("busy")
def test_gpus_with_what_they_do_and_which_jobs_hold_them(client: Client) -> None:
    found = client.gpus()
    assert [gpu.gpu for gpu in found.items] == [gpu.id for node in NODES for gpu in node.gpus]
    by_id = {gpu.gpu: gpu for gpu in found.items}
    first, second, idle, other = (by_id[DeviceId(name)] for name in ("n1/0", "n1/1", "n1/2", "n2/3"))
    assert first.use == UseFigures("gpm", 12, active=UseSpread(50.0))
    assert (first.jobs, first.held, first.gpu_type) == (("mine",), True, H100)
    assert (second.use, second.minute, second.jobs) == (None, None, ("mine",))
    assert idle.use is not None
    assert (idle.use.active, idle.held) == (UseSpread(0.0), False)
    assert (other.use, other.jobs) == (None, ("theirs",))
    assert found.types == (GpuUtilisation(H100, 3, 1, 0.5, healthy=8),)
    assert {one.name: one.lines for one in found.queues} == {
        "team": (GpuUtilisation(H100, 2, 1, 0.5),),
        "other": (GpuUtilisation(H100, 1, 0, 0.0),),
    }


@pytest.mark.usefixtures("busy")
def test_gpus_page_by_page_and_by_what_is_asked_for(client: Client) -> None:
    first = client.gpus(limit=5)
    second = client.gpus(limit=5, cursor=first.next)
    assert [len(first.items), len(second.items), second.next] == [5, 3, ""]
    assert {gpu.gpu for gpu in (*first.items, *second.items)} == {gpu.id for node in NODES for gpu in node.gpus}
    asked: tuple[dict[str, Any], ...] = (
        {"node": "n2"},
        {"queue": "team"},
        {"job": "theirs"},
        {"gpuType": "H100"},
        {"gpuType": "A100"},
    )
    assert [len(client.gpus(**one).items) for one in asked] == [4, 2, 1, 8, 0]


def test_a_caller_sees_no_job_that_they_may_not_see(busy: Site) -> None:
    with serving(busy) as server, client_of(server, "stranger") as stranger:
        by_id = {gpu.gpu: gpu for gpu in stranger.gpus().items}
        assert (by_id[DeviceId("n1/0")].held, by_id[DeviceId("n1/0")].jobs) == (True, ())
        assert by_id[DeviceId("n2/3")].jobs == ("theirs",)
        assert stranger.gpus(job="mine").items == ()
        with pytest.raises(ApiError) as refused:
            stranger.past.gpu_use_of_job("mine")
        assert refused.value.status == 403


@pytest.mark.usefixtures("busy")
def test_top_and_queues_say_how_active_what_is_held_is(client: Client) -> None:
    assert {line.name: (line.active, line.measured_gpus) for line in client.top().items} == {
        "mine": (50.0, 1),
        "theirs": (None, 0),
    }
    assert {queue.name: queue.use for queue in client.queues().items} == {
        "org": (GpuUtilisation(H100, 3, 1, 0.5),),
        "team": (GpuUtilisation(H100, 2, 1, 0.5),),
        "other": (GpuUtilisation(H100, 1, 0, 0.0),),
    }


def test_what_a_node_did_by_minutes_and_hours(busy: Site, client: Client) -> None:
    minutes = [minute(N1, FIRST.after(at * MINUTE), g0=20.0 * at) for at in range(3)]
    busy.store.gpu_uses.keep(busy.epoch(), {N1: minutes})
    (past,) = client.past.gpu_use_of_node("n1", "minute", *WINDOW).items
    assert [(point.start - FIRST, point.use.active.mean) for point in past.points if point.use.active] == [
        (0, 0.0),
        (MINUTE, 20.0),
        (2 * MINUTE, 40.0),
    ]
    hours = client.past.gpu_use_of_node("n1", "hour", str(NOW.after(-3_600_000)), str(NOW.after(3_600_000)))
    assert [point.use.covered for past in hours.items for point in past.points] == [3]
    assert client.past.gpu_use_of_node("n2", "minute", *WINDOW).items == ()


def test_what_a_job_did_is_what_its_gpus_did_while_it_had_them(busy: Site, client: Client) -> None:
    before = minute(N1, Instant(FIRST - MINUTE), g0=100.0)
    both = minute(N1, FIRST, g0=20.0, g1=60.0, g2=100.0)
    one = minute(N1, FIRST.after(MINUTE), g0=40.0)
    busy.store.gpu_uses.keep(busy.epoch(), {N1: [before, both, one], N2: [minute(N2, FIRST, g3=90.0)]})
    found = client.past.gpu_use_of_job("mine", "minute", str(NOW.after(-3_600_000)), WINDOW[1])
    assert found.points == (
        JobUsePoint(FIRST, 2, UseSpread(40.0, 20.0)),
        JobUsePoint(FIRST.after(MINUTE), 1, UseSpread(40.0, 40.0)),
    )
    assert found.active == 40.0
    busy.store.ledger.release(busy.epoch(), JobName("mine"), 1, FIRST.after(MINUTE))
    found = client.past.gpu_use_of_job("mine", "minute", *WINDOW)
    assert [point.start for point in found.points] == [FIRST]


@pytest.mark.usefixtures("busy")
def test_of_a_job_of_which_nothing_is_known_there_is_no_figure(client: Client) -> None:
    found = client.past.gpu_use_of_job("theirs", "minute", *WINDOW)
    assert (found.active, found.points) == (None, ())


@pytest.mark.usefixtures("busy")
def test_a_window_has_so_many_steps_at_most(client: Client) -> None:
    with pytest.raises(ApiError, match="1500 steps at most"):
        client.past.gpu_use_of_node("n1", "minute", "30h")
    assert client.past.gpu_use_of_node("n1", "hour", "30h").items == ()


def test_where_no_agents_tell_it_gpus_are_listed_and_nothing_is_known_of_their_use(busy: Site) -> None:
    busy.keeps_use = False
    busy.minutes.clear()
    with ApiServer(busy.services(), Guard(TOKEN, user="alice")) as server, Client(server.url, TOKEN) as client:
        for ask in (client.past.gpu_use_of_node, client.past.gpu_use_of_job):
            with pytest.raises(ApiError, match="told where dcgm-exporter can be read"):
                ask("mine")
        assert {gpu.use for gpu in client.gpus().items} == {None}
        assert client.gpus().types == (GpuUtilisation(H100, 3, 0, 0.0, healthy=8),)
        assert {line.active for line in client.top().items} == {None}
