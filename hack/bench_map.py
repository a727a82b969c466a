"""What the console's map costs a server, in bytes and CPU milliseconds: `python -m hack.bench_map`."""

from __future__ import annotations

import gzip
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import click

from hack.rounds.world import World
from reconciler.web.cluster_map import map_of
from reconciler.web.map_change import map_change
from solver.model.document import encode
from solver.model.snapshot import Snapshot, snapshot_of


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--gpus", type=click.IntRange(min=160), default=100_000, show_default=True)
@click.option(
    "--waiting", type=click.IntRange(min=0), default=30_000, show_default=True, help="Jobs that hold nothing."
)
@click.option(
    "--ends", type=click.IntRange(min=1), default=20, show_default=True, help="Jobs that end between two passes."
)
@click.option("--times", type=click.IntRange(min=1), default=5, show_default=True, help="The median counts.")
def main(gpus: int, waiting: int, ends: int, times: int) -> None:
    """Of the whole map, and of what changes from one pass to the next."""
    world = World(gpus, waiting, 0.93, 1)
    snapshot, policy = world.snapshot, world.policy
    later = without(snapshot, ends)
    before, make_ms = timed(times, lambda: map_of(snapshot, policy))
    after, _ = timed(1, lambda: map_of(later, policy))
    text, encode_ms = timed(times, lambda: encode(before))
    packed, pack_ms = timed(times, lambda: gzip.compress(text, 6, mtime=0))
    click.echo(
        f"{gpus:,} GPUs, {len(before.jobs.name):,} jobs hold some, {len(before.parts) // 6:,} parts and instances"
    )
    click.echo(f"made in {make_ms:.0f} ms, encoded in {encode_ms:.0f}, packed in {pack_ms:.0f}")
    click.echo(f"{len(text):,} bytes, packed {len(packed):,}")
    change, change_ms = timed(times, lambda: map_change(before, after, ("before", "after")))
    if change is None:
        click.echo(f"{ends} jobs end: too much is otherwise, the map is sent whole")
        return
    click.echo(f"{ends} jobs end: {len(change.gpu)} GPUs, {len(encode(change)):,} bytes, found in {change_ms:.0f} ms")


def without(snapshot: Snapshot, many: int) -> Snapshot:
    """The same world, with so many of the jobs that hold something gone."""
    holding = [job.name for job in snapshot.jobs if job.placement]
    gone = set(random.Random(1).sample(holding, min(many, len(holding))))
    jobs = [job for job in snapshot.jobs if job.name not in gone]
    return snapshot_of(snapshot.time.after(10_000), snapshot.nodes, jobs)


def timed(times: int, work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the median of its CPU milliseconds."""
    results, spent_ms = list[Any](), list[float]()
    for _ in range(times):
        began_s = time.process_time()
        results = [work()]
        spent_ms.append(1_000 * (time.process_time() - began_s))
    return results[0], statistics.median(spent_ms)


if __name__ == "__main__":
    main()
