"""What it costs to hear of many agents: `python -m hack.bench_heartbeats --agents 12500 --every-s 5 -o json`.

Real WebSockets over TLS on loopback, each agent with a connection and a certificate of its own; the server on one core, the agents
in processes on the others. Connections are opened first, a few at a time; then beats are counted.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import click
import msgspec

from hack.heartbeats.beating import beat
from hack.heartbeats.figures import Figures, Served, quantile
from hack.heartbeats.listening import WORK, listen
from hack.heartbeats.world import Case, join_all
from reconciler.backends.baremetal.merge import LEASE

PROCESSES: Final = 4
SPAWN: Final = multiprocessing.get_context("spawn")


class AgentsLostError(Exception):
    """Connections broke during the run, so its figures are of fewer agents than it says."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--agents", type=click.IntRange(min=1), default=12_500, show_default=True)
@click.option(
    "--every-s", type=click.FloatRange(min=0.01), default=5.0, show_default=True, help="Between beats, on average."
)
@click.option(
    "--for-s", type=click.FloatRange(min=1), default=30.0, show_default=True, help="How long beats are counted."
)
@click.option("--ping-s", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Pings beside; 0: none.")
@click.option("--opening", type=click.IntRange(min=1), default=16, show_default=True, help="At once, in each process.")
@click.option("--busy", is_flag=True, help="Beside a thread of the server that computes, as a round does.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(agents: int, every_s: float, for_s: float, ping_s: float, opening: int, busy: bool, output: str) -> None:
    """Report beats a second, how late they were, and what they cost the server."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Case(Path(folder), agents, every_s, for_s, ping_s, opening, busy))
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found)))
        return
    for name, value in msgspec.to_builtins(found).items():
        click.echo(f"{name:24} {value}")


def measure(case: Case) -> Figures:
    """One run. Raises AgentsLostError."""
    join_all(case)
    cores = sorted(os.sched_getaffinity(0))
    own, others = cores[0], set(cores[1:]) or set(cores)
    with _process(listen, case, own) as server:
        port = server.recv()
        before = _served(server)
        shares = [range(first, case.agents, PROCESSES) for first in range(min(PROCESSES, case.agents))]
        with _agents(case, shares, port, others) as agents:
            connected, failures = map(sum, zip(*(each.recv() for each in agents), strict=True))
            opening = _served(server)
            # Until each has beaten once, they do not beat evenly; and who fell silent while all opened is let go by then.
            time.sleep(max(2 * case.every_s, LEASE / 1_000))
            for each in agents:
                each.send(True)
            _served(server, WORK if case.busy else True)
            time.sleep(case.for_s)
            steady = _served(server)
            _stop(agents)
        server.send(False)
    return _figures(case, (connected, failures), before, opening, steady)


def _figures(case: Case, opened: tuple[int, int], before: Served, opening: Served, steady: Served) -> Figures:
    late = sorted(steady.latencies_ms)
    connected, failures = opened
    return Figures(
        heartbeats_per_s=round(steady.beats / steady.seconds, 1),
        p50_ms=round(quantile(late, 0.5), 2),
        p99_ms=round(quantile(late, 0.99), 2),
        max_ms=round(late[-1] if late else 0.0, 2),
        connections=connected,
        openings_that_failed=failures,
        cpu_s_of_server=round(steady.cpu_s, 2),
        cores_of_server=round(steady.cpu_s / steady.seconds, 3),
        cpu_us_per_beat=round(1e6 * steady.cpu_s / max(1, steady.beats), 1),
        rss_mb=round(steady.rss_kb / 1024, 1),
        rss_kb_per_connection=round((steady.rss_kb - before.rss_kb) / connected, 1),
        opened_per_s=round(connected / opening.seconds, 1),
        cpu_ms_per_opening=round(1e3 * opening.cpu_s / connected, 2),
        seconds=round(steady.seconds, 1),
        every_s=case.every_s,
        ping_s=case.ping_s,
        work_cores=round(steady.work_s / steady.seconds, 3),
    )


def _served(server: Connection, asked: object = True) -> Served:
    server.send(asked)
    served: Served = server.recv()
    return served


@contextmanager
def _process(work: object, case: Case, core: int) -> Iterator[Connection]:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=work, args=(case, theirs, core))  # type: ignore[arg-type]  # a function
    process.start()
    try:
        yield ours
        process.join(30)
    finally:
        process.kill()


@contextmanager
def _agents(case: Case, shares: list[range], port: int, cores: set[int]) -> Iterator[list[Connection]]:
    pipes = [SPAWN.Pipe() for _ in shares]
    processes = [
        SPAWN.Process(target=beat, args=(case, share, port, theirs, cores))
        for share, (_, theirs) in zip(shares, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        yield [ours for ours, _ in pipes]
    finally:
        for process in processes:
            process.kill()


def _stop(agents: list[Connection]) -> None:
    for each in agents:
        each.send(False)
    lost = sum(each.recv() for each in agents)
    if lost:
        raise AgentsLostError(f"{lost} connections broke during the run")


if __name__ == "__main__":
    main()
