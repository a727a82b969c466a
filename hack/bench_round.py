"""How long rounds take, from snapshot to checked plan with devices: `python -m hack.bench_round --case 4k -o json`."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hack.rounds.cases import CASES, measure, of_snapshot, smaller
from hack.rounds.timing import Figures
from reconciler.documents.files import read_folder
from reconciler.documents.repository import read_repository
from reconciler.documents.snapshot import read_snapshot


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "wanted", type=click.Choice([*CASES, "all"]), default="4k", show_default=True)
@click.option(
    "--smaller", "divisor", type=click.IntRange(min=1), default=1, show_default=True, help="Divide sizes by so much."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--program-s",
    type=click.FloatRange(min=0),
    default=0,
    show_default=True,
    help="Seconds that the integer program may take, each time; 0: there is none, and the greedy answer stands.",
)
@click.option(
    "--snapshot", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A snapshot of your own."
)
@click.option("--policy", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Its policy repository.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    wanted: str, divisor: int, seed: int, program_s: float, snapshot: Path | None, policy: Path | None, output: str
) -> None:
    """Time rounds of large seeded clusters, or one of your own."""
    limit_s = program_s or None
    if (snapshot is None) != (policy is None):
        raise click.UsageError("--snapshot and --policy belong together: a round needs both.")
    if snapshot and policy:
        compiled = read_repository(read_folder(policy)).checked()
        found = [of_snapshot(read_snapshot(snapshot.read_bytes(), str(snapshot)), compiled.policy, seed, limit_s)]
    else:
        names = list(CASES) if wanted == "all" else [wanted]
        console = Console(stderr=True)
        found = [
            measure(name, smaller(CASES[name], divisor), seed, limit_s)
            for name in track(names, "Deciding rounds", console=console, disable=not console.is_terminal)
        ]
    if output == "json":
        click.echo(json.dumps([msgspec.to_builtins(known) for known in found], indent=2))
    else:
        _show(found)


def _show(found: list[Figures]) -> None:
    table = Table("case", "GPUs", "jobs", "solve", "check", "later p50", "p99", "memory", "decided", box=box.SIMPLE)
    for known in found:
        jobs, times = f"{known.running} + {known.pending}", [f"{known.solve_s:.2f} s", f"{known.check_s:.2f} s"]
        warm = ["" if value is None else f"{value:.2f} s" for value in (known.warm_p50_s, known.warm_p99_s)]
        decided = [f"{count} {kind}" for kind, count in known.steps.items()]
        decided += [f"{name} {value:g}" for name, value in known.more.items()]
        table.add_row(known.case, str(known.gpus), jobs, *times, *warm, f"{known.rss_mb} MB", "\n".join(decided))
    Console().print(table)


if __name__ == "__main__":
    main()
