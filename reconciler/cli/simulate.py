"""`quorate simulate`: a trace of real arrivals through the same solve as in production."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import click
import msgspec

from reconciler.cli.inputs import read_policies, unreadable
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.params import cluster_option
from reconciler.cli.tables import print_table
from reconciler.cli.times import span
from reconciler.documents.repository import Compiled
from reconciler.replayed import QueueWaits, RoundTally, SimulationReport, report_of
from reconciler.traces import TraceUnreadableError, read_philly
from solver.rules.policy import Policy, Queue, policy_of
from solver.rules.tree import QueueTree
from solver.simulate import Replay
from solver.traced import Round, TraceJob
from solver.world.quantities import Duration, Instant

DAY_MS = 86_400_000

_HEADINGS = ("QUEUE", "JOBS", "STARTED", "GPU-HOURS", "MEAN WAIT", "P50", "P90", "MAX", "EVICTED")


class InstantParam(click.ParamType[Instant]):
    """A date (midnight UTC) or an RFC 3339 time."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Instant:
        """Read it; a usage error where it is neither."""
        text = str(value)
        try:
            return Instant.parse(text if "T" in text else f"{text}T00:00:00Z")
        except ValueError:
            self.fail(f"{text!r} is no date such as 2017-10-09 and no time such as 2017-10-09T06:00:00Z", param, ctx)


@click.command(short_help="Replay a trace of jobs under a policy.")
@click.option(
    "--trace",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The Philly trace as CSV.",
)
@click.option("--from", "start", required=True, type=InstantParam(), help="First instant of the replay.")
@click.option("--days", required=True, type=click.FloatRange(min=0, min_open=True), help="Length of the replay.")
@click.option(
    "--policies",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A policy repository, or its folder of policies.",
)
@cluster_option
@click.option("--cadence", default="30s", show_default=True, help="At most one round per this span of simulated time.")
@click.option("--greedy", is_flag=True, help="Without the integer program, to compare.")
@output_option("text", "json")
def simulate(
    trace: Path,
    start: Instant,
    days: float,
    policies: Path,
    cluster: str | None,
    cadence: str,
    greedy: bool,
    output: str,
) -> None:
    """Replay real arrivals on the declared cluster and say how long each queue waited.

    The cluster is the inventory beside the policies. A queue of the trace that the policy does not have gets an equal
    share under one root, which is said; priority classes and solver settings are the policy's.
    """
    compiled = read_policies(policies, cluster)
    if not any(node.gpus for node in compiled.nodes):
        raise CommandFailedError("no GPUs are declared", place=str(policies), fix="Add NodePools to cluster-state/.")
    end = start.after(round(days * DAY_MS))
    jobs = _read(trace, start, end)
    policy = _with_queues_of(jobs, compiled)
    from solver.program.highs import optimise

    # Nobody reads in a replay when a job might start, and it changes no decision.
    scheduling = msgspec.structs.replace(policy.scheduling, estimated_jobs=0)
    policy = msgspec.structs.replace(policy, scheduling=scheduling)
    replay = Replay(compiled.nodes, policy, None if greedy else optimise, _duration(cadence))
    report = report_of(replay, jobs, start, end, _run(replay, jobs, start, end))
    if output == "json":
        print_json(report)
    else:
        _print(report)


def _read(trace: Path, start: Instant, end: Instant) -> tuple[TraceJob, ...]:
    try:
        jobs = read_philly(trace, start, end)
    except TraceUnreadableError as error:
        raise CommandFailedError(str(error), fix="See docs/simulate.md for the columns.") from error
    except OSError as error:
        raise unreadable(error, trace) from error
    if not jobs:
        raise CommandFailedError(f"no jobs from {start} to {end}", place=str(trace), fix="Choose other days.")
    return jobs


def _duration(text: str) -> Duration:
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cadence") from error


def _with_queues_of(jobs: Sequence[TraceJob], compiled: Compiled) -> Policy:
    """The policy, with the trace's queues in it."""
    tree = QueueTree.of(compiled.policy)
    wanted = {job.job.spec.queue for job in jobs}
    missing = sorted(queue for queue in wanted if not tree.is_leaf(queue))
    if not missing:
        return compiled.policy
    if len(missing) == len(wanted):
        said = f"none of the trace's {len(wanted)} queues is in the policy: they share the cluster equally, without its quota tree"
        queues: tuple[Queue, ...] = ()
    else:
        said = f"not in the policy, so added beside its roots without a guarantee of their own: {', '.join(missing)}"
        queues = compiled.policy.queues
    click.echo(f"note: {said}", err=True)
    added = tuple(Queue(queue) for queue in missing)
    known = compiled.policy
    return policy_of((*queues, *added), known.priority_classes, known.scheduling, known.sharing, known.mig)


def _run(replay: Replay, jobs: Sequence[TraceJob], start: Instant, end: Instant) -> RoundTally:
    tally = RoundTally()
    before = perf_counter()
    for decided in _with_progress(replay.rounds(jobs, end), start, end):
        now = perf_counter()
        tally.count(decided.plan, 1000 * (now - before))
        before = now
    return tally


def _with_progress(rounds: Iterator[Round], start: Instant, end: Instant) -> Iterator[Round]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("replaying", total=int(end - start))
        for decided in rounds:
            waiting = len(decided.snapshot.pending) - len(decided.plan.steps)
            progress.update(
                task, completed=decided.snapshot.time - start, description=f"{decided.snapshot.time}, {waiting} waiting"
            )
            yield decided
        progress.update(task, completed=int(end - start))


def _print(report: SimulationReport) -> None:
    click.echo(f"{report.start} to {report.end}")
    print_table(_HEADINGS, map(_row, report.queues), right=_HEADINGS[1:])
    stages = ", ".join(f"{count} by {stage}" for stage, count in report.rounds_by_stage.items())
    click.echo(
        f"{report.started} of {report.jobs} jobs started; {report.utilisation:.1%} of {report.gpus} GPUs in use on average"
    )
    click.echo(f"{report.rounds} rounds ({stages}), {report.rounds_within_gap} proven or within the gap in every layer")
    click.echo(f"a round took {report.round_ms_p50:.0f} ms at the median, {report.round_ms_p99:.0f} ms at p99")


def _row(queue: QueueWaits) -> list[str]:
    waits = (span(1000 * round(s)) for s in (queue.wait_mean_s, queue.wait_p50_s, queue.wait_p90_s, queue.wait_max_s))
    return [queue.queue, str(queue.jobs), str(queue.started), f"{queue.gpu_hours:,.0f}", *waits, str(queue.evictions)]
