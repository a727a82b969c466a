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
@click.option("--path", "paths", multiple=True, default=("/v1/watch", "/live"), show_default=True)
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
    """Report CPU milliseconds a second."""
    with tempfile.TemporaryDirectory() as name:
        plane = filled(Path(name), Sizes(gpus, live_jobs, waiting), None)
        try:
            plane.start(limit_s)
            quiet(plane, limit_s)
            for _ in range(times):
                click.echo(f"{'nobody watches':22} {cost_ms(plane, for_s):6.1f} ms/s")
                for path in paths:
                    with watched(plane, watchers, path):
                        time.sleep(1)  # What opening them costs is not counted.
                        click.echo(f"{watchers:3} watch {path:12} {cost_ms(plane, for_s):6.1f} ms/s")
        finally:
            plane.stop()


def cost_ms(plane: SimulatedPlane, for_s: float) -> float:
    """CPU milliseconds in a second, over so many."""
    cpu_s = plane.cpu_s()
    time.sleep(for_s)
    return 1_000 * (plane.cpu_s() - cpu_s) / for_s


if __name__ == "__main__":
    main()
