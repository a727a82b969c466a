"""What rounds serve inside guarantees, and what is lost for it: `python -m hack.bench_quality --case 512 -o json`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from hack.rounds.quality import CASES, Chooser, ClusterQuality, LaterQuality, QualityCase, added, measure
from reconciler.control.garbage_collection import seldom

Wanted = tuple[str, QualityCase, int, float, Chooser]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "name", type=click.Choice([*CASES]), default="512", show_default=True)
@click.option("--seeds", type=click.IntRange(min=1), help="Clusters of each fullness; 5 of 512 GPUs, 2 of 4k, else 1.")
@click.option("--rounds", type=click.IntRange(min=0), default=30, show_default=True, help="Rounds after the first.")
@click.option(
    "--smaller", "divisor", type=click.IntRange(min=1), default=1, show_default=True, help="Divide sizes by so much."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(name: str, seeds: int | None, rounds: int, divisor: int, output: str) -> None:
    """Report which GPUs seeded clusters serve, against bounds, and which work is lost for it, in first and in later rounds.

    Where a program chooses victims, the same clusters are decided by search as well. Seconds are CPU time of this process.
    """
    seldom()  # as `quorate run` does
    console = Console(stderr=True)
    wanted = list(_wanted(name, CASES[name].smaller(divisor), seeds))
    found = [
        measure(case_name, case, seed, full, chooser, rounds)
        for case_name, case, seed, full, chooser in track(
            wanted, "Deciding rounds", console=console, disable=not console.is_terminal
        )
    ]
    if output == "json":
        click.echo(json.dumps([msgspec.to_builtins(each) for each in found], indent=2))
        return
    groups = defaultdict[Chooser, list[ClusterQuality]](list)
    for each in found:
        groups[each.chooser].append(each)
    _show(groups)


def _wanted(name: str, case: QualityCase, seeds: int | None) -> Iterator[Wanted]:
    for chooser in case.choosers:
        for full in case.full:
            for seed in range(1, (seeds or case.seeds) + 1):
                yield name, case, seed, full, chooser


def _show(groups: Mapping[Chooser, Sequence[ClusterQuality]]) -> None:
    """Sums over the clusters of a chooser, each figure in a row."""
    firsts = {chooser: _of_first(known) for chooser, known in groups.items()}
    laters = {chooser: _of_later([each.later for each in known if each.later]) for chooser, known in groups.items()}
    for title, columns in (("First rounds", firsts), ("Later rounds", laters)):
        names = dict.fromkeys(name for figures in columns.values() for name in figures)
        table = Table(Column(title), *(f"victims by {chooser}" for chooser in columns), box=box.SIMPLE)
        for name in names:
            table.add_row(name, *(figures.get(name, "") for figures in columns.values()))
        if names:
            Console().print(table)


def _of_first(known: Sequence[ClusterQuality]) -> dict[str, str]:
    firsts = [each.first for each in known]
    values, bounds = defaultdict[str, float](float), defaultdict[str, float](float)
    for layer in (layer for each in firsts for layer in each.layers):
        values[layer.name] += layer.value
        bounds[layer.name] += layer.bound
    return {
        "clusters": str(len(known)),
        **{f"GPUs {name}, bound": f"{value:,.0f}, {bounds[name]:,.0f}" for name, value in values.items()},
        "GPU-hours lost for guarantees": f"{sum(each.lost_entitled_gpu_h for each in firsts):,.0f}",
        "GPU-hours lost for fair shares": f"{sum(each.lost_fair_gpu_h for each in firsts):,.0f}",
        "jobs evicted": str(sum(each.evicted for each in firsts)),
        "jobs shrunk": str(sum(each.shrunk for each in firsts)),
        "jobs moved": str(sum(each.moved for each in firsts)),
        "GPUs in use": f"{sum(each.gpus_in_use for each in firsts):,.0f}",
        "CPU seconds": f"{sum(each.cpu_s for each in firsts):.1f}",
        "rules broken": str(sum(each.violations for each in firsts)),
        **{f"alarm: {rule}": str(count) for rule, count in added(each.findings for each in firsts).items()},
    }


def _of_later(later: Sequence[LaterQuality]) -> dict[str, str]:
    if not later:
        return {}
    rests = [each.quiet_rounds for each in later if each.quiet_rounds is not None]
    return {
        "rounds": str(sum(each.rounds for each in later)),
        "GPU-hours lost": f"{sum(each.lost_gpu_h for each in later):,.0f}",
        "evictions": str(sum(each.evictions for each in later)),
        "different jobs evicted": str(sum(each.jobs_evicted for each in later)),
        "most evictions of one job": str(max(each.most_of_one_job for each in later)),
        "GPUs in use, mean": f"{sum(each.gpus_in_use for each in later):,.0f}",
        "CPU seconds of a round, median": f"{sum(each.cpu_p50_s for each in later) / len(later):.2f}",
        "rules broken": str(sum(each.violations for each in later)),
        **{f"alarm: {rule}": str(count) for rule, count in added(each.findings for each in later).items()},
        "worlds that come to rest": f"{len(rests)} of {len(later)}",
        "quiet rounds until then, most": str(max(rests, default="")),
        "evictions in quiet rounds": str(sum(each.quiet_evictions for each in later)),
        "of these of a job for the second time": str(sum(each.repeated for each in later)),
    }


if __name__ == "__main__":
    main()
