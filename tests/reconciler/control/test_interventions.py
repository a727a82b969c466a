"""What people do by hand, and what the loop makes of it: nothing new on a cordoned node, held jobs wait, boosted ones go first."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from reconciler.control.interventions import InterventionController
from reconciler.model.intervention_record import Intervention, InterventionKind, Subject, SubjectKind
from solver.model.inflight import Intent, Reservation
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Queue, policy_of
from solver.round.solve import solve
from tests.reconciler.control.plane import Site

FOREVER = ("sleep", "forever")
A, B = JobName("a"), JobName("b")


def by_hand(site: Site, kind: InterventionKind, of: SubjectKind, name: str, for_s: int = 600) -> Intervention:
    now = site.clock.now()
    asked = Intervention(kind, Subject(of, name), "ada", "ticket 4711", now, now.after(for_s * 1_000))
    return site.store.interventions.begin(asked)


def over(site: Site, name: str) -> list[tuple[str, str]]:
    """What ended about a subject, and by whom, as the events say."""
    endings = {"expired", "agreed", "over"}
    return [(event.kind, event.actor) for event in site.store.history.events(name) if event.kind in endings]


def test_nothing_new_starts_on_a_cordoned_node_and_what_runs_stays(site: Site) -> None:
    site.submit(A, FOREVER, gpus=4)
    site.until(A, "running")
    (first,) = {task.node for claim in site.store.ledger.claims() for task in claim.tasks}
    for node in site.declared:
        by_hand(site, "cordon", "node", node.name)
    site.submit(B, FOREVER)
    site.passes(3)
    assert (site.state(A), site.state(B)) == ("running", "queued")
    other = next(node.name for node in site.declared if node.name != first)
    site.store.interventions.release("cordon", Subject("node", other), site.clock.now(), "ada")
    site.until(B, "running")
    assert {task.node for claim in site.store.ledger.claims() if claim.job == B for task in claim.tasks} == {other}


def test_a_held_job_waits_until_its_time_is_over(site: Site) -> None:
    site.submit(A, FOREVER)
    by_hand(site, "hold", "job", A, for_s=30)
    site.passes(29)
    assert (site.state(A), site.store.ledger.attempts()) == ("queued", {})
    site.until(A, "running")
    assert over(site, A) == [("expired", "only")]
    (ended,) = site.store.interventions.newest()
    assert (ended.ended_as, ended.ended_at) == ("expired", ended.until)


def test_a_held_queue_holds_those_below_it_and_no_other(site: Site) -> None:
    site.policy = policy_of(
        (Queue(QueueName("q")), Queue(QueueName("low"), QueueName("q")), Queue(QueueName("other"))),
        (),
        site.policy.scheduling,
    )
    site.submit(A, FOREVER, queue="low")
    site.submit(B, FOREVER, queue="other")
    by_hand(site, "hold", "queue", "q")
    site.passes(4)
    assert (site.state(A), site.state(B)) == ("queued", "running")


def test_who_runs_in_a_held_queue_stays_and_does_not_begin_again(site: Site) -> None:
    site.submit(A, FOREVER)
    site.until(A, "running")
    by_hand(site, "hold", "queue", "q")
    site.passes(5)
    assert site.state(A) == "running"
    site.store.jobs.request_requeue(A, 1, "ada")
    site.until(A, "queued")
    site.passes(5)
    assert (site.state(A), site.store.ledger.claims()) == ("queued", ())


def test_what_is_kept_free_for_a_job_that_is_held_is_given_up(site: Site) -> None:
    site.submit("large", FOREVER, tasks=2, gpus=4)
    site.until("large", "running")
    site.submit(A, FOREVER, tasks=2, gpus=4)
    plane, now = site.only_plane, site.clock.now()
    epoch = plane.ledger.lead(plane.holder, now, plane.lease)
    (large,) = plane.ledger.claims()
    plane.ledger.reserve(epoch, Reservation(A, large.tasks, now.after(60_000), now.after(120_000)))
    plane.ledger.nominate(epoch, Intent("nominate", A, 1, now, now.after(60_000), large.tasks))
    by_hand(site, "hold", "job", A)
    site.passes(3)
    assert (plane.ledger.reservations(), plane.ledger.intents(), site.state(A)) == ((), (), "queued")
    assert site.events(A) == ["withdrawn"]


def test_a_boosted_job_starts_first_and_the_rounds_replay(site: Site) -> None:
    site.submit("large", ("sleep", "20s"), tasks=2, gpus=4)
    site.until("large", "running")
    site.submit(A, FOREVER, tasks=2, gpus=4)
    site.submit(B, FOREVER, tasks=2, gpus=4)
    by_hand(site, "boost", "job", B)
    site.until(B, "running")
    assert site.state(A) == "queued"
    history = site.store.history
    records = [history.round(summary.number) for summary in history.rounds(100)]
    assert all(solve(record.snapshot, record.policy, None) == record.plan for record in records)
    assert {job.name for record in records for job in record.snapshot.jobs if job.boosted} == {B}


def test_what_somebody_ends_while_the_loop_looks_at_it_is_ended_once(site: Site) -> None:
    by_hand(site, "hold", "queue", "q", for_s=1)
    site.clock.advance(5_000)
    store, plane = site.store.interventions, site.only_plane
    seen = store.in_force()
    store.release("hold", Subject("queue", "q"), site.clock.now(), "ada")
    epoch = plane.ledger.lead(plane.holder, site.clock.now(), plane.lease)
    late = SimpleNamespace(in_force=lambda: seen, end=store.end)
    object.__setattr__(plane, "interventions", late)
    InterventionController(plane, epoch).settle(site.policy, site.declared)
    assert over(site, "q") == []
    assert [each.ended_as for each in store.newest()] == ["released"]


@pytest.mark.parametrize("kind", ["hold", "boost"])
def test_what_is_done_about_a_job_is_over_when_the_job_is(site: Site, kind: InterventionKind) -> None:
    site.submit(A, ("sleep", "2s"))
    site.passes(2)
    by_hand(site, kind, "job", A)
    site.until(A, "succeeded")
    site.passes(1)
    assert over(site, A) == [("over", "only")]


def test_a_cordon_is_over_once_git_says_the_same_or_knows_no_such_node(site: Site) -> None:
    by_hand(site, "cordon", "node", "n1")
    by_hand(site, "cordon", "node", "n2")
    site.passes(2)
    assert over(site, "n1") == []
    (n1, *_) = site.declared
    site.declared = (msgspec.structs.replace(n1, cordoned=True),)
    site.passes(2)
    assert (over(site, "n1"), over(site, "n2")) == ([("agreed", "only")], [("over", "only")])


def test_a_queues_hold_is_over_once_git_says_the_same_of_it_or_of_one_above(site: Site) -> None:
    low = Queue(QueueName("low"), QueueName("q"))
    site.policy = policy_of((Queue(QueueName("q")), low), (), site.policy.scheduling)
    by_hand(site, "hold", "queue", "low")
    site.passes(2)
    assert over(site, "low") == []
    site.policy = policy_of((Queue(QueueName("q"), stop_policy="Hold"), low), (), site.policy.scheduling)
    site.passes(2)
    assert over(site, "low") == [("agreed", "only")]


def test_a_pass_says_what_is_in_force(site: Site) -> None:
    cordon = by_hand(site, "cordon", "node", "n1", for_s=2)
    assert site.one_pass().by_hand == (cordon,)
    assert site.one_pass().by_hand == ()
