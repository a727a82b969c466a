"""`quorate simulate`: jobs of the past through the same solve as in production, under one or more policies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.analysis.backtest.rows import sections
from reconciler.cli.backtest_inputs import Arrivals, ClusterSource, arrivals_of, candidates_of
from reconciler.cli.inputs import unreadable
from reconciler.cli.optimiser import program_beside
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.cli.params import DurationParam, InstantParam, cluster_option
from reconciler.cli.tables import print_table
from solver.model.quantities import Duration, Instant
from solver.plan.reason import count
from solver.simulation.trace import ReplayedRound

if TYPE_CHECKING:
    from reconciler.analysis.backtest.backtest import PolicyCandidate
    from reconciler.analysis.backtest.figures import PolicyFigures, Simulation

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(short_help="Replay jobs of the past under one or more policies.")
@click.option("--trace", type=_FILE, help="The jobs: a trace as CSV, with the columns of the Philly trace.")
@click.option("--history", type=_FILE, help="The jobs: what `quorate history export` has written.")
@click.option(
    "--from", "start", type=InstantParam(), help="First instant of the replay; by default of a history its first job."
)
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), help="Length of the replay; by default all of a history."
)
@click.option(
    "--policies",
    multiple=True,
    type=_FOLDER,
    metavar="DIR",
    help="A policy repository, or its folder of policies; repeatable.",
)
@click.option("--repo", default=".", show_default=True, type=_FOLDER, help="The Git repository of the revisions.")
@click.option(
    "--revision",
    "revisions",
    multiple=True,
    metavar="REV",
    help="A revision of the policy: a branch, tag or commit; repeatable.",
)
@cluster_option
@click.option(
    "--inventory", type=_FOLDER, help="The repository with the cluster on which every policy is tried, not its own."
)
@click.option(
    "--snapshot", type=_FILE, help="The snapshot with the nodes on which every policy is tried, not its own inventory."
)
@click.option(
    "--as-it-was",
    is_flag=True,
    help="First of all what really happened, as far as the --history says it, to compare with.",
)
@click.option(
    "--cadence",
    default="30s",
    show_default=True,
    type=DurationParam(),
    help="At most one round per this span of simulated time.",
)
@click.option("--greedy", is_flag=True, help="Without the integer program, to compare.")
@click.option(
    "--no-eta", is_flag=True, help="Tell no job when it might start: faster, and nothing to hold against what happened."
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a report with plots to a file too."
)
@output_option("text", "json")
def simulate(
    trace: Path | None,
    history: Path | None,
    start: Instant | None,
    days: float | None,
    policies: tuple[Path, ...],
    repo: Path,
    revisions: tuple[str, ...],
    cluster: str | None,
    inventory: Path | None,
    snapshot: Path | None,
    as_it_was: bool,
    cadence: Duration,
    greedy: bool,
    no_eta: bool,
    html: Path | None,
    output: str,
) -> None:
    """Replay real arrivals and say how long jobs waited, what was used and lost, and how fairly, under each policy.

    Policies are compared with the first, or with what really happened. The cluster is the inventory beside each; priority
    classes and solver settings are the policy's too. A queue of the jobs that a policy does not have gets an equal share under
    one root, which is said.
    """
    candidates = candidates_of(policies, repo, revisions, ClusterSource(inventory, snapshot), cluster)
    past = arrivals_of(trace, history, start, days)
    first = _as_it_was(past, candidates[0], cadence) if as_it_was else ()
    found = _tried(candidates, past, cadence, first, greedy=greedy, forecasts=not no_eta)
    if html:
        _write_page(html, found)
    if output == "json":
        print_json(found)
    else:
        _print(found)


def _as_it_was(past: Arrivals, beside: PolicyCandidate, cadence: Duration) -> tuple[PolicyFigures]:
    if past.record is None:
        raise click.UsageError("--as-it-was is for --history: a trace does not say what became of its jobs")
    if past.end > past.record.until:
        message = f"it is not known what happened until {past.end}: the record ends at {past.record.until}"
        raise CommandFailedError(message, place=past.source, fix="Choose fewer --days, or leave them out.")
    return (past.record.figures(beside, cadence),)


def _write_page(path: Path, found: Simulation) -> None:
    from reconciler.analysis.backtest.page import page

    try:
        path.write_text(page(found), encoding="utf-8")
    except OSError as error:
        raise unreadable(error, path) from error


def _tried(
    candidates: list[PolicyCandidate],
    past: Arrivals,
    cadence: Duration,
    first: tuple[PolicyFigures, ...],
    *,
    greedy: bool,
    forecasts: bool,
) -> Simulation:
    """`first`: figures that stand before those of the policies."""
    from reconciler.analysis.backtest.backtest import Backtest
    from reconciler.analysis.backtest.figures import Simulation

    for note in past.notes:
        click.echo(f"note: {printable(note)}", err=True)
    for figures in first:
        _say_notes(figures)
    found = [*first]
    with nullcontext() if greedy else program_beside() as optimiser:
        backtest = Backtest(past.jobs, past.start, past.end, cadence, optimiser, forecasts)
        for candidate in candidates:
            figures = backtest.under(candidate, lambda name, rounds: _with_progress(name, rounds, past))
            _say_notes(figures)
            found.append(figures)
    return Simulation(past.source, past.start, past.end, cadence, past.notes, tuple(found))


def _say_notes(figures: PolicyFigures) -> None:
    for note in figures.notes:
        click.echo(f"note: {printable(figures.name)}: {printable(note)}", err=True)


def _with_progress(name: str, rounds: Iterator[ReplayedRound], past: Arrivals) -> Iterator[ReplayedRound]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(printable(name), total=int(past.end - past.start))
        for decided in rounds:
            waiting = len(decided.snapshot.pending) - len(decided.plan.steps)
            told = f"{printable(name)}: {decided.snapshot.time}, {waiting} waiting"
            progress.update(task, completed=decided.snapshot.time - past.start, description=told)
            yield decided
        progress.update(task, completed=int(past.end - past.start))


def _print(found: Simulation) -> None:
    jobs = count(found.policies[0].jobs, "job")
    click.echo(f"{found.start} to {found.end}, {jobs} of {printable(found.source)}")
    names = [printable(policy.name) for policy in found.policies]
    for section in sections(found):
        click.echo()
        print_table([section.title, *names], ([row.label, *map(str, row.cells)] for row in section.rows), right=names)
