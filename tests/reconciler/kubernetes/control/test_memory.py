"""What is remembered of gangs whose pods are gone: evictions for as long as they matter, and how long gangs ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.kubernetes.binder.records import EvictionRecord, written
from reconciler.kubernetes.control.sight import NOTHING_SEEN, Remembered, Sight, snapshot_from
from reconciler.kubernetes.control.state import EVICTED, FORGOTTEN_AFTER, HistoryEntry, KubernetesState
from reconciler.kubernetes.objects import names
from reconciler.model.clock import VirtualClock
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event
from reconciler.store.store import SqlStore, open_store
from solver.model.inflight import DurationQuantile, Ended, Intent
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.ordering import Ordering
from solver.policy.policy import Queue, SchedulingPolicy, policy_of
from tests.reconciler.kubernetes.control.test_sight import GANG, NOW, a_worker, sight_of
from tests.reconciler.kubernetes.samples import Sent, node, pod

LED, HOUR = Epoch(7), Duration.parse("1h")
RAN = Ended(QueueName("q"), MilliGpu.gpus(2), NOW, JobName("vision.pod.p"), HOUR)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    made = open_store(tmp_path / "store")
    yield made
    made.close()


def memory_on(store: SqlStore, at: Instant = NOW) -> KubernetesState:
    made = KubernetesState(store.ledger, store.history, store.gone_pods, VirtualClock(at), "here", HOUR)
    made.open()
    return made


def evict(memory: KubernetesState, job: JobName = GANG) -> None:
    memory.note(EVICTED, job, "why", purpose="evict")


def there(*pods: Sent) -> Sight:
    return sight_of([node("n1", 8)], pods or [a_worker(index, "n1") for index in range(3)])


def test_an_eviction_is_known_after_a_restart_however_much_happened_since(store: SqlStore) -> None:
    evict(memory_on(store))
    for number in range(3):
        memory_on(store).note("bound", JobName(f"vision.pod.{number}"), "why")
    assert memory_on(store).remembered().evictions == {GANG: (NOW,)}


def test_who_is_gone_is_forgotten_once_its_evictions_count_no_more(store: SqlStore) -> None:
    evict(memory_on(store))
    later = memory_on(store, NOW.after(FORGOTTEN_AFTER))
    later.look(LED, NOTHING_SEEN)
    assert later.remembered().evictions == {GANG: (NOW,)}  # its controller may be making it anew
    still = memory_on(store, Instant(NOW.after(FORGOTTEN_AFTER) + 1))
    still.look(LED, there())
    assert still.remembered().evictions == {GANG: (NOW,)}
    still.look(LED, NOTHING_SEEN)
    assert still.remembered().evictions == {}
    assert memory_on(store).remembered().evictions == {}


def test_an_eviction_that_is_called_off_is_none(store: SqlStore) -> None:
    memory = memory_on(store)
    memory.call_off(GANG)
    evict(memory)
    memory.call_off(GANG)
    assert memory.remembered().evictions == memory_on(store).remembered().evictions == {}


def test_what_many_gangs_did_is_noted_as_if_one_by_one(store: SqlStore) -> None:
    memory = memory_on(store)
    serve = JobName("vision.pod.q")
    memory.note_all(
        [
            HistoryEntry(EVICTED, GANG, "for others", "checkpointing", 1, "evict", "them"),
            HistoryEntry("bound", serve, "attempt 1 on n1", "starting", 1),
            HistoryEntry(EVICTED, serve, "its time is over", "stopping", 1),
        ]
    )
    told = [
        Event(NOW, EVICTED, GANG, "for others", "here", "checkpointing", 1, "evict", "them"),
        Event(NOW, "bound", serve, "attempt 1 on n1", "here", "starting", 1),
        Event(NOW, EVICTED, serve, "its time is over", "here", "stopping", 1),
    ]
    assert [kept.event for kept in store.history.events_since(0)] == told
    assert memory.remembered().evictions == memory_on(store).remembered().evictions == {GANG: (NOW,)}


def leaving(asked_at: Instant) -> Sight:
    pods = [a_worker(index, "n1", annotations={names.ATTEMPT: "1"}) for index in range(3)]
    intent = Intent("stop", GANG, 1, asked_at, asked_at.after(HOUR), purpose="evict", stage="saves")
    pods[0]["metadata"]["annotations"][names.EVICT] = written(EvictionRecord("uid-of-w0", intent))
    return there(*pods)


def test_what_was_asked_and_not_put_on_record_is_found_on_the_pods(store: SqlStore) -> None:
    memory = memory_on(store)
    memory.look(LED, leaving(Instant(NOW - 5)))
    assert memory.remembered().evictions == {GANG: (NOW,)}
    (event,) = store.history.events(GANG)
    assert (event.kind, event.purpose, event.attempt) == (EVICTED, "evict", 1)
    for again in (memory, memory_on(store)):
        again.look(LED, leaving(Instant(NOW - 5)))
        assert again.remembered().evictions == {GANG: (NOW,)}


def ran(name: str, minutes: int) -> Sent:
    """A pod that was begun so long ago."""
    began = str(Instant(NOW - minutes * 60_000))
    sent = pod(name, 2, "n1", created=began)
    sent["status"] |= {"startTime": began}
    return sent


def test_how_long_a_gang_ran_is_known_once_it_has_ended_and_after_a_restart(store: SqlStore) -> None:
    memory = memory_on(store)
    memory.look(LED, there(ran("p", 60)))
    assert memory.remembered().ended == ()
    memory.look(LED, there(pod("other", 1)))
    submitted = msgspec.structs.replace(RAN, submitted_at=Instant(NOW - HOUR))
    assert memory.remembered().ended == memory_on(store).remembered().ended == (submitted,)


def test_who_was_evicted_has_not_done_its_work(store: SqlStore) -> None:
    memory, sent = memory_on(store), ran("p", 60)
    memory.look(LED, there(sent))
    sent["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
    memory.look(LED, there(sent | {"metadata": {**sent["metadata"], "resourceVersion": "8"}}))
    memory.look(LED, there(pod("other", 1)))
    assert memory.remembered().ended == ()


def test_what_ended_while_others_led_is_not_guessed(store: SqlStore) -> None:
    memory = memory_on(store)
    memory.look(LED, there(ran("p", 60)))
    memory.look(Epoch(LED + 2), there(pod("other", 1)))
    assert memory.remembered().ended == ()


def test_rounds_expect_of_a_job_without_a_limit_what_its_class_took_before() -> None:
    past = tuple(
        msgspec.structs.replace(RAN, job=JobName(f"vision.pod.p{n}"), ran=Duration(n * 60_000)) for n in range(1, 11)
    )
    queue = Queue(QueueName("q"), ordering=Ordering(by="gittins"))
    policy = policy_of((queue,), scheduling=SchedulingPolicy(duration_quantile=0.9))

    def flight(*pods: Sent) -> tuple[tuple[DurationQuantile, ...], int]:
        found = snapshot_from(NOW, there(*pods), policy, (), Remembered(ended=past)).in_flight
        return found.durations, len(found.history)

    expected = DurationQuantile(QueueName("q"), "", 0.9, Duration(9 * 60_000))
    assert flight(ran("p", 1))[0] == (expected,)
    assert flight(ran("p", 1))[1] > 0
    limited = ran("p", 1)
    limited["metadata"]["annotations"] = {names.LIMIT: "1h"}
    assert flight(limited)[0] == ()


def test_when_a_gang_was_evicted_is_said_of_it_whether_it_waits_or_runs_again() -> None:
    for sight in (there(), there(*(a_worker(index) for index in range(3)))):
        snapshot = snapshot_from(NOW, sight, policy_of((Queue(QueueName("q")),)), (), Remembered({GANG: (NOW,)}))
        (job,) = snapshot.jobs
        assert (job.name, job.evicted_at) == (GANG, (NOW,))
