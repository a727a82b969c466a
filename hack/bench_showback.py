"""What a statement of a month costs: CPU and wall time of each of its parts, and the most memory that the process took.

    python -m hack.bench_showback --nodes 12500 --days 30
    python -m hack.bench_showback --nodes 12500 --days 30 --no-use    # without what GPUs did

The history is written straight into the store's tables, as gangs of whole nodes that follow each other: of one to 64 nodes, for
hours to days, each a placement with a row for each node, or with `--pods` a placement for each node, as pods have. What GPUs did is
there by hours and days, and of the last two days by minutes where a gang begins or ends, which are all that a statement reads.
Blocks of it are drawn from a hundred: their courses are made up, as in bench_use.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from sqlalchemy import insert

from hack.bench_use import course
from hack.memory import peak_mb
from reconciler.analysis.showback.account import account_of
from reconciler.analysis.showback.activity import measured_use
from reconciler.analysis.showback.statement import JobFacts, ShowbackBy, statement_of
from reconciler.analysis.showback.tariff import Tariff, seconds_of
from reconciler.protocols.capacity import NodeCapacity
from reconciler.protocols.gpu_use import STEPS, UseStep
from reconciler.protocols.placements import PlacedTask
from reconciler.store.gpu_use import BLOCK_STEPS
from reconciler.store.jobs import columns_of
from reconciler.store.placements import packed_tasks
from reconciler.store.store import SqlStore, open_store
from reconciler.store.tables import gpu_use, jobs, placement_nodes, placements
from reconciler.store.use_blocks import UseBlock
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobSpec, QueueName, TaskGroup

T = TypeVar("T")
GPUS: Final = 8
START: Final = Instant.parse("2026-03-01T00:00:00Z")
HOUR: Final = STEPS["hour"]
QUEUES: Final = 40
SIZES: Final = (1, 1, 1, 1, 2, 2, 4, 8, 16, 64)
ISLAND: Final = 64
"""Nodes that gangs of one size share at a time."""
VARIANTS: Final = 100
PIECE: Final = 5_000
"""Rows in one statement."""


def node_of(number: int) -> NodeName:
    """Its name."""
    return NodeName(f"node-{number:05}")


@dataclass
class History:
    """What is written. `edges`: hours in which something begins or ends, by node."""

    store: SqlStore
    nodes: int
    end: Instant
    as_pods: bool
    chance: random.Random

    def write(self) -> None:
        """Capacity, jobs and what they held."""
        everything = range(self.nodes)
        has = {
            node: NodeCapacity("pool", GpuType("H100"), gpus, ("idle",) * GPUS)
            for node in map(node_of, everything)
            if (gpus := tuple(DeviceId(f"{node}/{index}") for index in range(GPUS)))
        }
        epoch = self.store.ledger.lead("bench", START, Duration(10**12))
        self.store.capacities.keep(epoch, has, START)
        self.store.capacities.watch(epoch, START, Duration(1))
        self.edges: set[tuple[int, NodeName]] = set()
        own: list[dict[str, Any]] = []
        held: list[dict[str, Any]] = []
        on: list[dict[str, Any]] = []
        for job, placed, on_nodes in self._gangs():
            own.append(job)
            held += placed
            on += on_nodes
            if len(on) > PIECE:
                self._flush(own, held, on)
        self._flush(own, held, on)

    def _flush(self, *rows: list[dict[str, Any]]) -> None:
        with self.store.database.engine.begin() as connection:
            for table, some in zip((jobs, placements, placement_nodes), rows, strict=True):
                if some:
                    connection.execute(insert(table), some)
                    some.clear()

    def _gangs(self) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]]:
        number = count = 0
        for first in range(0, self.nodes, ISLAND):
            there = min(ISLAND, self.nodes - first)
            at = int(START)
            while at < self.end:
                size = min(self.chance.choice(SIZES), there)
                longest = at
                for begin in range(first, first + there - size + 1, size):
                    since = at + self.chance.randrange(HOUR)
                    until = since + self.chance.randrange(2 * HOUR, 36 * HOUR)
                    longest = max(longest, until)
                    if since < self.end:
                        count += 1
                        gang = [node_of(begin + index) for index in range(size)]
                        yield self._rows(count, number, gang, since, until)
                        number += size if self.as_pods else 1
                at = longest

    def _rows(
        self, count: int, number: int, gang: list[NodeName], since: int, until: int
    ) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
        name, queue = f"train-{count:06}", f"queue-{count % QUEUES:02}"
        over = until if until < self.end else 2**62
        shape = Shape(gpus=GPUS, gpu_types=(GpuType("H100"),))
        spec = JobSpec(QueueName(queue), (TaskGroup("worker", len(gang), shape),), command=("true",))
        job = {"name": name, "user": f"user-{count % 400:03}", "submitted_at": since - HOUR, "idempotency_key": name}
        job |= {**columns_of(spec), "ended_at": until if until < self.end else None, "ended_as": None, "outcome": None}
        of = {"job": name, "attempt": 1, "queue": queue, "user": job["user"], "gpu_type": "H100"}
        of |= {"since": since, "until": over, "ended": "succeeded" if until < self.end else "", "beneficiary": ""}
        each = len(gang) if self.as_pods else 1
        gpus = len(gang) * GPUS * 1_000 // each
        placed = [{**of, "number": number + at + 1, "gpus": gpus} for at in range(each)]
        on_nodes = []
        for index, node in enumerate(gang):
            task = PlacedTask(
                "worker", index, tuple(DeviceId(f"{node}/{gpu}") for gpu in range(GPUS)), MilliGpu.gpus(GPUS)
            )
            at = number + 1 + (index if self.as_pods else 0)
            row = {"placement": at, "node": node, "until": over, "gpus": GPUS * 1_000}
            on_nodes.append({**row, "tasks": packed_tasks(node, [task])})
            self.edges |= {(edge // HOUR * HOUR, node) for edge in (since, until)}
        return job, placed, on_nodes

    def write_use(self, keep_minutes: Duration) -> None:
        """Hours and days of all, minutes where a statement reads them."""
        steps: tuple[UseStep, ...] = "hour", "day"
        for step in steps:
            blocks, span = _blocks(self.chance, step), STEPS[step] * BLOCK_STEPS[step]
            starts = range(START // span * span, self.end, span)
            self._write_blocks(step, ((start, node_of(at)) for start in starts for at in range(self.nodes)), blocks)
        kept = (
            (start, node) for start, node in sorted(self.edges) if self.end - keep_minutes - HOUR <= start < self.end
        )
        self._write_blocks("minute", kept, _blocks(self.chance, "minute"))

    def _write_blocks(self, step: UseStep, keys: Iterator[tuple[int, NodeName]], blocks: list[bytes]) -> None:
        rows = [
            {"step": step, "start": start, "node": node, "block": self.chance.choice(blocks)} for start, node in keys
        ]
        with self.store.database.engine.begin() as connection:
            for first in range(0, len(rows), PIECE):
                connection.execute(insert(gpu_use), rows[first : first + PIECE])
        click.echo(f"{step}: {len(rows)} blocks of use")


def _blocks(chance: random.Random, step: UseStep) -> list[bytes]:
    """Blocks as they are kept say nothing of their node, so that all nodes may have them."""
    node, found = node_of(0), list[bytes]()
    for _ in range(VARIANTS):
        block = UseBlock(BLOCK_STEPS[step])
        for gpu in range(GPUS):
            records = course(chance, BLOCK_STEPS[step])
            covers = STEPS[step] // STEPS["minute"] if step != "minute" else 12
            for at, record in enumerate(records):
                known = record[:1] + covers.to_bytes(2) + record[3:]
                block.make((DeviceId(f"{node}/{gpu}"), f"GPU-{gpu:08x}-0000-1000-8000-{gpu:012x}"), at, known)
        found.append(block.pack(node))
    return found


class Laps:
    """Tells what each part took."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def take(self, what: str, part: Callable[[], T]) -> T:
        """What a part gives."""
        cpu, wall = time.process_time(), time.monotonic()
        found = part()
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        self.cpu_s, self.wall_s = self.cpu_s + cpu, self.wall_s + wall
        peak = peak_mb(os.getpid())
        click.echo(f"  {what:28} {cpu:7.2f} CPU s {wall:7.2f} s   most memory so far {peak:7} MiB")
        return found


def measure(path: Path, start: Instant, end: Instant, by: ShowbackBy, keep_minutes: Duration) -> None:
    """As `GET /v1/showback` works it out."""
    store, laps = open_store(path, as_found=True), Laps()
    peak = peak_mb(os.getpid())
    click.echo(f"by {by}, {(end - start) / STEPS['day']:.0f} days; before it {peak} MiB")
    spans = laps.take("read capacity", lambda: store.capacities.spans(start, end))
    placed = laps.take("read placements", lambda: store.placements.in_window(start, end))
    account = laps.take("account", lambda: account_of(start, end, spans, placed))
    past = laps.take("read jobs", lambda: {job.name: job for job in store.past_jobs.between(start, end)})
    kept: dict[UseStep, Instant] = {"minute": Instant(end - keep_minutes), "hour": Instant(0), "day": Instant(0)}
    used = laps.take("read use", lambda: measured_use(account.held, kept, store.gpu_uses.active))
    facts = JobFacts(past, store.past_jobs.saved(start), store.placements.of_job, lambda _, __: True, "", used)
    found = laps.take("statement", lambda: statement_of(account, facts, Tariff((), start, end), by))
    allocated = sum(row.allocated for row in found.rows)
    active = sum(row.active or 0 for row in found.rows)
    assert allocated == sum(seconds_of(of["allocated"]) for of in account.totals.values())
    assert account.overheld == 0
    click.echo(
        f"{len(placed)} rows of nodes, {len(past)} jobs, {len(found.rows)} rows; {active / allocated:.0%} active"
    )
    click.echo(f"all: {laps.cpu_s:.1f} CPU s, {laps.wall_s:.1f} s")


@click.command()
@click.option("--nodes", default=1250, show_default=True)
@click.option("--days", default=30, show_default=True)
@click.option(
    "--by", default="queue", show_default=True, type=click.Choice(("queue", "user", "class", "job", "gpu-type"))
)
@click.option("--pods", is_flag=True, help="A placement for each node of a gang, as pods have.")
@click.option("--use/--no-use", default=True, show_default=True, help="With what GPUs did.")
@click.option("--seed", default=1, show_default=True)
@click.option("--of", "made", type=click.Path(path_type=Path), help="A store that was made before: measure it alone.")
def main(nodes: int, days: int, by: ShowbackBy, pods: bool, use: bool, seed: int, made: Path | None) -> None:
    """Make a history, and state it in a process of its own."""
    end, keep_minutes = Instant(START + days * STEPS["day"]), Duration(2 * STEPS["day"])
    if made is not None:
        measure(made, START, end, by, keep_minutes)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quorate.db"
        store = open_store(path)
        history = History(store, nodes, end, pods, random.Random(seed))
        history.write()
        if use:
            history.write_use(keep_minutes)
        store.close()
        click.echo(f"{nodes * GPUS} GPUs, {days} days: {path.stat().st_size / 2**20:.0f} MiB")
        asked = ["--of", str(path), "--by", by, "--days", str(days)]
        subprocess.run([sys.executable, "-m", "hack.bench_showback", *asked], check=True)


if __name__ == "__main__":
    main()
