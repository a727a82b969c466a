"""What people do by hand over the API: its reason, its end, who may see it, and where it shows."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.access.policy import AccessPolicy, BreakGlass
from reconciler.api.server import ApiServer
from reconciler.client import ApiError, Client
from reconciler.model.clock import SystemClock
from reconciler.model.health_record import HealthFinding, NodeHealth, PartHealth
from reconciler.model.intervention_record import Intervention, Subject
from reconciler.model.job_record import JobOutcome
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName
from solver.policy.ordering import Ordering, Turns
from solver.policy.policy import Queue, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.api.people import client_of, serving
from tests.reconciler.api.web import WEB

JOB = JobName("job")
NODE = NODES[0].name
WHY = "ticket 4711"
HOUR_MS = 3_600_000


def lasts_ms(done: Intervention) -> int:
    return done.until - done.at


def hold_of_long_ago() -> Intervention:
    return Intervention("hold", Subject("job", JOB), "ada", WHY, Instant(0), Instant(HOUR_MS))


def problem(caught: pytest.ExceptionInfo[ApiError]) -> tuple[int, str]:
    return caught.value.status, caught.value.problem.code


def test_a_cordon_shows_wherever_one_looks_until_it_is_released(client: Client, site: Site) -> None:
    done = client.by_hand.cordon(NODE, f"  {WHY}\nand more ", "90m")
    assert (done.author, done.reason, lasts_ms(done)) == ("alice", f"{WHY} and more", 90 * 60_000)
    assert client.status().by_hand == (done,)
    assert [view.cordon for view in client.nodes().items] == [done, None]
    assert site.woken == 1
    released = client.by_hand.uncordon(NODE)
    assert released is not None
    assert (released.ended_as, released.ended_by) == ("released", "alice")
    assert (client.status().by_hand, client.by_hand.newest().items) == ((), (released,))
    assert client.by_hand.uncordon(NODE) is None
    events = [(event.kind, event.actor) for event in site.store.history.events(NODE)]
    assert events == [("cordoned", "alice"), ("uncordoned", "alice")]


def test_a_held_job_and_one_of_a_held_queue_say_who_holds_them(client: Client) -> None:
    client.submit(JOB, spec())
    own = client.by_hand.hold(JOB, WHY, "1h")
    assert client.why(JOB).words == (f"held by alice until {own.until}: {WHY}",)
    longer = client.by_hand.hold_queue("org", WHY, "2h")
    assert client.why(JOB).words == (f"queue org is held by alice until {longer.until}: {WHY}",)
    assert {view.name: view.hold for view in client.queues().items} == {"org": longer, "team": None, "other": None}
    client.by_hand.release(JOB)
    client.by_hand.release_queue("org")
    assert client.job(JOB).block is None


def test_a_boost_shows_in_the_job_and_in_what_is_said_of_it(client: Client) -> None:
    client.submit(JOB, spec(gpus=4))
    done = client.by_hand.boost(JOB, WHY)
    assert client.job(JOB).boost == done
    assert client.why(JOB).words[-1] == f"boost by alice until {done.until}: {WHY}"
    assert client.by_hand.release_boost(JOB) is not None
    assert client.job(JOB).boost is None


def test_what_is_over_by_the_clock_is_not_in_force_though_nobody_has_ended_it(client: Client, site: Site) -> None:
    client.submit(JOB, spec())
    site.store.interventions.begin(hold_of_long_ago())
    assert client.status().by_hand == ()
    assert client.job(JOB).block is None


@pytest.mark.parametrize(
    ("until", "lasts"), [("", 4 * HOUR_MS), ("24h", 24 * HOUR_MS), ("1h30m", 90 * 60_000), ("1s", 1_000)]
)
def test_an_end_is_a_span_and_four_hours_unless_stated(client: Client, until: str, lasts: int) -> None:
    assert lasts_ms(client.by_hand.cordon(NODE, WHY, until)) == lasts


def test_an_end_may_be_a_time(client: Client) -> None:
    until = client.by_hand.cordon(NODE, WHY, "1h").until
    assert client.by_hand.cordon(NODE, "another", str(until)).until == until


@pytest.mark.parametrize("until", ["0s", "25h", "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "tomorrow", "-1h"])
def test_an_end_that_is_none_or_too_far_is_refused(client: Client, until: str) -> None:
    with pytest.raises(ApiError) as refused:
        client.by_hand.cordon(NODE, WHY, until)
    assert problem(refused) == (422, "unfit-end")
    assert client.status().by_hand == ()


def test_the_access_policy_says_how_long_at_most(client: Client, site: Site) -> None:
    site.access = AccessPolicy(break_glass=BreakGlass(Duration(HOUR_MS)))
    assert lasts_ms(client.by_hand.cordon(NODE, WHY)) == HOUR_MS
    with pytest.raises(ApiError, match="at most 1h") as refused:
        client.by_hand.cordon(NODE, WHY, "61m")
    assert problem(refused) == (422, "unfit-end")


@pytest.mark.parametrize("reason", ["", " \n ", "x" * 501])
def test_without_a_reason_nothing_is_done(client: Client, reason: str) -> None:
    with pytest.raises(ApiError) as refused:
        client.by_hand.hold_queue("team", reason)
    assert problem(refused) == (422, "no-reason")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"until": "1h"}', b'{"reason": "r", "more": 1}', b'{"reason": 1}'])
def test_a_body_that_is_none_is_refused(server: ApiServer, body: bytes) -> None:
    url, headers = f"{server.url}/v1/nodes/{NODE}/cordon", {"Authorization": f"Bearer {TOKEN}"}
    answer = WEB.put(url, content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "malformed")


def test_what_does_not_exist_is_said_to_be_missing_with_the_nearest_name(client: Client) -> None:
    with pytest.raises(ApiError, match="Did you mean n1") as node:
        client.by_hand.cordon("n11", WHY)
    with pytest.raises(ApiError, match="Did you mean team") as queue:
        client.by_hand.hold_queue("taem", WHY)
    with pytest.raises(ApiError) as job:
        client.by_hand.boost("nobody", WHY)
    assert [problem(caught) for caught in (node, queue, job)] == [
        (404, "unknown-node"),
        (404, "unknown-queue"),
        (404, "unknown-job"),
    ]


def test_nor_is_what_does_not_exist_let_go_unless_something_is_in_force_about_it(client: Client, site: Site) -> None:
    with pytest.raises(ApiError, match="Did you mean n1") as node:
        client.by_hand.uncordon("n11")
    with pytest.raises(ApiError, match="Did you mean team") as queue:
        client.by_hand.release_queue("taem")
    assert [problem(caught) for caught in (node, queue)] == [(404, "unknown-node"), (404, "unknown-queue")]
    client.by_hand.hold_queue("team", WHY)
    site.policy = policy_of((Queue(QueueName("org")),))
    assert client.by_hand.release_queue("team") is not None


def test_what_would_change_nothing_is_refused(client: Client, site: Site) -> None:
    client.submit(JOB, spec())
    turns = Ordering("least-served", turns=Turns())
    site.policy = policy_of((Queue(QueueName("org"), ordering=turns), Queue(QueueName("team"), QueueName("org"))))
    with pytest.raises(ApiError, match="take turns") as refused:
        client.by_hand.boost(JOB, WHY)
    assert problem(refused) == (422, "takes-turns")
    site.store.jobs.finish(site.epoch(), JOB, JobOutcome("cancelled", NOW))
    with pytest.raises(ApiError) as ended:
        client.by_hand.hold(JOB, WHY)
    assert problem(ended) == (422, "job-ended")


def test_of_jobs_one_sees_what_is_done_about_those_that_one_may_see(site: Site) -> None:
    with serving(site) as server:
        with client_of(server, "admin") as admin:
            admin.submit(JOB, spec())
            admin.by_hand.hold(JOB, WHY)
            admin.by_hand.cordon(NODE, WHY)
        with client_of(server, "stranger") as stranger, client_of(server, "viewer") as viewer:
            for client, seen in ((stranger, ["node"]), (viewer, ["job", "node"])):
                assert sorted(each.subject.kind for each in client.status().by_hand) == seen
                assert sorted(each.subject.kind for each in client.by_hand.newest().items) == seen


def test_pages_of_what_was_done(client: Client) -> None:
    for reason in ("one", "two", "three"):
        client.by_hand.cordon(NODE, reason)
    first = client.by_hand.newest(2)
    second = client.by_hand.newest(2, first.next)
    assert [each.reason for each in (*first.items, *second.items)] == ["three", "two", "one"]
    assert second.next == ""


def test_what_is_in_force_is_counted_by_kind(site: Site) -> None:
    record = site.record_round()
    done = hold_of_long_ago()
    site.metrics.observe(record.snapshot, record.plan, {}, (done, done))
    (family,) = [
        family
        for family in text_string_to_metric_families(site.metrics.text().decode())
        if family.name == "quorate_interventions"
    ]
    assert {sample.labels["kind"]: sample.value for sample in family.samples} == {"cordon": 0, "hold": 2, "boost": 0}


LATER = Instant.parse("2100-01-01T00:00:00Z")
SICK = NodeHealth(
    NodeName("n1"),
    (HealthFinding("straggler", "", "train", NOW, NOW, "task worker/0 of train is slow", confirmed=True),),
    (PartHealth("", "cordoned", NOW, "task worker/0 of train is slow", LATER),),
)


def test_a_node_that_is_not_well_is_shown_as_drift_and_a_person_lets_it_take_work_again(
    site: Site, client: Client
) -> None:
    epoch = site.store.ledger.lead("test", SystemClock().now(), Duration(60_000))
    gpu = PartHealth("n1/0", "drained", NOW, "XID 48")
    site.store.health.keep(epoch, (msgspec.structs.replace(SICK, parts=(*SICK.parts, gpu)),))
    n1, n2 = client.nodes().items
    assert (n1.health, n2.health) == ((*SICK.parts, gpu), ())
    (drift,) = client.status().by_hand
    assert (drift.author, drift.subject, drift.until) == ("health", Subject("node", "n1"), LATER)
    over = client.by_hand.uncordon("n1")
    assert over is not None
    assert (over.author, over.ended_as) == ("health", "released")
    assert over.reason == "task worker/0 of train is slow; n1/0: XID 48"
    (known,) = site.store.health.all()
    assert known.forgiven_at == over.ended_at
    assert [event.kind for event in site.store.history.events("n1")] == ["uncordoned"]
    assert client.by_hand.uncordon("n2") is None
