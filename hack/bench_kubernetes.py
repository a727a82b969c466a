"""How fast a cluster is scheduled: `python -m hack.bench_kubernetes --case all -o json`; the table is in docs/performance.md."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import click

from hack.kubernetes import bench_binds, bench_claims
from hack.kubernetes.bench_loads import CASES
from hack.kubernetes.bench_rounds import measured
from hack.kubernetes.cluster import running
from hack.kubernetes.components import found, place

ALL = ("bind-loop", *CASES, "mig-claims")


@click.command()
@click.option("--case", "wanted", type=click.Choice([*ALL, "all"]), default="all", show_default=True)
@click.option("--small", default=1, show_default=True, help="Divide the size of each case by so much.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(wanted: str, small: int, output: str) -> None:
    """Each case on an API server of its own; a line, or a JSON document, for each as it ends."""
    for case in ALL if wanted == "all" else [wanted]:
        click.echo(f"{case} ...", err=True)
        figures = _figures(case, small)
        if output == "json":
            click.echo(json.dumps(figures))
        else:
            click.echo("  ".join(f"{name} {value}" for name, value in figures.items()))


def _figures(case: str, small: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with running(found(place()), folder, audited=False) as cluster:
            if case == "bind-loop":
                return bench_binds.report(asyncio.run(bench_binds.measured(cluster, 2_000 // small, [1, 8], 3)))
            if case == "mig-claims":
                claimed = bench_claims.Case(nodes=-(-100 // small), pods=1_000 // small)
                return asyncio.run(bench_claims.measured(cluster, claimed))._asdict()
            return asyncio.run(measured(case, cluster, folder, small))._asdict()


if __name__ == "__main__":
    main()
