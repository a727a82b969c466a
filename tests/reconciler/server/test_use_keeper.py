"""What GPUs do is written node by node under the leader's epoch, and told to Prometheus by queue and type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from reconciler.control.gpu_use import REFUSALS, UseBook
from reconciler.control.use_summary import LatestUse
from reconciler.model.clock import VirtualClock
from reconciler.model.gpu_use import NodeMinute
from reconciler.protocols.backend import Epoch
from reconciler.protocols.store_errors import StoreUnreachableError
from reconciler.server.use_keeper import UseFiguresCollector, UseKeeper
from reconciler.store.store import SqlStore, open_store
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from tests.reconciler.control.test_gpu_use import KEEP, N1, N2, NOW, gpu, node_of
from tests.reconciler.control.test_use_summary import job_of, on, snapshot

LEASE = Duration(10_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(tmp_path / "quorate.db")
    yield opened
    opened.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


@pytest.fixture
def book(clock: VirtualClock) -> UseBook:
    declared = {name: node_of(name) for name in (N1, N2)}
    return UseBook(clock, declared.get, lambda: KEEP)


def minute(at: int) -> NodeMinute:
    return NodeMinute(Instant(NOW + at * 60_000), (gpu(),))


def kept(store: SqlStore) -> list[int]:
    found = store.gpu_uses.of_nodes([N1, N2], "minute", NOW.after(-KEEP), NOW)
    return [(point.start - NOW) // 60_000 for past in found for point in past.points]


def test_only_who_leads_writes_and_what_waits_is_lost_by_no_change_of_leader(store: SqlStore, book: UseBook) -> None:
    epoch: Epoch | None = None
    keeping = UseKeeper(book, store.gpu_uses, lambda: epoch)
    book.hear(N1, [minute(-2)])
    keeping.look()
    assert kept(store) == []
    epoch = store.ledger.lead("first", NOW, LEASE)
    store.ledger.lead("second", NOW.after(60_000), LEASE)
    keeping.look()
    assert kept(store) == [], "an epoch that is over"
    book.hear(N1, [minute(-1)])
    epoch = store.ledger.lead("second", NOW.after(60_000), LEASE)
    keeping.look()
    assert kept(store) == [-2, -1]


def test_a_store_that_does_not_answer_loses_nothing(
    store: SqlStore, book: UseBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = store.ledger.lead("first", NOW, LEASE)
    keeping = UseKeeper(book, store.gpu_uses, lambda: epoch)
    book.hear(N1, [minute(-2)])

    def fail(*_: object) -> None:
        raise StoreUnreachableError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.gpu_uses), "keep", fail)
        with pytest.raises(StoreUnreachableError):
            keeping.look()
    keeping.look()
    assert kept(store) == [-2]


def test_what_waits_is_written_at_the_end(store: SqlStore, book: UseBook) -> None:
    epoch = store.ledger.lead("first", NOW, LEASE)
    keeping = UseKeeper(book, store.gpu_uses, lambda: epoch, every_s=1_000.0)
    book.hear(N1, [minute(-2)])
    keeping.stop()
    keeping.run()
    assert kept(store) == [-2]


def text_of(book: UseBook, clock: VirtualClock, **jobs: str) -> list[str]:
    registry, seen = CollectorRegistry(), snapshot(*(job_of(name, queue, on(0)) for name, queue in jobs.items()))
    registry.register(UseFiguresCollector(book, LatestUse(book.latest, clock), lambda: seen))
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#") and "_created" not in line]


def test_figures_are_by_queue_and_type_and_reasons_are_there_from_the_start(book: UseBook, clock: VirtualClock) -> None:
    book.hear(N1, [minute(-2), minute(100)])
    lines = text_of(book, clock, a="x")
    assert 'quorate_gpus_allocated{gpu_type="H100",queue="x"} 1.0' in lines
    assert 'quorate_gpus_measured{gpu_type="H100",queue="x"} 1.0' in lines
    assert 'quorate_gpus_active{gpu_type="H100",queue="x"} 0.5' in lines
    refused = [line for line in lines if line.startswith("quorate_gpu_use_refused_total")]
    assert len(refused) == len(REFUSALS)
    assert 'quorate_gpu_use_refused_total{reason="future"} 1.0' in refused
    assert 'quorate_gpu_use_refused_total{reason="late"} 0.0' in refused


def test_the_number_of_figures_does_not_grow_with_jobs_and_nodes(book: UseBook, clock: VirtualClock) -> None:
    book.hear(N1, [minute(-2)])
    assert len(text_of(book, clock, a="x", b="x", c="x")) == len(text_of(book, clock, a="x"))


def test_before_the_first_pass_there_is_what_is_refused_alone(book: UseBook, clock: VirtualClock) -> None:
    registry = CollectorRegistry()
    registry.register(UseFiguresCollector(book, LatestUse(book.latest, clock), lambda: None))
    assert b"quorate_gpus_active" not in generate_latest(registry)


def test_nodes_are_written_in_small_transactions_and_no_more_than_so_many_in_a_look(
    store: SqlStore, book: UseBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.server.use_keeper.NODES_AT_ONCE", 1)
    epoch, written = store.ledger.lead("first", NOW, LEASE), list[list[NodeName]]()
    keep = store.gpu_uses.keep

    def counting(own: Epoch, minutes: Mapping[NodeName, Sequence[NodeMinute]]) -> None:
        written.append(list(minutes))
        keep(own, minutes)

    monkeypatch.setattr(type(store.gpu_uses), "keep", lambda _, own, minutes: counting(own, minutes))
    keeping = UseKeeper(book, store.gpu_uses, lambda: epoch, apart_s=0.0)
    book.hear(N1, [minute(-2)])
    book.hear(N2, [NodeMinute(Instant(NOW - 120_000), (gpu(uuid="GPU-2", node=N2),))])
    keeping.look()
    assert written == [[N1], [N2]]
    assert kept(store) == [-2, -2]
    book.hear(N1, [minute(-1)])
    book.hear(N2, [NodeMinute(Instant(NOW - 60_000), (gpu(uuid="GPU-2", node=N2),))])
    monkeypatch.setattr("reconciler.server.use_keeper.NODES_A_LOOK", 1)
    keeping.look()
    assert written[2:] == [[N1]]
