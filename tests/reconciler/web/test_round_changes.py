"""What changed between two rounds is counted by kind, with a few names, and holds for jobs that were served alone."""

from __future__ import annotations

import msgspec

from reconciler.protocols.rounds import NarrowEnds, NarrowRecord, RoundRecord
from reconciler.web.round_changes import ALONE, EXAMPLES, ChangedJobs, round_changes
from solver.model.cluster import Node
from solver.model.quantities import Duration, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.plan.plan import Bind, Certificate, Evict, Inadmissible, Plan, Runs, Starts, Verdict, Waits, Yields
from solver.plan.reasons import CapacityReason, HeldReason
from solver.plan.refusals import AboveMax
from solver.policy.policy import Policy, Queue, Quota, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import H100, NOW, POLICY, SIX, spec

TEAM = QueueName("team")
CAPACITY = CapacityReason(H100, MilliGpu(0), SIX)


def round_of(
    *verdicts: Verdict, number: int = 1, policy: Policy = POLICY, nodes: tuple[Node, ...] = NODES, revision: str = "a"
) -> RoundRecord:
    snapshot = snapshot_of(NOW, nodes, ())
    plan = Plan(snapshot.digest, policy.digest, (), verdicts, Certificate("greedy", (), 0.0, "", 0))
    return RoundRecord(number, NOW.after(number), revision, snapshot, policy, plan, {})


def starts(name: str) -> Starts:
    return Starts(JobName(name), TEAM, SIX, SIX)


def waits(name: str, free: int = 0) -> Waits:
    return Waits(JobName(name), TEAM, (CapacityReason(H100, MilliGpu.gpus(free), SIX),))


def counted(groups: tuple[ChangedJobs, ...]) -> list[tuple[str, str, int, tuple[str, ...]]]:
    return [(group.before, group.after, group.jobs, group.names) for group in groups]


def test_each_job_is_told_of_under_what_it_is_now() -> None:
    held = HeldReason(TEAM)
    taken = Yields(JobName("leaves"), TEAM, JobName("starts"), TEAM, "preempt", SIX, 3600.0)
    before = round_of(waits("starts"), waits("held"), waits("never"), Runs(JobName("leaves"), TEAM), waits("over"))
    after = round_of(
        starts("starts"),
        Waits(JobName("held"), TEAM, (held, CAPACITY)),
        Inadmissible(JobName("never"), TEAM, (AboveMax(TEAM, H100, SIX, SIX),)),
        taken,
        starts("new"),
        number=2,
    )
    found = round_changes(before, after)
    assert counted(found.started) == [("waits: capacity", "starts", 1, ("starts",))]
    assert counted(found.given_up) == [("runs", "leaves", 1, ("leaves",))]
    assert found.given_up[0].words == (str(taken),)
    assert counted(found.reasons) == [
        ("waits: capacity", "inadmissible: above-max", 1, ("never",)),
        ("waits: capacity", "waits: held", 1, ("held",)),
    ]
    assert found.reasons[1].words == (str(held),)
    assert counted(found.came) == [("", "starts", 1, ("new",))]
    assert counted(found.gone) == [("waits: capacity", "", 1, ("over",))]
    assert found.others == 0


def test_the_most_come_first_and_few_are_named() -> None:
    names = [f"job-{number}" for number in range(EXAMPLES + 2)]
    before = round_of(*map(waits, names), Waits(JobName("held"), TEAM, (HeldReason(TEAM),)))
    found = round_changes(before, round_of(*map(starts, names), starts("held")))
    assert counted(found.started) == [
        ("waits: capacity", "starts", EXAMPLES + 2, tuple(names[:EXAMPLES])),
        ("waits: held", "starts", 1, ("held",)),
    ]


def test_what_stays_as_it_was_is_no_change_and_other_figures_are_counted() -> None:
    same = round_of(waits("same"), starts("goes-on"))
    found = round_changes(same, msgspec.structs.replace(same, number=2))
    assert not any((found.started, found.given_up, found.reasons, found.came, found.gone, found.others, found.capacity))
    found = round_changes(same, round_of(waits("same", free=1), Runs(JobName("goes-on"), TEAM)))
    assert (found.reasons, found.others) == ((), 2)


def test_a_policy_that_says_something_else_is_told_field_by_field() -> None:
    other = policy_of((Queue(TEAM, None, (Quota(H100, guaranteed=MilliGpu.gpus(5), max=SIX),), weight=2),))
    first = policy_of((Queue(TEAM, None, (Quota(H100, guaranteed=MilliGpu.gpus(4), max=SIX),), weight=2),))
    found = round_changes(round_of(policy=first), round_of(policy=other, revision="b"))
    ((document, fields),) = [(each.document, each.fields) for each in found.documents]
    assert document == "Queue team"
    assert [(field.field, field.before, field.after) for field in fields] == [("quota[H100].guaranteed", "4", "5")]
    assert (found.before.revision, found.after.revision, found.is_same_policy) == ("a", "b", False)
    assert round_changes(round_of(), round_of(revision="b")).is_same_policy


def test_capacity_that_came_or_is_closed_is_told() -> None:
    first, second = NODES
    cordoned = msgspec.structs.replace(second, cordoned=True)
    found = round_changes(round_of(nodes=(second,)), round_of(nodes=(first, cordoned)))
    assert counted(found.nodes) == [
        ("", "open to new jobs", 1, ("n1",)),
        ("open to new jobs", "closed to new jobs", 1, ("n2",)),
    ]
    (change,) = found.capacity
    assert change.before is not None
    assert change.after is not None
    assert (change.before.total, change.before.free, change.before.unusable) == (4_000, 4_000, 0)
    assert (change.after.total, change.after.free, change.after.unusable) == (8_000, 4_000, 4_000)


def test_jobs_that_were_served_alone_have_changed_what_the_base_said() -> None:
    base = round_of(waits("takes"), Runs(JobName("ends"), TEAM), Runs(JobName("leaves"), TEAM), waits("withdrawn"))
    alone = NarrowRecord(
        2,
        NOW.after(5),
        "b",
        1,
        (Job(JobName("takes"), NOW, spec()),),
        (),
        (Job(JobName("begins"), NOW, spec()), Job(JobName("finds-nothing"), NOW, spec())),
        (
            Bind(JobName("begins"), 1, (), Duration(1)),
            Evict(JobName("leaves"), 1, "preempt", Duration(1), SIX, 0.0, JobName("begins")),
        ),
        {},
        ended=(NarrowEnds((JobName("ends"),), 0),),
        withdrawn=(JobName("withdrawn"),),
    )
    found = round_changes(base, msgspec.structs.replace(base, number=2, narrow=(alone,)))
    assert counted(found.came) == [
        ("", "starts", 1, ("begins",)),
        ("", f"waits: {ALONE}", 1, ("finds-nothing",)),
    ]
    assert counted(found.given_up) == [("runs", "leaves", 1, ("leaves",))]
    assert counted(found.gone) == [("runs", "", 1, ("ends",)), ("waits: capacity", "", 1, ("withdrawn",))]
    assert found.others == 1
    assert (found.after.time, found.after.revision) == (NOW.after(5), "b")
