"""How fast a cluster is scheduled: `python -m hack.bench_kubernetes --case all -o json`; the table is in docs/performance.md."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from hack.kubernetes import bench_binds, bench_claims
from hack.kubernetes.bench_beside import beside
from hack.kubernetes.bench_contenders import KUBE_SCHEDULER, quorate
from hack.kubernetes.bench_loads import CASES
from hack.kubernetes.bench_rounds import measured
from hack.kubernetes.cluster import running
from hack.kubernetes.components import found, place

ALL = ("bind-loop", *CASES, "mig-claims")


@click.command()
@click.option("--case", "wanted", type=click.Choice([*ALL, "all"]), default="all", show_default=True)
@click.option("--small", default=1, show_default=True, help="Divide the size of each case by so much.")
@click.option("--beside", "is_beside", is_flag=True, help="kube-scheduler too, after each case of Quorate's.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(wanted: str, small: int, *, is_beside: bool, output: str) -> None:
    """Each case on an API server of its own; a line, or a JSON document, for each as it ends."""
    if is_beside:
        found(place(), (KUBE_SCHEDULER,))
    for case in ALL if wanted == "all" else [wanted]:
        click.echo(f"{case} ...", err=True)
        figures = _figures(case, small)
        others = {"beside": beside(case, small)} if is_beside else {}
        if output == "json":
            click.echo(json.dumps({**figures, **others}))
        else:
            for line in _lines(figures, **others):
                click.echo(line)


def _lines(figures: Mapping[str, object], beside: Mapping[str, object] | None = None) -> Iterator[str]:
    yield "  ".join(f"{name} {value}" for name, value in figures.items())
    for limit, of in (beside or {}).items():
        told = "  ".join(f"{name} {value}" for name, value in of.items()) if isinstance(of, dict) else of
        yield f"  {KUBE_SCHEDULER}, {limit}: {told}"


def _figures(case: str, small: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with running(found(place()), folder, audited=False) as cluster:
            if case == "bind-loop":
                return bench_binds.report(asyncio.run(bench_binds.measured(cluster, 2_000 // small, [1, 8], 3)))
            if case == "mig-claims":
                return asyncio.run(bench_claims.measured(cluster, bench_claims.Case().smaller(small)))._asdict()
            return asyncio.run(measured(case, quorate(), cluster, folder, small))._asdict()


if __name__ == "__main__":
    main()
