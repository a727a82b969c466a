"""What was held over time, by node and by queue: for each caller what they may see, added up where it is too much."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from reconciler.api import timeline
from reconciler.api.guard import Guard
from reconciler.api.server import ApiServer
from reconciler.api.timeline import TimelineSpan, TimeWindow, rows_below
from reconciler.client import ApiError, Client, NotAuthorisedError
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.placements import Steps
from solver.model.cluster import DeviceId
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName, TaskPlacement
from solver.policy.policy import Queue, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.api.people import client_of, serving

HOUR = 3_600_000
START, END = str(NOW.after(-HOUR)), str(NOW.after(3 * HOUR))


def gpus(node: int, *indices: int) -> TaskPlacement:
    name = NODES[node].name
    return TaskPlacement("worker", node, name, tuple(DeviceId(f"{name}/{index}") for index in indices))


@pytest.fixture
def ran(site: Site) -> Site:
    """`done` of ann had three GPUs of both nodes for an hour, `holds` of bob in another queue has one since."""
    site.store.jobs.submit(JobName("done"), spec(), "ann", NOW, "")
    site.store.jobs.submit(JobName("holds"), spec(queue="other"), "bob", NOW, "")
    site.bind("done", gpus(0, 0, 1), gpus(1, 0))
    site.bind("holds", gpus(1, 3))
    site.store.jobs.finish(site.epoch(), JobName("done"), JobOutcome("succeeded", NOW.after(HOUR)))
    site.store.ledger.release(site.epoch(), JobName("done"), 1, NOW.after(HOUR))
    return site


def spans(client: Client, **asked: str) -> dict[str, list[TimelineSpan]]:
    return {row.name: list(row.spans) for row in client.past.timeline(START, END, **asked).rows}


@pytest.mark.usefixtures("ran")
def test_nodes_with_what_was_held_of_them(client: Client) -> None:
    found = spans(client)
    assert [(name, [span.job for span in row]) for name, row in found.items()] == [
        ("n1", ["done"]),
        ("n2", ["done", "holds"]),
    ]
    done, holds = found["n2"]
    assert (done.attempt, done.queue, done.user, done.gpu_type, done.gpus) == (1, "team", "ann", "H100", 1000)
    assert (done.since, done.until, done.ended) == (NOW, NOW.after(HOUR), "succeeded")
    assert (holds.until, holds.ended, [task.devices for task in holds.tasks]) == (None, "", [("n2/3",)])


@pytest.mark.usefixtures("ran")
def test_nodes_page_by_page_by_name_and_by_rack(client: Client) -> None:
    first = client.past.timeline(START, END, limit=1)
    second = client.past.timeline(START, END, cursor=first.next, limit=1)
    assert ([row.name for row in first.rows], [row.name for row in second.rows], second.next) == (["n1"], ["n2"], "")
    assert list(spans(client, node="n2")) == ["n2"]
    assert list(spans(client, node="gone")) == ["gone"]
    assert list(spans(client, rack="n1")) == ["n1"]


@pytest.mark.usefixtures("ran")
def test_queues_with_what_those_below_them_held(client: Client) -> None:
    assert {name: [span.job for span in row] for name, row in spans(client, by="queue").items()} == {
        "org": ["done", "holds"]
    }
    below = spans(client, by="queue", queue="org")
    assert {name: [(span.job, span.gpus) for span in row] for name, row in below.items()} == {
        "team": [("done", 3000)],
        "other": [("holds", 1000)],
        "org": [],
    }


def test_what_a_caller_may_not_see_is_held_by_a_job_without_a_name(ran: Site) -> None:
    with serving(ran) as server, client_of(server, "stranger") as stranger:
        found = spans(stranger)
        (hidden,) = found["n1"]
        assert (hidden.redacted, hidden.job, hidden.user, hidden.attempt, hidden.ended) == (True, "", "", 0, "")
        assert (hidden.gpus, hidden.tasks[0].devices, hidden.tasks[0].group) == (2000, ("n1/0", "n1/1"), "")
        assert b"done" not in msgspec.json.encode([str(span) for row in found.values() for span in row])
        assert [span.job for span in found["n2"]] == ["", "holds"]
        with client_of(server, "nobody") as nobody, pytest.raises(NotAuthorisedError):
            nobody.past.timeline()


@pytest.mark.usefixtures("ran")
def test_too_many_are_added_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "SPANS_MAX", 2)
    found = client.past.timeline(START, END)
    assert found.step == Duration(2 * 60_000)
    assert {row.name: (row.spans, *(row.held[at] for at in (29, 30, 59, 60, 119))) for row in found.rows} == {
        "n1": ((), 0, 2000, 2000, 0, 0),
        "n2": ((), 0, 2000, 2000, 1000, 1000),
    }
    monkeypatch.setattr(timeline, "SPANS_MAX", 1)
    (org,) = client.past.timeline(START, END, by="queue").rows
    assert (org.held[29], org.held[30], org.held[119]) == (0, 4000, 1000)


@pytest.mark.usefixtures("ran")
def test_use_of_queues_over_time(client: Client) -> None:
    found = client.past.usage("org", START, END, "30m")
    assert {row.queue: (row.held, row.gpu_seconds) for row in found.rows} == {
        "team": ((0, 0, 3000, 3000, 0, 0, 0, 0), 3 * 3600),
        "other": ((0, 0, *[1000] * 6), 3 * 3600),
    }
    (org,) = client.past.usage("", START, END, "4h").rows
    assert (org.queue, org.gpu_type, org.held, org.gpu_seconds) == ("org", "H100", (1500,), 6 * 3600)
    assert client.past.usage("", END, str(NOW.after(4 * HOUR))).step == Duration(60_000)


def test_use_of_a_queue_that_is_no_more(ran: Site, client: Client) -> None:
    ran.policy = policy_of((Queue(QueueName("org")), Queue(QueueName("other"), QueueName("org"))))
    assert [row.queue for row in client.past.usage("", START, END).rows] == ["org", "team"]
    assert [row.queue for row in client.past.usage("org", START, END).rows] == ["other"]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"from": "soon"}, "from"),
        ({"from": END, "to": START}, "from"),
        ({"from": "0001-01-01T00:00:00Z"}, "from"),
        ({"from": "999999999999999w"}, "from"),
        ({"to": "-1"}, "to"),
        ({"from": "24h", "step": "1s"}, "step"),
        ({"step": "999999999999999w"}, "step"),
        ({"step": "0s"}, "step"),
    ],
)
def test_wrong_windows_are_refused(client: Client, asked: dict[str, str], named: str) -> None:
    with pytest.raises(ApiError, match=f"^{named}: ") as refused:
        client.past.usage(since=asked.get("from", "7d"), to=asked.get("to", ""), step=asked.get("step", ""))
    assert refused.value.problem.code == "invalid-parameter"


def test_an_unknown_queue_is_told(client: Client) -> None:
    with pytest.raises(ApiError, match="There is no queue none") as unknown:
        client.past.usage("none")
    assert unknown.value.problem.code == "unknown-queue"


def test_the_last_step_is_as_long_as_it_has_lasted() -> None:
    window = TimeWindow(Instant(0), Instant(2_000), Instant(1_500))
    steps = window.steps(Duration(1_000))
    assert steps == Steps(Instant(0), Duration(1_000), 2)
    assert window.averages(steps, (500_000, 500_000)) == (MilliGpu(500), MilliGpu(1000))


def test_each_queue_counts_to_one_row() -> None:
    tree = policy_of(
        (
            Queue(QueueName("a")),
            Queue(QueueName("b"), QueueName("a")),
            Queue(QueueName("c"), QueueName("b")),
            Queue(QueueName("d")),
        )
    )
    assert rows_below(tree, None) == {"a": "a", "b": "a", "c": "a", "d": "d"}
    assert rows_below(tree, QueueName("a")) == {"a": "a", "b": "b", "c": "b"}
    assert rows_below(tree, QueueName("c")) == {"c": "c"}


def test_where_another_scheduler_runs_jobs_it_is_said(site: Site) -> None:
    services = replace(site.services(), placements=None)
    with ApiServer(services, Guard(TOKEN, "alice")) as server, Client(server.url, TOKEN) as client:
        with pytest.raises(ApiError, match="another scheduler") as refused:
            client.past.timeline()
        assert refused.value.problem.code == "no-placements"
