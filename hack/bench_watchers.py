"""What open streams cost a control plane in which nothing happens: `python -m hack.bench_watchers --path /live`.

A real `quorate run` over the simulated backend. CPU seconds of its processes, with nobody who watches and with some, in turn.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from hack.bench_control_plane import filled
from hack.control_plane.plane import SimulatedPlane
from hack.control_plane.stages import quiet, watched
from hack.control_plane.world import Sizes


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--gpus", type=click.IntRange(min=160), default=4_000, show_default=True)
@click.option("--live-jobs", type=click.IntRange(min=20), default=30_000, show_default=True, help="Waiting ones, too.")
@click.option("--waiting", type=click.IntRange(min=0), default=29_500, show_default=True)
@click.option("--watchers", type=click.IntRange(min=1, max=100), default=50, show_default=True)
@click.option("--path", "paths", multiple=True, default=("/v1/watch", "/live", "/live?map=1"), show_default=True)
@click.option("--for-s", type=click.FloatRange(min=1), default=30, show_default=True, help="Each time.")
@click.option("--times", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--limit-s", type=click.FloatRange(min=1), default=600, show_default=True, help="Until nothing happens.")
def main(
    gpus: int,
    live_jobs: int,
    waiting: int,
    watchers: int,
    paths: tuple[str, ...],
    for_s: float,
    times: int,
    limit_s: float,
) -> None:
    """Report CPU milliseconds a second. Compare those with as many rounds."""
    with tempfile.TemporaryDirectory() as name:
        plane = filled(Path(name), Sizes(gpus, live_jobs, waiting), None)
        try:
            plane.start(limit_s)
            quiet(plane, limit_s)
            for _ in range(times):
                click.echo(f"{'nobody watches':25} {cost(plane, for_s)}")
                for path in paths:
                    with watched(plane, watchers, path):
                        time.sleep(1)  # What opening them costs is not counted.
                        click.echo(f"{watchers:3} watch {path:15} {cost(plane, for_s)}")
        finally:
            plane.stop()


def cost(plane: SimulatedPlane, for_s: float) -> str:
    """In words: also how many rounds were decided meanwhile, which is so now and then, whoever watches."""
    cpu_s, rounds = plane.cpu_s(), plane.passes()["solve"]
    time.sleep(for_s)
    spent_ms = 1_000 * (plane.cpu_s() - cpu_s) / for_s
    return f"{spent_ms:6.1f} ms/s, rounds decided: {plane.passes()['solve'] - rounds}"


if __name__ == "__main__":
    main()
