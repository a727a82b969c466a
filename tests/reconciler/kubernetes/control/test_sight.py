"""What a cluster's objects are to a round, and what a round's plan is to a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from reconciler.control.seen_plane import SeenHoldings
from reconciler.kubernetes.binder.journal import GangBinding, PodBinding, StartJournal, journal_of, written
from reconciler.kubernetes.control.sight import Remembered, Sight, cluster_sight, snapshot_from
from reconciler.kubernetes.control.starts import bindings_of
from reconciler.kubernetes.control.views import Logless, PodJobs
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.disruption import Budget
from reconciler.kubernetes.objects.wire import Pod, read
from reconciler.model.budget import BudgetStanding
from reconciler.model.intervention_record import Intervention, Subject
from reconciler.protocols.job_source import JobsAreElsewhereError, NoJobYetError, UnknownJobError
from solver.checker.check import violations
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Bind, Grow, Release, Shrink
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from tests.reconciler.kubernetes.samples import Sent, cluster, node, pod

NOW = Instant.parse("2026-11-20T09:00:00Z")
DEADLINE = Duration(300_000)
POLICY = policy_of((Queue(QueueName("q")),))
GANG = JobName("vision.gang.train")


def a_worker(index: int, on: str = "", **said: Any) -> Sent:
    notes = {names.GANG: "train", names.GANG_SIZE: "3", **said.pop("annotations", {})}
    return pod(f"w{index}", 2, on, annotations=notes, **said)


def sight_of(
    nodes: Iterable[Sent], pods: Iterable[Sent], budgets: Iterable[Budget] = (), remembered: Iterable[StartJournal] = ()
) -> Sight:
    listed = list(pods)
    read_pods = {(one.metadata.namespace, one.metadata.name): one for one in (read(sent, Pod) for sent in listed)}
    limits = {"vision": list(budgets)} if budgets else {}
    return cluster_sight(cluster(nodes, listed), read_pods, limits, DEADLINE, NOW, remembered)


def snapshot_of_sight(sight: Sight, by_hand: tuple[Intervention, ...] = (), policy: Policy = POLICY) -> Snapshot:
    return snapshot_from(NOW, sight, policy, by_hand, Remembered())


def journal(*places: tuple[str, str, int]) -> StartJournal:
    """Of workers on nodes, each with two devices from this number on."""
    pods = tuple(
        PodBinding(
            "vision", name, f"uid-of-{name}", "7", NodeName(on), (DeviceId(f"{on}/{n}"), DeviceId(f"{on}/{n + 1}"))
        )
        for name, on, n in places
    )
    return journal_of(GangBinding(GANG, 1, pods), NOW)


def test_a_plan_becomes_bindings_of_the_pods_that_were_seen() -> None:
    sight = sight_of([node("n1", 4), node("n2", 4)], [a_worker(0), a_worker(1), a_worker(2)])
    snapshot = snapshot_of_sight(sight)
    plan = solve(snapshot, POLICY, None)
    assert violations(snapshot, POLICY, plan) == ()
    (binding,) = bindings_of(plan.steps, sight.gangs)
    assert (binding.job, binding.attempt) == (GANG, 1)
    assert [(one.name, one.uid, one.resource_version) for one in binding.pods] == [
        (f"w{index}", f"uid-of-w{index}", "7") for index in range(3)
    ]
    devices = [device for one in binding.pods for device in one.devices]
    assert len(set(devices)) == 6
    assert all(device.startswith(f"{one.node}/") for one in binding.pods for device in one.devices)


def test_what_is_on_its_way_is_held() -> None:
    """The first of three is bound, its journal says where the others will be: nobody else is given their devices."""
    plan = written(journal(("w0", "n1", 0), ("w1", "n1", 2), ("w2", "n2", 0)))
    first = a_worker(0, "n1", annotations={names.GANG_PLAN: plan, names.DEVICES: "n1/0,n1/1", names.ATTEMPT: "1"})
    other = pod("other", 4)
    sight = sight_of([node("n1", 4), node("n2", 4)], [first, a_worker(1), a_worker(2), other])
    snapshot = snapshot_of_sight(sight)
    (intent,) = snapshot.in_flight.intents
    assert (intent.kind, intent.job, len(intent.tasks)) == ("start", GANG, 3)
    assert [claim.job for claim in sight.claims] == [GANG]
    assert not [step for step in solve(snapshot, POLICY, None).steps if isinstance(step, Bind)]


def test_what_is_on_its_way_is_held_also_where_the_pod_that_said_so_is_gone() -> None:
    """Who began it remembers it, and is about to bind the new pods to the old ones' places."""
    plan = journal(("w0", "n1", 0), ("w1", "n1", 2), ("w2", "n2", 0))
    third = a_worker(2, "n2", annotations={names.DEVICES: "n2/0,n2/1", names.ATTEMPT: "1"})
    pods = [a_worker(0), a_worker(1), third, pod("other", 4)]
    sight = sight_of([node("n1", 4), node("n2", 4), node("n3", 2)], pods, remembered=[plan])
    snapshot = snapshot_of_sight(sight)
    (intent,) = snapshot.in_flight.intents
    assert [(task.node, task.devices) for task in intent.tasks] == [(one.node, one.devices) for one in plan.pods]
    assert not [step for step in solve(snapshot, POLICY, None).steps if isinstance(step, Bind | Grow)]


@pytest.mark.parametrize(("age_s", "is_released"), [(200, False), (400, True)])
def test_a_gang_that_lost_a_pod_is_released_unless_it_is_whole_again_in_time(age_s: int, is_released: bool) -> None:
    made = str(Instant(NOW - age_s * 1000))
    pods = [a_worker(0, "n1"), a_worker(1, "n1"), a_worker(2, created=made)]
    sight = sight_of([node("n1", 4)], pods)
    steps = solve(snapshot_of_sight(sight), POLICY, None).steps
    assert [step.job for step in steps if isinstance(step, Release)] == [GANG] * is_released


def test_a_pod_that_takes_the_place_of_one_that_is_gone_joins_its_gang() -> None:
    pods = [a_worker(0, "n1"), a_worker(1, "n1"), a_worker(2, created="2026-11-20T08:59:59Z")]
    sight = sight_of([node("n1", 4), node("n2", 4)], pods)
    snapshot = snapshot_of_sight(sight)
    plan = solve(snapshot, POLICY, None)
    assert violations(snapshot, POLICY, plan) == ()
    (binding,) = bindings_of(plan.steps, sight.gangs)
    assert [(one.name, one.node) for one in binding.pods] == [("w2", "n2")]


def test_people_hold_cordon_and_boost() -> None:
    sight = sight_of([node("n1", 4)], [pod("a", 1), pod("b", 1)])
    until = Instant(NOW + 1_000_000)

    def by_hand(kind: Any, subject: Subject) -> tuple[Intervention, ...]:
        return (Intervention(kind=kind, subject=subject, author="ada", reason="why", at=NOW, until=until),)

    held = snapshot_of_sight(sight, by_hand("hold", Subject("job", "vision.pod.a")))
    assert [job.name for job in held.jobs] == ["vision.pod.b"]
    cordoned = snapshot_of_sight(sight, by_hand("cordon", Subject("node", "n1")))
    assert cordoned.nodes[0].cordoned
    boosted = snapshot_of_sight(sight, by_hand("boost", Subject("job", "vision.pod.b")))
    assert [job.boosted for job in boosted.jobs] == [False, True]


def test_a_budget_that_is_spent_holds_what_has_not_begun_and_what_is_promised_nothing() -> None:
    sight = sight_of([node("n1", 4)], [pod("runs", 1, "n1"), pod("waits"), pod("other", labels={names.QUEUE: "r"})])
    of = "spent", "policies/b.yaml:1", "queue q", QueueName("q"), "", NOW, NOW.after(1_000), NOW, "GPU-hours"
    spent = BudgetStanding(*of, Decimal(1), Decimal(1), Decimal(0), 100, Decimal(1), Duration(1), None, "hold-new")
    policy = policy_of((Queue(QueueName("q")), Queue(QueueName("r"))))

    def told(now: Sight, *budgets: BudgetStanding) -> list[str]:
        return [job.name for job in snapshot_from(NOW, now, policy, (), Remembered(), budgets).jobs]

    assert told(sight, spent) == ["vision.pod.other", "vision.pod.runs"]
    assert told(sight, msgspec.structs.replace(spent, when_spent="notify")) == told(sight)
    waits = JobName("vision.pod.waits")
    promised = Intent("nominate", waits, 1, NOW, NOW.after(1_000))
    assert waits in told(replace(sight, intents=(promised,)), spent)


def test_jobs_are_told_of_and_not_changed_here() -> None:
    sight = sight_of([node("n1", 4)], [pod("a", 1), pod("b", 1, "n1")])
    jobs, ledger = PodJobs(lambda: sight), SeenHoldings(lambda: sight)
    assert [record.name for record in jobs.live_jobs()] == ["vision.pod.a", "vision.pod.b"]
    assert [claim.job for claim in ledger.claims()] == ["vision.pod.b"]
    assert ledger.attempts() == {"vision.pod.b": 0}
    with pytest.raises(UnknownJobError):
        jobs.job(JobName("vision.pod.c"))
    with pytest.raises(JobsAreElsewhereError) as refused:
        jobs.request_cancel(JobName("vision.pod.a"), "ada")
    assert refused.value.fix == "Delete what made the pods, such as their Job."
    with pytest.raises(JobsAreElsewhereError, match="does not submit them"):
        jobs.accepts()


def test_of_pods_that_are_no_job_yet_it_is_said_where_to_ask() -> None:
    sight = sight_of(
        [node("n1", 4)], [pod("a", 1, annotations={"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"})]
    )
    with pytest.raises(NoJobYetError) as unknown:
        PodJobs(lambda: sight).job(JobName("vision.gang.g"))
    assert unknown.value.fix == "Ask with `kubectl quorate why a -n vision`."


def test_output_of_pods_is_read_where_it_is() -> None:
    sight = sight_of([node("n1", 4)], [pod("a", 1, "n1")])
    logs = Logless(lambda: sight)
    with pytest.raises(JobsAreElsewhereError) as elsewhere:
        logs.read_log(JobName("vision.pod.a"), 1, "worker", 0, 0, 10)
    assert elsewhere.value.fix == "Read it with `kubectl logs a -n vision`."
    with pytest.raises(KeyError):
        logs.read_log(JobName("vision.pod.a"), 1, "worker", 1, 0, 10)


def test_the_newest_jobs_come_first_page_by_page() -> None:
    pods = [pod(f"p{minute}", 1, created=f"2026-11-20T08:0{minute}:00Z") for minute in range(3)]
    sight = sight_of([node("n1", 4)], pods)
    jobs = PodJobs(lambda: sight)
    first = jobs.jobs(limit=2)
    assert [record.name for record in first] == ["vision.pod.p2", "vision.pod.p1"]
    assert [record.name for record in jobs.jobs(after=first[-1].name)] == ["vision.pod.p0"]


def test_a_gang_that_no_budget_lets_go_is_not_asked_to() -> None:
    labels = {"app": "serve"}
    budget = msgspec.convert(
        {
            "metadata": {"name": "keep", "namespace": "vision"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": 0},
        },
        Budget,
    )
    sight = sight_of([node("n1", 4)], [pod("a", 1, "n1", labels=labels)], [budget])
    (job,) = snapshot_of_sight(sight).jobs
    assert (job.leaves, job.held_by) == ("not", "PodDisruptionBudget vision/keep")


def a_joiner(index: int, bound_s: int, phase: str = "Pending") -> Sent:
    """A worker of a gang that runs on three, bound so many seconds ago."""
    sent = a_worker(index, "n1", annotations={names.ATTEMPT: "1"})
    at = str(Instant(NOW - bound_s * 1000))
    sent["status"] = {
        "phase": phase,
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}],
    }
    return sent


def grown(*joiners: Sent) -> Snapshot:
    there = [{**a_worker(index, "n1", annotations={names.ATTEMPT: "1"})} for index in range(3)]
    return snapshot_of_sight(sight_of([node("n1", 10)], [*there, *joiners]))


@pytest.mark.parametrize(
    ("ages_s", "leave"),
    [((200,), []), ((400,), [3]), ((400, 200), [3]), ((200, 400), [4]), ((400, 400), [3, 4]), ((200, 100), [])],
)
def test_of_an_elastic_gang_only_the_pod_leaves_that_joined_and_never_began(
    ages_s: tuple[int, ...], leave: list[int]
) -> None:
    snapshot = grown(*(a_joiner(3 + number, age_s) for number, age_s in enumerate(ages_s)))
    (job,) = snapshot.jobs
    assert (job.phase, len(job.placement)) == ("running", 3 + len(ages_s))
    plan = solve(snapshot, POLICY, None)
    assert violations(snapshot, POLICY, plan) == ()
    assert [[task.index for task in step.tasks] for step in plan.steps if isinstance(step, Shrink)] == [leave] * bool(
        leave
    )
    assert not [step for step in plan.steps if isinstance(step, Release)]


def test_what_runs_or_has_ended_does_not_join() -> None:
    assert grown(a_joiner(3, 400, "Running")).in_flight.intents == ()
    assert grown(a_joiner(3, 400, "Unknown")).in_flight.intents == ()


def test_an_elastic_gang_of_which_too_few_began_is_released_whole() -> None:
    pods = [a_joiner(index, 400, "Running" if index < 2 else "Pending") for index in range(4)]
    steps = solve(snapshot_of_sight(sight_of([node("n1", 8)], pods)), POLICY, None).steps
    assert [step.job for step in steps if isinstance(step, Release)] == [GANG]


def test_what_is_about_to_join_is_held() -> None:
    plan = written(journal(("w3", "n1", 6), ("w4", "n1", 8)))
    first = a_joiner(3, 1, "Running")
    first["metadata"]["annotations"] |= {names.GANG_PLAN: plan, names.DEVICES: "n1/6,n1/7"}
    snapshot = grown(first, a_worker(4))
    (job,) = snapshot.jobs
    assert (job.phase, len(job.placement)) == ("running", 5)
    (intent,) = snapshot.in_flight.intents
    assert (intent.kind, [task.index for task in intent.tasks]) == ("grow", [4])
