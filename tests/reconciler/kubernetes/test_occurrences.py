"""What Events say of a round, and how many of them there are."""

from __future__ import annotations

from typing import get_args

from reconciler.kubernetes.binder.eviction import Event, Outcome
from reconciler.kubernetes.binder.journal import PodBinding
from reconciler.kubernetes.binder.partial_starts import BoundPod, ReleasePods
from reconciler.kubernetes.status.conditions import ConditionText, PodConditionUpdate
from reconciler.kubernetes.status.occurrences import (
    Occurrence,
    Regarding,
    of_bindings,
    of_evictions,
    of_plan,
    of_releases,
    of_remarks,
    scheduled_occurrence,
    standing_occurrences,
)
from reconciler.kubernetes.status.series import (
    BURST,
    COUNTED_EVERY,
    LATE,
    OVER_AFTER,
    REFILL,
    Book,
    OnChange,
)
from solver.model.cluster import DeviceId, MigInstance, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import (
    Certificate,
    Evict,
    Nominate,
    Plan,
    Release,
    Repartition,
    Reserve,
    Shrink,
    Step,
    Unreserve,
    Withdraw,
)
from tests.reconciler.kubernetes.samples import cluster, node, pod

NOW = Instant.parse("2026-11-20T08:00:00Z")
GANG = {"quorate.dev/gang": "train", "quorate.dev/gang-size": "2"}
TRAIN, SERVE = JobName("vision.gang.train"), JobName("vision.pod.serve")
SEEN = cluster(
    [node("n0")],
    [pod("a", on="n0", annotations=GANG), pod("b", on="n0", annotations=GANG), pod("serve", 2)],
)
GRACE = Duration(300_000)
TASKS = (TaskPlacement("worker", 0, NodeName("n0"), (DeviceId("n0/0"),)),)


def test_what_is_not_followed_of_a_gang_is_one_event_about_its_first_pod() -> None:
    pods = [pod(name, annotations=GANG, spec={"preemptionPolicy": "Never"}) for name in "ab"]
    (gang,) = cluster([node("n0")], pods).gangs
    first = PodBinding("vision", "a", "uid-of-a", "7", NodeName("n0"))
    (told,) = of_remarks(first, gang.remarks)
    note = "not followed: preemptionPolicy: Never: whether others leave for it is policy, in Git"
    assert (told.regarding.name, told.reason, told.note, told.warning) == ("a", "NotFollowed", note, False)
    assert list(of_remarks(first, SEEN.gangs[0].remarks)) == []


def plan(*steps: Step) -> Plan:
    return Plan("s", "p", steps, (), Certificate("none", (), 0.0, "none", 0))


def told(*steps: Step) -> list[tuple[str, str, str]]:
    """About whom, the reason, the note."""
    return [(one.regarding.name, one.reason, one.note) for one in of_plan(plan(*steps), SEEN.index.gangs)]


def the(name: str) -> Regarding:
    return Regarding("Pod", "vision", name, f"uid-of-{name}")


def test_every_pod_of_a_gang_says_for_whom_it_is_evicted() -> None:
    step = Evict(TRAIN, 1, "reclaim", GRACE, MilliGpu.gpus(2), 7200.0, SERVE)
    found = list(of_plan(plan(step), SEEN.index.gangs))
    assert [one.regarding for one in found] == [the("a"), the("b")]
    assert {(one.reason, one.action, one.note, one.related) for one in found} == {
        (
            "Evicting",
            "Evict",
            "it gives up 2 GPUs for vision.pod.serve (reclaim); 2.0 GPU-hours are lost; it has 5m to save and end",
            the("serve"),
        )
    }


def test_only_the_tasks_that_leave_say_that_their_gang_shrinks() -> None:
    ((name, reason, note),) = told(Shrink(TRAIN, 1, TASKS, "converge", GRACE, MilliGpu.gpus(1), 0.0))
    assert (name, reason) == ("a", "Shrinking")
    assert note.startswith("its gang goes on without worker/0: it gives up 1 GPU (converge)")


def test_promises_and_reservations_are_told_to_the_first_pod() -> None:
    assert told(
        Nominate(SERVE, 1, TASKS, GRACE),
        Withdraw(SERVE, 1),
        Reserve(SERVE, TASKS, NOW),
        Unreserve(SERVE),
        Release(SERVE, 1),
    ) == [
        ("serve", "PromiseMade", "promised 1 GPU on n0 once all of it is free, within 5m"),
        ("serve", "PromiseWithdrawn", "what it was promised is not to be had any more, or not by it"),
        ("serve", "Reserved", "1 GPU on n0 are kept for it from 2026-11-20T08:00:00Z"),
        ("serve", "ReservationDropped", "nothing is kept for it any more"),
        (
            "serve",
            "Released",
            "attempt 1 did not become ready in time: its pods give back what they hold, and wait again",
        ),
    ]


def test_each_pod_that_is_bound_says_where_and_with_what() -> None:
    first = PodBinding("vision", "a", "uid-of-a", "7", NodeName("n0"), (DeviceId("n0/0"), DeviceId("n0/1")))
    second = PodBinding("vision", "serve", "uid-of-serve", "7", NodeName("n0"))
    assert [(one.regarding, one.reason, one.note) for one in of_bindings([first, second])] == [
        (the("a"), "Scheduled", "bound to n0 with n0/0, n0/1"),
        (the("serve"), "Scheduled", "bound to n0"),
    ]


def test_an_eviction_says_how_far_it_is_and_what_is_against_it() -> None:
    gangs = {gang.name: gang for gang in SEEN.gangs}
    outcomes = [
        Outcome(TRAIN, "waits", "the budget pdb allows none of its pods to go"),
        Outcome(SERVE, "failed", "no answer"),
        Outcome(JobName("vision.pod.gone"), "evicting", "its pods end"),
    ]
    assert [(one.regarding, one.reason, one.note, one.warning) for one in of_evictions(outcomes, gangs)] == [
        (the("a"), "EvictionWaits", "the budget pdb allows none of its pods to go", False),
        (the("serve"), "EvictionFailed", "no answer", True),
    ]
    told_to_end = of_evictions([Outcome(TRAIN, "evicting", "its pods end")], gangs)
    assert [(one.regarding, one.reason) for one in told_to_end] == [(the("a"), "Evicted"), (the("b"), "Evicted")]
    every = {event for event in get_args(Event) if list(of_evictions([Outcome(TRAIN, event, "why")], gangs))}
    assert every == set(get_args(Event))


def test_a_start_that_is_given_up_is_told_to_its_bound_pods() -> None:
    release = ReleasePods(TRAIN, 2, (BoundPod("vision", "a", "uid-of-a"),), frozenset(), "b is gone")
    (one,) = of_releases([release])
    assert (one.regarding, one.reason, one.note) == (
        the("a"),
        "Released",
        "attempt 2 of its gang is given up: b is gone",
    )


def test_nodes_say_how_they_are_partitioned_and_what_is_left_out() -> None:
    step = Repartition(NodeName("n0"), DeviceId("n0/1"), (MigInstance("3g.40gb", 0),))
    (one,) = of_plan(plan(step), SEEN.index.gangs)
    assert one.regarding == Regarding("Node", "", "n0", "n0")
    assert one.note == "GPU n0/1 is partitioned anew: 3g.40gb@0"
    unknown = cluster([node("odd", labels={"nvidia.com/gpu.product": ""})], [])
    (refused,) = standing_occurrences([], unknown)
    assert (refused.regarding.name, refused.reason, refused.warning) == ("odd", "NodeRefused", True)


def test_what_is_known_of_no_pod_is_told_to_nobody() -> None:
    assert told(Unreserve(JobName("reservation:demo")), Withdraw(JobName("vision.pod.gone"), 1)) == []


def test_one_pod_of_a_waiting_gang_says_why() -> None:
    said, bad = ConditionText("QuotaMax", "waits: queue q is full"), ConditionText("Refused", "refused: no queue")
    two = [PodConditionUpdate(TRAIN, "vision", name, f"uid-of-{name}", "7", said) for name in ("a", "b")]
    found = list(
        standing_occurrences(
            [*two, PodConditionUpdate(SERVE, "vision", "serve", "uid-of-serve", "7", bad)], cluster([], [])
        )
    )
    assert [(one.regarding, one.reason, one.note, one.warning) for one in found] == [
        (the("a"), "Waiting", "waits: queue q is full", False),
        (the("serve"), "Refused", "refused: no queue", True),
    ]


def test_what_is_so_is_told_once_and_again_when_it_says_something_else() -> None:
    def waiting(note: str) -> Occurrence:
        return Occurrence(the("a"), "Waiting", "Scheduling", note)

    book = OnChange()
    assert len(book.fresh([waiting("needs 8 H100, 4 free")])) == 1
    assert book.fresh([waiting("needs 8 H100, 3 free")]) == []
    assert len(book.fresh([waiting("queue q is on hold")])) == 1
    assert book.fresh([]) == []
    assert len(book.fresh([waiting("queue q is on hold")])) == 1


BOUND = scheduled_occurrence(the("a"), NodeName("n0"), ["n0/0"])


def test_the_same_again_is_counted_in_one_event() -> None:
    book = Book()
    book.happened([BOUND], NOW)
    (series,) = book.due(NOW, 10)
    series.wrote(1, NOW)
    for second in range(1, 60):
        book.happened([BOUND], NOW.after(second * 1000))
    assert book.due(NOW.after(COUNTED_EVERY - 1), 10) == []
    (again,) = book.due(NOW.after(COUNTED_EVERY), 10)
    assert (again.name, again.count, again.written) == (series.name, 60, 1)
    again.wrote(60, NOW.after(COUNTED_EVERY))
    later = NOW.after(59_000 + OVER_AFTER + 1)
    book.happened([BOUND], later)
    (anew,) = book.due(later, 10)
    assert (anew.count, anew.name == series.name) == (1, False)


def test_one_object_has_so_many_events_and_others_still_have_theirs() -> None:
    book = Book()
    words = [f"reason {chr(97 + number)}" for number in range(BURST + 5)]
    flood = [Occurrence(the("a"), "Waiting", "Scheduling", word) for word in words]
    book.happened([*flood, BOUND._replace(regarding=the("b"))], NOW)
    assert book.dropped == 5
    assert len(book.due(NOW, 100)) == BURST + 1
    book.happened([Occurrence(the("a"), "Waiting", "Scheduling", "z")], NOW.after(REFILL))
    assert book.dropped == 5


def test_what_happened_goes_before_what_waits_and_the_oldest_first() -> None:
    book = Book()
    book.happened([Occurrence(the("w"), "Waiting", "Scheduling", "why")], NOW)
    book.happened([BOUND._replace(regarding=the("b"))], NOW.after(2))
    book.happened([BOUND], NOW.after(1))
    assert [one.occurrence.regarding.name for one in book.due(NOW.after(3), 2)] == ["a", "b"]


def test_what_could_not_be_written_for_long_is_dropped_and_counted() -> None:
    book = Book()
    book.happened([BOUND], NOW)
    assert len(book.due(NOW.after(LATE), 10)) == 1
    assert book.due(NOW.after(LATE + 1), 10) == []
    assert book.dropped == 1
