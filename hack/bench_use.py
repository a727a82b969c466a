"""What it costs to keep and to take GPUs' use: bytes per GPU-day in the store, CPU per GPU-minute, per sample and to read it.

    python -m hack.bench_use --nodes 250 --hours 24
    python -m hack.bench_use --nodes 12500 --hours 1      # 100,000 GPUs

CPU seconds of this process, so that a busy machine changes little. Figures are plausible, not measured: a job for hours, idle
between, with the jitter that trainings have; compression depends on them.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
from sqlalchemy import func, select, text

from reconciler.backends.baremetal.wire import Beat
from reconciler.control.gpu_use import UseBook
from reconciler.model.clock import VirtualClock
from reconciler.model.gpu_use import METRICS, GpuMinute, Metric, NodeMinute, UseFigures, UseSpread, record_of
from reconciler.node.use.minutes import GpuSample, MinuteAggregator
from reconciler.protocols.gpu_use import STEPS, UseStep, UseStretch
from reconciler.store.store import SqlStore, open_store
from reconciler.store.tables import gpu_use
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.document import decode, encode
from solver.model.quantities import Cpu, Duration, Instant, Memory

GPUS_PER_NODE = 8
BATCH = 25
"""Nodes in one transaction, as the control plane writes them."""
START = Instant.parse("2026-03-01T00:00:00Z")
SHAPES = 200
"""Different courses of a GPU; nodes draw from them, so that making them up takes little of the time."""


def course(chance: random.Random, minutes: int) -> list[bytes]:
    """One GPU: jobs of hours with levels of their own, jitter, and rests between them."""
    records: list[bytes] = []
    while len(records) < minutes:
        level = {metric: chance.uniform(5, 95) for metric in METRICS} | {"nvlink": chance.uniform(0, 200_000)}
        length, idle = chance.randint(30, 600), chance.random() < 0.25
        for _ in range(length):
            spreads: dict[Metric, UseSpread] = {}
            for metric, base in level.items():
                mean = 0.0 if idle else max(0.0, min(base * chance.gauss(1, 0.05), 1e6 if metric == "nvlink" else 100))
                low, high = mean * chance.uniform(0.6, 0.95), mean * chance.uniform(1.0, 1.1)
                top = high if metric == "nvlink" else min(high, 100)
                spreads[metric] = UseSpread(mean, low, min(low * 1.1, mean), top)
            records.append(record_of(UseFigures("gpm", 12, **spreads)))
    return records[:minutes]


def batches(nodes: int, minutes: range, courses: list[list[bytes]]) -> Iterator[dict[NodeName, list[NodeMinute]]]:
    """As the control plane hands them to the store."""
    for first in range(0, nodes, BATCH):
        found: dict[NodeName, list[NodeMinute]] = {}
        for number in range(first, min(first + BATCH, nodes)):
            node = NodeName(f"node-{number:05}")
            found[node] = [
                NodeMinute(START.after(at * 60_000), tuple(gpus(node, number, at, courses))) for at in minutes
            ]
        yield found


def gpus(node: NodeName, number: int, at: int, courses: list[list[bytes]]) -> Iterator[GpuMinute]:
    """What a node tells of a minute."""
    for index in range(GPUS_PER_NODE):
        seat = number * GPUS_PER_NODE + index
        uuid = f"GPU-{seat * 2654435761 % 2**32:08x}-0000-1000-8000-{seat:012x}"
        yield GpuMinute(DeviceId(f"{node}/{index}"), uuid, courses[seat * 7919 % len(courses)][at])


def tell(what: str, spent: float, number: int, unit: str) -> None:
    """A line."""
    click.echo(f"{what}: {spent / number * 1e6:.2f} us per {unit}")


def take(minutes: int) -> None:
    """An agent's part: samples that are at hand become minutes."""
    node, aggregator = NodeName("node-00001"), MinuteAggregator()
    values: dict[Metric, float] = dict.fromkeys(METRICS, 50.0)
    samples = [GpuSample(DeviceId(f"{node}/{index}"), f"GPU-{index}", "gpm", values) for index in range(GPUS_PER_NODE)]
    begun = time.process_time()
    for at in range(minutes * 12):
        aggregator.add(START.after(at * 5_000), samples)
    tell("an agent adds up samples", time.process_time() - begun, minutes * 12 * GPUS_PER_NODE, "sample of a GPU")


def hear(nodes: int, courses: list[list[bytes]]) -> None:
    """The control plane's part before it writes: a beat of each node with a minute is read, judged and remembered."""
    boards = {
        node: Node(
            node, "pool", Cpu(0), Memory(0), GpuType("H100"), tuple(Gpu(DeviceId(f"{node}/{n}"), n) for n in range(8))
        )
        for node in (NodeName(f"node-{number:05}") for number in range(nodes))
    }
    beats = [
        (node, encode(Beat(tuple(minutes))))
        for batch in batches(nodes, range(1), courses)
        for node, minutes in batch.items()
    ]
    book = UseBook(VirtualClock(START), boards.get, lambda: Duration(10**9))
    begun = time.process_time()
    for node, beat in beats:
        book.hear(node, decode(beat, Beat).use)
    tell("the control plane hears them", time.process_time() - begun, nodes * GPUS_PER_NODE, "GPU-minute")
    click.echo(f"a beat with a minute of {GPUS_PER_NODE} GPUs has {len(beats[0][1])} bytes")
    assert not book.refused()


def report(store: SqlStore, path: Path, nodes: int, hours: int) -> None:
    """What lies in the table: blocks, and pages with all that is around them."""
    gpu_days = nodes * GPUS_PER_NODE * hours / 24
    with store.database.reading() as connection:
        for step in STEPS:
            own = select(func.sum(func.length(gpu_use.c.block)), func.count()).where(gpu_use.c.step == step)
            size, rows = connection.execute(own).one()
            click.echo(f"{step:7} {rows:6} rows  {size / gpu_days:9.0f} bytes of blocks per GPU-day")
        pages = text("SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%gpu_use%'")
        taken = connection.execute(pages).scalar_one()
    click.echo(f"pages of the table and its index: {taken / gpu_days:.0f} bytes per GPU-day of all three")
    click.echo(f"file: {path.stat().st_size / 2**20:.1f} MiB")


def join(store: SqlStore, nodes: int, hours: int) -> None:
    """A showback's part: what all GPUs did is read for what was held of them."""
    kept: tuple[tuple[UseStep, int], ...] = ("hour", hours), ("day", max(1, hours // 24))
    for step, number in kept:
        whole = [UseStretch(START, START.after(number * STEPS[step]))]
        begun = time.process_time()
        found = store.gpu_uses.active(step, {NodeName(f"node-{at:05}"): whole for at in range(nodes)})
        spent = time.process_time() - begun
        assert len(found) == nodes * GPUS_PER_NODE
        tell(f"a showback reads {step}s", spent, nodes * GPUS_PER_NODE * number, f"GPU-{step}")


@click.command()
@click.option("--nodes", default=250, show_default=True)
@click.option("--hours", default=24, show_default=True)
@click.option("--every", default=50, show_default=True, help="Minutes after which a node is written again.")
@click.option("--seed", default=1, show_default=True)
def main(nodes: int, hours: int, every: int, seed: int) -> None:
    """Keep so much use in a fresh SQLite file."""
    chance, minutes = random.Random(seed), hours * 60
    courses = [course(chance, minutes) for _ in range(SHAPES)]
    take(60)
    hear(nodes, courses)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quorate.db"
        store = open_store(path)
        epoch = store.ledger.lead("bench", START, Duration(10**9))
        spent, writes = 0.0, 0
        for first in range(0, minutes, every):
            for batch in batches(nodes, range(first, min(first + every, minutes)), courses):
                begun = time.process_time()
                store.gpu_uses.keep(epoch, batch)
                spent += time.process_time() - begun
                writes += len(batch)
        told = nodes * GPUS_PER_NODE * minutes
        click.echo(f"{nodes * GPUS_PER_NODE} GPUs, {hours} h: {told} GPU-minutes in {writes} writes of nodes")
        each = f"{spent / told * 1e6:.2f} us per GPU-minute, {spent / writes * 1e3:.2f} ms a write"
        click.echo(f"{spent:.1f} CPU s to keep: {each}")
        report(store, path, nodes, hours)
        join(store, nodes, hours)
        store.close()


if __name__ == "__main__":
    main()
