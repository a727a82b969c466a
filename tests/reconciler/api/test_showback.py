"""Showback over HTTP: it adds up, says what is not on record, and names no job that the caller may not see."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from threading import Event, Semaphore

import msgspec
import pytest

from reconciler.analysis.showback.statement import ShowbackBy
from reconciler.api.guard import Guard
from reconciler.api.server import ApiServer
from reconciler.api.showback_payloads import Showback
from reconciler.client import ApiError, Client, NotAuthorisedError
from reconciler.documents.operations import Operations
from reconciler.model.clock import VirtualClock
from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from reconciler.model.job_record import JobOutcome
from reconciler.model.rate_card import Price, Rate, RateCard
from reconciler.protocols.capacity import DeviceState, NodeCapacity
from reconciler.protocols.placements import NodePlacement, Placements
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import H100, NOW, TOKEN, Site, spec
from tests.reconciler.api.people import client_of, serving
from tests.reconciler.api.test_timeline import gpus

HOUR, MINUTE = 3_600_000, 60_000
START, END = str(NOW.after(-HOUR)), str(NOW.after(3 * HOUR))
CARD = RateCard("card", NOW, "EUR", (Rate(Price.parse("2.5")),))
EVERY_BY: tuple[ShowbackBy, ...] = ("queue", "user", "class", "job", "gpu-type")


@pytest.fixture
def ran(site: Site) -> Site:
    """`done` of ann had three GPUs of both nodes for an hour, `holds` of bob in another queue has one since. A leader is there."""
    site.store.jobs.submit(JobName("done"), spec(replicas=3), "ann", NOW, "")
    site.store.jobs.submit(JobName("holds"), spec(queue="other"), "bob", NOW, "")
    site.bind("done", gpus(0, 0, 1), gpus(1, 0))
    site.bind("holds", gpus(1, 3))
    site.store.jobs.finish(site.epoch(), JobName("done"), JobOutcome("succeeded", NOW.after(HOUR)))
    site.store.ledger.release(site.epoch(), JobName("done"), 1, NOW.after(HOUR))
    idle: DeviceState = "idle"
    there = {
        node.name: NodeCapacity(node.pool, H100, tuple(gpu.id for gpu in node.gpus), (idle,) * len(node.gpus))
        for node in NODES
    }
    site.store.capacities.keep(site.epoch(), there, NOW)
    for hours in range(4):
        site.store.capacities.watch(site.epoch(), NOW.after(hours * HOUR), Duration(HOUR))
    keep(site, 10 * 366 * 24 * HOUR)
    return site


def keep(site: Site, span: int) -> None:
    scheduling = msgspec.structs.replace(site.policy.scheduling, keep_placements=Duration(span))
    site.policy = msgspec.structs.replace(site.policy, scheduling=scheduling)


@pytest.fixture
def priced(ran: Site) -> Site:
    ran.operations = Operations(rates=(CARD,))
    return ran


def in_hours(found: Showback) -> dict[str, float]:
    return {row.name: float(row.allocated) / 3600 for row in found.rows}


@pytest.mark.usefixtures("ran")
def test_what_each_had_and_what_became_of_the_rest(client: Client) -> None:
    found = client.past.showback("queue", START, END)
    assert in_hours(found) == {"team": 3, "other": 3}
    gpus_there = sum(len(node.gpus) for node in NODES)
    assert sum(row.capacity for row in found.capacity) == gpus_there * 3 * 3600
    for row in found.capacity:
        states = row.allocated + row.idle + row.reserved + row.unhealthy + row.partitioning
        assert (states, row.gpu_type) == (row.capacity, "H100")
    assert sum(row.allocated for row in found.capacity) == 6 * 3600
    assert (found.overheld, found.currency, found.charges, found.unwatched_seconds) == (Decimal(0), "", (), 0.0)
    assert {row.active for row in found.rows} == {row.cost for row in found.rows} == {None}


def test_what_was_measured_is_active_or_idle_held_and_nothing_is_counted_twice(ran: Site) -> None:
    """`holds` has GPU 3 of n2; in its second hour that is known by the minute, in its third not at all."""
    first, device = Instant(-(-NOW // HOUR) * HOUR), DeviceId("n2/3")
    use = record_of(UseFigures("gpm", 12, active=UseSpread(25.0)))
    told = [NodeMinute(first.after(at * MINUTE), (GpuMinute(device, "GPU-3", use),)) for at in range(60)]
    ran.store.gpu_uses.keep(ran.epoch(), {NodeName("n2"): told})
    services = replace(ran.services(), clock=VirtualClock(NOW.after(3 * HOUR)))
    with ApiServer(services, Guard(TOKEN, user="alice")) as server, Client(server.url, TOKEN) as client:
        rows = {row.name: row for row in client.past.showback("job", START, END).rows}
        capacity = client.past.showback("job", START, END).capacity
    figures = {name: (row.active, row.idle_held, row.unmeasured) for name, row in rows.items()}
    assert figures == {
        "holds": (Decimal(900), Decimal(2700), Decimal(2 * 3600)),
        "done": (None, None, Decimal(3 * 3600)),
    }
    used = sum((row.active or 0) + (row.idle_held or 0) + row.unmeasured for row in rows.values())
    others = sum(row.idle + row.reserved + row.unhealthy + row.partitioning for row in capacity)
    assert used + others == sum(row.capacity for row in capacity)


@pytest.mark.usefixtures("ran")
def test_a_window_begins_when_something_is_on_record(client: Client) -> None:
    found = client.past.showback(since=START, to=END)
    assert (found.asked_from, found.start, found.end) == (NOW.after(-HOUR), NOW, NOW.after(3 * HOUR))
    late = client.past.showback(since=str(NOW.after(HOUR)), to=str(NOW.after(2 * HOUR)))
    assert (late.start, in_hours(late)) == (NOW.after(HOUR), {"other": 1})
    with pytest.raises(ApiError, match=r"from: nothing is on record from before 2023-11-14T22:13:20Z"):
        client.past.showback(since=START, to=str(NOW))
    with pytest.raises(ApiError, match="it has not begun yet"):
        client.past.showback(since="2200-01-01T00:00:00Z", to="2200-01-02T00:00:00Z")


def test_nothing_is_on_record_yet(client: Client) -> None:
    with pytest.raises(ApiError, match="from: nothing is on record yet"):
        client.past.showback()


def test_what_is_deleted_is_not_counted_as_nothing(ran: Site) -> None:
    keep(ran, 2 * HOUR)
    services = replace(ran.services(), clock=VirtualClock(NOW.after(3 * HOUR)))
    with ApiServer(services, Guard(TOKEN, user="alice")) as server, Client(server.url, TOKEN) as client:
        found = client.past.showback(since=START, to=END)
        assert (found.start, in_hours(found)) == (NOW.after(HOUR), {"other": 2})


def test_when_no_leader_was_there_is_told(ran: Site, client: Client) -> None:
    ran.store.capacities.watch(ran.epoch(), NOW.after(5 * HOUR), Duration(HOUR))
    ran.store.capacities.watch(ran.epoch(), NOW.after(6 * HOUR), Duration(HOUR))
    found = client.past.showback(since=START, to=str(NOW.after(6 * HOUR)))
    assert found.unwatched_seconds == 2 * 3600


def test_costs_and_charges(priced: Site, client: Client) -> None:
    found = client.past.showback("user", START, END, charges="day")
    assert {row.name: row.cost for row in found.rows} == {"ann": 7.5, "bob": 7.5}
    assert found.currency == "EUR"
    midnight = NOW.after(-NOW % (24 * HOUR))
    assert {one.start for one in found.charges} == {NOW, midnight}
    assert sum(one.quantity for one in found.charges) == 6
    assert all(one.cost == one.quantity * one.price.amount for one in found.charges if one.price and one.cost)
    assert len(client.past.showback("user", START, END).charges) == 0


@pytest.mark.parametrize("by", EVERY_BY)
def test_what_a_caller_may_not_see_is_not_told(priced: Site, by: ShowbackBy) -> None:
    with serving(priced) as server, client_of(server, "stranger") as stranger:
        found = stranger.past.showback(by, START, END, "day")
        told = msgspec.json.encode([str(found.rows), str(found.charges)])
        assert not [name for name in (b"done", b"ann") if name in told]
        assert (b"holds" in told, b"bob" in told) == (by == "job", by in ("user", "job")), "of the queue other it may"
        assert sum(row.allocated for row in found.rows) == 6 * 3600
        assert [row.redacted for row in found.rows if row.redacted] == [True] * (by in ("user", "job"))
        with client_of(server, "nobody") as nobody, pytest.raises(NotAuthorisedError):
            nobody.past.showback(by)


@pytest.fixture
def of_slurm(site: Site) -> Iterator[Client]:
    services = replace(site.services(), placements=None, past=None)
    with ApiServer(services, Guard(TOKEN, user="alice")) as server, Client(server.url, TOKEN) as client:
        yield client


def test_where_another_scheduler_runs_jobs_there_is_none(of_slurm: Client) -> None:
    with pytest.raises(ApiError) as refused:
        of_slurm.past.showback()
    assert (refused.value.problem.status, refused.value.problem.code) == (404, "no-placements")


class SlowPlacements:
    """Placements that are read when a test lets them."""

    def __init__(self, placements: Placements) -> None:
        self._placements, self.asked, self.go_on = placements, Semaphore(0), Event()
        self.of_job = placements.of_job

    def in_window(self, start: Instant, end: Instant) -> tuple[NodePlacement, ...]:
        self.asked.release()
        assert self.go_on.wait(60)
        return self._placements.in_window(start, end)


def test_no_more_than_two_are_worked_out_at_once(ran: Site) -> None:
    known, slow = ran.services(), SlowPlacements(ran.store.placements)
    assert known.past
    services = replace(known, past=known.past._replace(placements=slow))  # type: ignore[arg-type]
    guard = Guard(TOKEN, user="alice")
    with ApiServer(services, guard) as server, Client(server.url, TOKEN) as client, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(client.past.showback, since=START, to=END) for _ in range(2)]
        for _ in both:
            assert slow.asked.acquire(timeout=60)
        with pytest.raises(ApiError) as refused:
            client.past.showback(since=START, to=END)
        assert (refused.value.problem.status, refused.value.problem.code) == (503, "too-many-statements")
        slow.go_on.set()
        assert [in_hours(each.result()) for each in both] == [{"team": 3, "other": 3}] * 2
        assert in_hours(client.past.showback(since=START, to=END)) == {"team": 3, "other": 3}
