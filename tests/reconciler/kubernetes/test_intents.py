"""What Quorate wrote on pods is in flight again for whoever reads them; what others wrote there, or what is over, is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.binder.intents import Found, in_flight_of
from reconciler.kubernetes.binder.nominations import promise_after
from reconciler.kubernetes.binder.records import (
    PLAIN_MAX,
    EvictionRecord,
    NominationRecord,
    UnreadableRecordError,
    read_record,
    written,
)
from reconciler.kubernetes.control.sight import Remembered, cluster_sight, snapshot_from
from reconciler.kubernetes.objects.wire import Pod, read
from solver.checker.check import violations
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent, Reservation
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Nominate, Reserve, Unreserve, Withdraw
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from tests.reconciler.kubernetes.samples import Sent, cluster, node, pod
from tests.solver.worlds import quota_of

WAITS, RUNS = JobName("vision.gang.waits"), JobName("vision.gang.runs")
NOW = Instant(1_000)
NODES = [node("n1"), node("n2")]


def gang(name: str, many: int, gpus: int = 4, **said: Any) -> list[Sent]:
    size = {"quorate.dev/gang": name, "quorate.dev/gang-size": str(many), **said.pop("annotations", {})}
    return [pod(f"{name}-{n}", gpus, annotations=dict(size), **said) for n in range(many)]


def running(name: str, *devices: str, attempt: int = 1) -> list[Sent]:
    pods = gang(name, len(devices), 1)
    for sent, held in zip(pods, devices, strict=True):
        sent["spec"]["nodeName"], sent["status"] = held.split("/")[0], {"phase": "Running"}
        sent["metadata"]["annotations"] |= {"quorate.dev/devices": held, "quorate.dev/attempt": str(attempt)}
    return pods


def with_record(sent: Sent, record: EvictionRecord | NominationRecord, uid: str | None = None) -> Sent:
    key = "quorate.dev/evict" if isinstance(record, EvictionRecord) else "quorate.dev/promise"
    own = msgspec.structs.replace(record, uid=sent["metadata"]["uid"] if uid is None else uid)
    sent["metadata"]["annotations"] = {**sent["metadata"]["annotations"], key: written(own)}
    return sent


def found(pods: Iterable[Sent], starts: Iterable[Intent] = (), nodes: Iterable[Sent] = NODES) -> Found:
    sent = list(pods)
    by_key = {known.key: known for known in (read(one, Pod) for one in sent)}
    return in_flight_of(cluster(nodes, sent), by_key, starts)


def tasks_on(*devices: str) -> tuple[TaskPlacement, ...]:
    return tuple(
        TaskPlacement("worker", n, NodeName(held.split("/")[0]), tuple(DeviceId(one) for one in held.split(",")))
        for n, held in enumerate(devices)
    )


FOUR = ("n1/0,n1/1,n1/2,n1/3", "n1/4,n1/5,n1/6,n1/7")
PROMISED = Intent("nominate", WAITS, 1, NOW, Instant(9_000), tasks_on(*FOUR))
EVICTED = Intent("stop", RUNS, 1, NOW, Instant(9_000), beneficiary=WAITS, purpose="evict", stage="saves")


def test_what_was_written_is_in_flight_again() -> None:
    pods = gang("waits", 2) + running("runs", "n2/0", "n2/1")
    with_record(pods[0], NominationRecord("", PROMISED, Reservation(WAITS, PROMISED.tasks, Instant(5_000))))
    with_record(pods[2], EvictionRecord("", EVICTED, "for waits"))
    start = Intent("start", JobName("vision.gang.begins"), 1, NOW, NOW)
    seen = found(pods, [start])
    assert seen.intents == (PROMISED, start, EVICTED)
    assert seen.reservations == (Reservation(WAITS, PROMISED.tasks, Instant(5_000)),)
    assert seen.remarks == ()
    assert found(pods[::-1], [start]) == seen


@pytest.mark.parametrize(
    "wrong",
    [
        {"job": JobName("vision.gang.other")},
        {"attempt": 2},
        {"kind": "start"},
        {"tasks": tasks_on(FOUR[0])},
        {"tasks": tasks_on(*FOUR, "n2/0")},
        {"tasks": (PROMISED.tasks[0], PROMISED.tasks[0])},
        {"tasks": tasks_on(FOUR[0], "gone/4")},
    ],
)
def test_a_promise_that_does_not_fit_its_gang_is_none(wrong: dict[str, Any]) -> None:
    pods = gang("waits", 2)
    with_record(pods[0], NominationRecord("", msgspec.structs.replace(PROMISED, **wrong)))
    assert found(pods).intents == ()


@pytest.mark.parametrize("wrong", [{"job": WAITS}, {"attempt": 2}, {"kind": "nominate"}])
def test_an_eviction_that_does_not_fit_its_gang_is_none(wrong: dict[str, Any]) -> None:
    pods = running("runs", "n2/0", "n2/1")
    with_record(pods[0], EvictionRecord("", msgspec.structs.replace(EVICTED, **wrong)))
    assert found(pods).intents == ()


@pytest.mark.parametrize("value", ["{}", "z:!", "z:AAAA", '{"uid": "uid-of-waits-0", "x": 1}', "\u0000"])
def test_what_is_no_record_is_remarked_and_not_believed(value: str) -> None:
    pods = gang("waits", 2, annotations={"quorate.dev/promise": value})
    seen = found(pods)
    assert seen.intents == ()
    assert {(job, remark.code) for job, remark in seen.remarks} == {(WAITS, "record-not-believed")}


def test_a_copy_of_a_pods_annotations_promises_nothing() -> None:
    pods = gang("waits", 2)
    with_record(pods[0], NominationRecord("", PROMISED), uid="uid-of-another")
    seen = found(pods)
    assert seen.intents == ()
    assert [str(remark) for _, remark in seen.remarks] == [
        "quorate.dev/promise of pod waits-0: it was written for another pod"
    ]


def test_what_two_were_promised_is_the_first_ones() -> None:
    pods = gang("waits", 2) + gang("later", 2)
    with_record(pods[0], NominationRecord("", PROMISED))
    later = msgspec.structs.replace(PROMISED, job=JobName("vision.gang.later"), asked_at=Instant(2_000))
    with_record(pods[2], NominationRecord("", later))
    seen = found(pods)
    assert seen.intents == (PROMISED,)
    assert [(job, remark.code) for job, remark in seen.remarks] == [("vision.gang.later", "promised-twice")]


def test_a_promise_whose_victims_were_never_asked_to_leave_is_none() -> None:
    """It was written first, and whoever wrote it died before the rest."""
    pods = gang("waits", 2) + running("runs", "n1/0", "n1/1")
    with_record(pods[0], NominationRecord("", PROMISED))
    assert found(pods).intents == ()
    with_record(pods[2], EvictionRecord("", EVICTED, "for waits"))
    assert found(pods).intents == (PROMISED, EVICTED)


def test_a_promise_is_kept_once_its_attempt_has_begun() -> None:
    pods = running("waits", "n2/0", "n2/1")
    with_record(pods[0], NominationRecord("", PROMISED, Reservation(WAITS, PROMISED.tasks, NOW)))
    assert found(pods) == Found((), ())


def test_a_shrink_means_the_same_pods_whatever_their_numbers_are_by_now() -> None:
    pods = running("runs", "n2/0", "n2/1", "n2/2", "n2/3")
    leaving = ("uid-of-runs-1", "uid-of-runs-2")
    shrink = Intent("shrink", RUNS, 1, NOW, Instant(9_000), tasks_on("n2/1", "n2/2"))
    with_record(pods[0], EvictionRecord("", shrink, leaving=leaving))
    assert [(task.index, *task.devices) for task in found(pods).intents[0].tasks] == [(1, "n2/1"), (2, "n2/2")]
    left = [pods[0], *pods[2:]]
    for sent in left:
        sent["metadata"]["annotations"]["quorate.dev/gang-size"] = "3"
    assert [(task.index, *task.devices) for task in found(left).intents[0].tasks] == [(1, "n2/2")]
    for sent in (gone := [pods[0], pods[3]]):
        sent["metadata"]["annotations"]["quorate.dev/gang-size"] = "2"
    assert found(gone).intents == ()


def test_a_gang_that_was_asked_to_stop_does_not_shrink_any_more() -> None:
    pods = running("runs", "n2/0", "n2/1")
    shrink = Intent("shrink", RUNS, 1, Instant(2_000), Instant(9_000), tasks_on("n2/0"))
    with_record(pods[0], EvictionRecord("", shrink, leaving=("uid-of-runs-0",)))
    with_record(pods[1], EvictionRecord("", EVICTED))
    assert found(pods).intents == (EVICTED,)


@given(st.lists(st.text(max_size=200), max_size=40))
def test_records_are_read_as_they_were_written_long_ones_packed(whys: list[str]) -> None:
    record = EvictionRecord("uid", EVICTED, "".join(whys))
    value = written(record)
    assert read_record(value, EvictionRecord) == record
    assert value.isascii() or len(value.encode()) <= PLAIN_MAX


def test_a_record_that_unfolds_to_more_than_anybody_writes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    value = written(EvictionRecord("uid", EVICTED, "x" * 100_000))
    assert len(value) < 2_000
    monkeypatch.setattr("reconciler.kubernetes.binder.records.READ_MAX", 50_000)
    with pytest.raises(UnreadableRecordError, match="longer"):
        read_record(value, EvictionRecord)


def test_steps_say_what_stands_afterwards() -> None:
    start = Instant(7_000)
    nominate, reserve = Nominate(WAITS, 1, PROMISED.tasks, Duration(8_000)), Reserve(WAITS, PROMISED.tasks, start)
    both = promise_after(NominationRecord("uid"), [nominate, reserve], NOW)
    assert both == NominationRecord("uid", PROMISED, Reservation(WAITS, PROMISED.tasks, start))
    assert promise_after(both, [Withdraw(WAITS, 1)], NOW) == NominationRecord("uid", None, both.reservation)
    assert promise_after(both, [Unreserve(WAITS), Withdraw(WAITS, 1), nominate], NOW) == NominationRecord(
        "uid", PROMISED
    )


def test_what_was_promised_stays_kept_until_it_is_bound() -> None:
    """Another gang, first in line and ready to start, does not get it; the one it was promised to is bound there."""
    policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100-SXM5-80GB", 16),)),))
    waits = gang("waits", 2, created="2026-11-20T09:00:00Z")
    first = gang("first", 2, created="2026-11-20T08:00:00Z")
    where = [node("n1")]
    assert _bound(waits + first, where, policy) == {"vision.gang.first": ["n1", "n1"]}
    with_record(waits[0], NominationRecord("", PROMISED))
    assert _bound(waits + first, where, policy) == {WAITS: ["n1", "n1"]}
    # While somebody who was asked to leave is still there, it is nobody's.
    still = running("runs", "n1/0")
    with_record(still[0], EvictionRecord("", EVICTED))
    assert _bound(waits + first + still, where, policy) == {}


def _bound(pods: list[Sent], nodes: list[Sent], policy: Policy) -> dict[str, list[str]]:
    by_key = {known.key: known for known in (read(one, Pod) for one in pods)}
    sight = cluster_sight(cluster(nodes, pods), by_key, {}, policy.scheduling.start_deadline, NOW)
    snapshot = snapshot_from(NOW, sight, policy, (), Remembered())
    plan = solve(snapshot, policy, None)
    assert violations(snapshot, policy, plan) == ()
    return {step.job: [task.node for task in step.tasks] for step in plan.steps if isinstance(step, Bind)}
