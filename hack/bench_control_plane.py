"""How a whole control plane keeps up: `python -m hack.bench_control_plane --gpus 4000 --live-jobs 3000 --waiting 2000 -o json`.

A real `quorate run`, over the simulated backend, spoken to over its API: a full cluster, jobs that wait for ever, jobs that
arrive, and people who look.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
import msgspec

from hack.control_plane.plane import PlaneFailedError, SimulatedPlane
from hack.control_plane.stages import Idle, Latencies, Latency, arrive, idle, read, submit, submit_arrays
from hack.control_plane.world import Sizes, fill, make_policy
from reconciler.store.store import open_store

NOTHING: Final = Latency(None, None)
T = TypeVar("T")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run; null: it was not measured, or did not come about within `--limit-s`.

    Latencies: from a request to the order that the cluster is given for it; of an urgent job, to the first victim that it needs;
    of a gang that is told to end, to the start of a job that waited.
    `idle_pass_ms`: CPU time of a second in which nothing happens, which is a look of the loop; `idle_solves`: rounds solved
    in it. `restart_s`: from the start of
    the process until it leads and has decided a round. `memory_mb`: peaks of its processes, added up. `narrow_share`: of arrivals,
    urgent ones too, and of ends, that were decided without a complete round.
    """

    gpus: int
    live_jobs: int
    waiting: int
    seed: int
    store: str
    arrival_p50_ms: float | None
    arrival_p99_ms: float | None
    urgent_p50_ms: float | None
    urgent_p99_ms: float | None
    cancel_p50_ms: float | None
    cancel_p99_ms: float | None
    end_p50_ms: float | None
    end_p99_ms: float | None
    submits_per_s: float | None
    submit_p99_ms: float | None
    array_tasks_per_s: float | None
    status_p99_ms: float | None
    queues_p99_ms: float | None
    jobs_p99_ms: float | None
    idle_pass_ms: float | None
    idle_solves: float | None
    restart_s: float | None
    memory_mb: int
    narrow_share: float | None = None


class Load(NamedTuple):
    """What is done to it: the options of the command."""

    watchers: int
    reads: int
    arrivals: int
    apart_s: float
    submit_s: float
    arrays: int
    idle_s: float
    limit_s: float


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--gpus", type=click.IntRange(min=160), default=100_000, show_default=True)
@click.option("--live-jobs", type=click.IntRange(min=20), default=30_000, show_default=True, help="Waiting ones, too.")
@click.option(
    "--waiting", type=click.IntRange(min=0), default=20_000, show_default=True, help="Jobs that find no room."
)
@click.option("--watchers", type=click.IntRange(min=0, max=100), default=50, show_default=True)
@click.option("--reads", type=click.IntRange(min=1), default=30, show_default=True, help="Of each kind.")
@click.option("--arrivals", type=click.IntRange(min=1), default=20, show_default=True, help="Of each kind.")
@click.option("--apart-s", type=click.FloatRange(min=0), default=0.5, show_default=True, help="Between two of them.")
@click.option(
    "--submit-s", type=click.FloatRange(min=0.1), default=10, show_default=True, help="How long jobs pour in."
)
@click.option("--arrays", type=click.IntRange(min=1), default=10, show_default=True, help="Of 1,000 jobs.")
@click.option("--idle-s", type=click.FloatRange(min=0.1), default=10, show_default=True)
@click.option("--limit-s", type=click.FloatRange(min=1), default=300, show_default=True, help="For each stage.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--postgresql", metavar="URL", help="An empty database in place of SQLite.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(gpus: int, live_jobs: int, waiting: int, seed: int, postgresql: str | None, output: str, **load: Any) -> None:
    """Report how soon orders follow requests, how fast jobs are taken in, and how fast people are answered."""
    if waiting > live_jobs - 10:
        raise click.UsageError("Jobs that wait live, too, and at least ten run: raise --live-jobs.")
    found = measure(Sizes(gpus, live_jobs, waiting, seed), Load(**load), postgresql)
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found)))
        return
    for name, value in msgspec.to_builtins(found).items():
        click.echo(f"{name:18} {'-' if value is None else value}")


def measure(sizes: Sizes, load: Load, postgresql: str | None) -> Figures:
    """One run. Raises click.ClickException where there is nothing to measure."""
    limit_s = load.limit_s
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        plane = filled(folder, sizes, postgresql)
        closing.callback(plane.stop)
        started = _or_none("the start", lambda: plane.start(limit_s))
        if started is None:
            raise click.ClickException("The control plane does not start. See above.")
        rests = _or_none("passes without anything to do", lambda: idle(plane, load.idle_s, limit_s)) or Idle(None, None)
        answers = _or_none("reads", lambda: read(plane, load.watchers, load.reads, limit_s)) or {}
        before = plane.decided()
        orders = _or_none("arrivals", lambda: arrive(plane, load.arrivals, load.apart_s, limit_s))
        decided = {kind: count - before[kind] for kind, count in plane.decided().items()}
        arrived = orders or Latencies(NOTHING, NOTHING, NOTHING, NOTHING)
        taken = _or_none("submissions", lambda: submit(plane, load.submit_s, limit_s))
        in_arrays = _or_none("arrays", lambda: submit_arrays(plane, load.arrays, limit_s))
        memory = plane.peak_mb()
    return Figures(
        **dataclasses.asdict(sizes),
        store="postgresql" if postgresql else "sqlite",
        arrival_p50_ms=arrived.arrival.p50_ms,
        arrival_p99_ms=arrived.arrival.p99_ms,
        urgent_p50_ms=arrived.urgent.p50_ms,
        urgent_p99_ms=arrived.urgent.p99_ms,
        cancel_p50_ms=arrived.cancel.p50_ms,
        cancel_p99_ms=arrived.cancel.p99_ms,
        end_p50_ms=arrived.end.p50_ms,
        end_p99_ms=arrived.end.p99_ms,
        submits_per_s=taken.per_s if taken else None,
        submit_p99_ms=taken.each.p99_ms if taken else None,
        array_tasks_per_s=in_arrays.per_s if in_arrays else None,
        status_p99_ms=answers.get("status", NOTHING).p99_ms,
        queues_p99_ms=answers.get("queues", NOTHING).p99_ms,
        jobs_p99_ms=answers.get("jobs", NOTHING).p99_ms,
        idle_pass_ms=rests.pass_ms,
        idle_solves=rests.solves,
        restart_s=round(started, 2),
        memory_mb=memory,
        narrow_share=round(decided["narrow"] / max(1, sum(decided.values())), 3),
    )


def filled(folder: Path, sizes: Sizes, postgresql: str | None) -> SimulatedPlane:
    """A policy, and a store in which the cluster is as it shall be."""
    _say(f"filling {sizes.gpus} GPUs with {sizes.running} jobs, and {sizes.waiting} that wait")
    plane = SimulatedPlane(folder, make_policy(folder / "policy", sizes), postgresql)
    plane.state.tasks.mkdir(mode=0o700, parents=True)
    (folder / "tasks").mkdir(mode=0o700)
    store = open_store(postgresql or plane.state.database)
    fill(store, plane.policy, sizes)
    store.close()
    return plane


def _or_none(stage: str, measure: Callable[[], T]) -> T | None:
    """What came of a stage; None where it failed, so that the others are measured all the same."""
    _say(f"measuring {stage}")
    try:
        return measure()
    except (PlaneFailedError, TimeoutError, OSError) as error:
        _say(f"{stage}: {error}")
        return None


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    main()
