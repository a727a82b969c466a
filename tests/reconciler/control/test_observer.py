"""What an observer says once, and keeps on disk so that the next one goes on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.analysis.backtest.observed_files import ObservedFiles
from reconciler.analysis.backtest.past import read_recorded
from reconciler.analysis.traces import TraceUnreadableError
from reconciler.control.control import LEASE
from reconciler.documents.snapshot import read_snapshot
from reconciler.kubernetes.control.observer import SAVE_EVERY_S, Observer
from reconciler.kubernetes.control.sight import Remembered, Sight, snapshot_from
from reconciler.kubernetes.control.state import KubernetesState
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.pod_ownership import OURS
from reconciler.kubernetes.objects.pod_view import view_of
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import cluster_of
from reconciler.model.clock import VirtualClock
from reconciler.protocols.rounds import RoundRecord
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.store.store import SqlStore
from solver.model.quantities import Instant
from solver.model.workload import QueueName
from solver.plan.plan import Waits
from solver.policy.policy import Queue, policy_of
from solver.round.solve import decide
from tests.fresh_store import fresh_store
from tests.reconciler.kubernetes.samples import node, pod

POLICY = policy_of((Queue(QueueName("q")),))


class Site:
    """An observer of a cluster that changes by hand."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.files = ObservedFiles(folder / "observed.jsonl.gz", folder / "observed-snapshot.json")
        self.store: SqlStore = fresh_store(folder / "quorate.db")
        self.memory = KubernetesState(
            self.store.ledger, self.store.history, self.store.gone_pods, self.clock, "observer", LEASE
        )
        self.observer = self.another()
        self.pods: list[Pod] = []

    def another(self) -> Observer:
        return Observer(OURS, self.files, self.memory, self.clock, structlog.get_logger())

    def see(self, *pods: Pod) -> int | None:
        """One pass; the number of its round, if it is kept."""
        self.memory.open()
        seen: KubernetesCluster = cluster_of([read(node("n1"), KubeNode)], pods)
        sight = Sight(seen, view_of(pods), {})
        snapshot = snapshot_from(self.clock.now(), sight, POLICY, (), Remembered())
        answer = decide(snapshot, POLICY, None)
        deed = RoundRecord(0, snapshot.time, "revision", snapshot, POLICY, answer.deed(), {}, is_whole=False)
        begun, plan = self.observer.keep_round(deed), answer.plan()
        number = self.observer.keep_round(msgspec.structs.replace(deed, number=begun or 0, plan=plan, is_whole=True))
        asyncio.run(self.observer.note(snapshot.time, plan, sight))
        return number

    def on_disk(self) -> list[str]:
        _, jobs = read_recorded(self.files.history)
        return [job.name for job in jobs]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.store.close()


def a_pod(name: str) -> Pod:
    return read(pod(name, created=str(Instant(0))), Pod)


def test_a_round_whose_steps_nobody_takes_is_kept_and_told_once(site: Site) -> None:
    assert site.see(a_pod("a")) == 1
    assert site.see(a_pod("a")) is None
    assert site.see(a_pod("a"), a_pod("b")) == 2
    told = [(kept.event.kind, kept.event.subject) for kept in site.store.history.events_since(0)]
    assert told == [("would-start", "vision.pod.a"), ("would-start", "vision.pod.b")]


def test_a_round_in_which_a_job_waits_is_kept_once_and_whole(site: Site) -> None:
    pods = [a_pod(f"p{number}") for number in range(9)]
    number = site.see(*pods)
    assert number is not None
    record = site.store.history.round(number)
    assert record.is_whole
    assert [bool(verdict.reasons) for verdict in record.plan.verdicts if isinstance(verdict, Waits)] == [True]
    assert site.see(*pods) is None
    assert len(site.store.history.rounds()) == 1


def test_it_writes_at_once_then_about_each_minute_and_at_the_end(site: Site) -> None:
    site.see(a_pod("a"))
    assert site.on_disk() == ["vision.pod.a"]
    site.clock.advance(int(SAVE_EVERY_S * 1_000) - 1)
    site.see(a_pod("a"), a_pod("b"))
    assert site.on_disk() == ["vision.pod.a"]
    site.clock.advance(1)
    site.see(a_pod("a"), a_pod("b"))
    assert site.on_disk() == ["vision.pod.a", "vision.pod.b"]
    site.see(a_pod("a"), a_pod("b"), a_pod("c"))
    asyncio.run(site.observer.save())
    assert site.on_disk() == ["vision.pod.a", "vision.pod.b", "vision.pod.c"]
    nodes = read_snapshot(site.files.nodes.read_bytes(), "nodes").nodes
    assert [(one.name, len(one.gpus)) for one in nodes] == [("n1", 8)]


def test_the_next_process_goes_on_with_the_record(site: Site) -> None:
    site.see(a_pod("a"))
    site.observer = site.another()
    site.clock.advance(1_000)
    site.see(a_pod("b"))
    _, jobs = read_recorded(site.files.history)
    assert [(job.name, job.ended_at is None) for job in jobs] == [("vision.pod.a", False), ("vision.pod.b", True)]


def test_gangs_that_are_left_out_are_said_once_for_each_cause(site: Site) -> None:
    def nameless(name: str) -> Pod:
        return read(pod(name, labels={"quorate.dev/queue": ""}), Pod)

    with capture_logs() as said:
        site.see(a_pod("a"))
        site.see(nameless("b"), nameless("c"))
        site.see(nameless("b"))
        site.see()
        site.see(nameless("b"))
    assert [(line["event"], line["gangs"], line["reason"]) for line in said] == [
        ("left-out", 2, "no-queue"),
        ("left-out", 1, "no-queue"),
    ]


def test_before_the_first_look_there_is_nothing_to_write(site: Site) -> None:
    asyncio.run(site.observer.save())
    assert not site.files.history.exists()


def test_a_record_that_is_cut_off_is_for_a_person_to_move_away(site: Site) -> None:
    site.see(a_pod("a"))
    site.files.history.write_bytes(site.files.history.read_bytes()[:-9])
    with pytest.raises(TraceUnreadableError, match=r"observed.jsonl.gz: not a whole gzip file"):
        site.another()


def test_a_record_that_cannot_be_written_ends_the_process(site: Site) -> None:
    site.files.history.with_name("observed.jsonl.gz.part").mkdir()
    with pytest.raises(StoreUnusableError, match="what happened can't be written"):
        site.see(a_pod("a"))
