"""`quorate simulate`: jobs of the past through the same solve as in production, under one or more policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from reconciler.backtest.rows import sections
from reconciler.cli.inputs import read_policies, read_policies_at, unreadable
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.cli.params import DurationParam, InstantParam, cluster_option
from reconciler.cli.tables import print_table
from reconciler.traces import TraceUnreadableError, read_philly
from solver.plan.reason import count
from solver.traced import Round, TraceJob
from solver.world.quantities import Duration, Instant

if TYPE_CHECKING:
    from reconciler.backtest.compare import Candidate
    from reconciler.backtest.figures import Simulation

Read = TypeVar("Read")

DAY_MS = 86_400_000

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
@click.option("--inventory", type=_FOLDER, help="A repository whose cluster every policy is tried on, not its own.")
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
    cadence: Duration,
    greedy: bool,
    no_eta: bool,
    html: Path | None,
    output: str,
) -> None:
    """Replay real arrivals and say how long jobs waited, what was used and lost, and how fairly, under each policy.

    Policies are compared with the first. The cluster is the inventory beside each; priority classes and solver settings are
    the policy's too. A queue of the jobs that a policy does not have gets an equal share under one root, which is said.
    """
    candidates = _candidates(policies, repo, revisions, inventory, cluster)
    past = _past(trace, history, start, days)
    found = _tried(candidates, past, cadence, greedy=greedy, forecasts=not no_eta)
    if html:
        from reconciler.backtest.page import page

        try:
            html.write_text(page(found), encoding="utf-8")
        except OSError as error:
            raise unreadable(error, html) from error
    if output == "json":
        print_json(found)
    else:
        _print(found)


@dataclass(frozen=True)
class _Past:
    source: str
    jobs: tuple[TraceJob, ...]
    start: Instant
    end: Instant
    notes: tuple[str, ...] = ()


def _candidates(
    policies: tuple[Path, ...], repo: Path, revisions: tuple[str, ...], inventory: Path | None, cluster: str | None
) -> list[Candidate]:
    """Folders first, then revisions, each in the order in which they were named."""
    from reconciler.backtest.compare import Candidate

    if not policies and not revisions:
        raise click.UsageError("name at least one policy, with --policies or --revision")
    found = []
    for path in policies:
        compiled = read_policies(path, cluster)
        found.append(Candidate(str(path), compiled.policy, compiled.nodes))
    for revision in revisions:
        commit, compiled = read_policies_at(repo, revision, cluster)
        found.append(Candidate(revision, compiled.policy, compiled.nodes, commit))
    names = [candidate.name for candidate in found]
    if len(set(names)) < len(names):
        raise click.UsageError("a policy is named twice")
    if inventory:
        nodes = read_policies(inventory, cluster).nodes
        found = [replace(candidate, nodes=nodes) for candidate in found]
    for candidate in found:
        if not any(node.gpus for node in candidate.nodes):
            fix = "Add NodePools to cluster-state/, or name another --inventory."
            raise CommandFailedError("no GPUs are declared", place=str(inventory or candidate.name), fix=fix)
    return found


def _past(trace: Path | None, history: Path | None, start: Instant | None, days: float | None) -> _Past:
    if trace and not history:
        if start is None or days is None:
            raise click.UsageError("--trace needs --from and --days")
        end = start.after(round(days * DAY_MS))
        jobs = _readable(trace, lambda: read_philly(trace, start, end))
        past = _Past(trace.name, jobs, start, end)
    elif history and not trace:
        past = _recorded(history, start, days)
    else:
        raise click.UsageError("name the jobs with one of --trace and --history")
    if not past.jobs:
        raise CommandFailedError(
            f"no jobs from {past.start} to {past.end}", place=str(trace or history), fix="Choose other days."
        )
    return past


def _recorded(path: Path, start: Instant | None, days: float | None) -> _Past:
    from reconciler.backtest.past import read_history

    past = _readable(path, lambda: read_history(path))
    begin = start if start is not None else next((one.job.submitted_at for one in past.jobs), past.until)
    end = begin.after(round(days * DAY_MS)) if days is not None else past.until
    if end <= begin:
        raise CommandFailedError(f"nothing from {begin} to {end}", place=str(path), fix="Choose other days.")
    jobs = tuple(one for one in past.jobs if begin <= one.job.submitted_at < end)
    return _Past(path.name, jobs, begin, end, past.notes)


def _readable(path: Path, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except TraceUnreadableError as error:
        raise CommandFailedError(str(error), fix="See docs/simulate.md for what such a file looks like.") from error
    except OSError as error:
        raise unreadable(error, path) from error


def _tried(candidates: list[Candidate], past: _Past, cadence: Duration, *, greedy: bool, forecasts: bool) -> Simulation:
    from reconciler.backtest.compare import Backtest
    from reconciler.backtest.figures import Simulation
    from solver.program.highs import optimise

    for note in past.notes:
        click.echo(f"note: {printable(note)}", err=True)
    backtest = Backtest(past.jobs, past.start, past.end, cadence, None if greedy else optimise, forecasts)
    found = []
    for candidate in candidates:
        found.append(backtest.under(candidate, lambda name, rounds: _with_progress(name, rounds, past)))
        for note in found[-1].notes:
            click.echo(f"note: {printable(candidate.name)}: {printable(note)}", err=True)
    return Simulation(past.source, past.start, past.end, cadence, past.notes, tuple(found))


def _with_progress(name: str, rounds: Iterator[Round], past: _Past) -> Iterator[Round]:
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
