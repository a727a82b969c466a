"""What a back-test is made of: jobs of the past, and the policies and clusters that they are tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from reconciler.analysis.backtest.history_file import HistoryHead, RecordedJob
from reconciler.analysis.traces import TraceUnreadableError, read_philly
from reconciler.cli.connection import api_client
from reconciler.cli.inputs import read_policies, read_policies_at, read_snapshot_file, unreadable
from reconciler.cli.output import CommandFailedError, printable
from reconciler.cli.status_line import busy
from solver.model.cluster import Node
from solver.model.quantities import Instant
from solver.plan.reason import count
from solver.simulation.trace import TraceJob

if TYPE_CHECKING:
    from reconciler.analysis.backtest.actuals import Actuals
    from reconciler.analysis.backtest.backtest import PolicyCandidate

Read = TypeVar("Read")

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Arrivals:
    """The jobs of a time that are replayed, and what a history says became of them; `record` None: they are from a trace."""

    source: str
    jobs: tuple[TraceJob, ...]
    start: Instant
    end: Instant
    notes: tuple[str, ...] = ()
    record: Actuals | None = None


def candidates_of(
    policies: tuple[Path, ...], repo: Path, revisions: tuple[str, ...], inventory: ClusterSource, cluster: str | None
) -> list[PolicyCandidate]:
    """Folders first, then revisions, each in the order in which they were named."""
    from reconciler.analysis.backtest.backtest import PolicyCandidate

    if not policies and not revisions:
        raise click.UsageError("name at least one policy, with --policies or --revision")
    found = []
    for path in policies:
        compiled = read_policies(path, cluster)
        found.append(PolicyCandidate(str(path), compiled.policy, compiled.nodes))
    for revision in revisions:
        commit, compiled = read_policies_at(repo, revision, cluster)
        found.append(PolicyCandidate(revision, compiled.policy, compiled.nodes, commit))
    names = [candidate.name for candidate in found]
    if len(set(names)) < len(names):
        raise click.UsageError("a policy is named twice")
    nodes = inventory.nodes(cluster)
    if nodes is not None:
        found = [replace(candidate, nodes=nodes) for candidate in found]
    for candidate in found:
        if not any(node.gpus for node in candidate.nodes):
            fix = "Add NodePools to cluster-state/, or name another --inventory or --snapshot."
            place = str(inventory.folder or inventory.snapshot or candidate.name)
            raise CommandFailedError("no GPUs are declared", place=place, fix=fix)
    return found


@dataclass(frozen=True)
class ClusterSource:
    """The cluster that all policies are tried on, if it is not each one's own: of a repository, a snapshot or a server."""

    folder: Path | None
    snapshot: Path | None
    reported: tuple[Node, ...] | None = None

    def nodes(self, cluster: str | None) -> tuple[Node, ...] | None:
        """None: each policy's own. Raises click.UsageError, CommandFailedError."""
        if self.folder and self.snapshot:
            raise click.UsageError("--inventory and --snapshot both name a cluster. Leave one of them out.")
        if self.folder:
            return read_policies(self.folder, cluster).nodes
        if self.snapshot is None:
            return self.reported
        nodes = read_snapshot_file(self.snapshot).nodes
        closed = sum(bool(node.gpus) and (node.cordoned or not node.ready) for node in nodes)
        if closed:
            said = f"{count(closed, 'node')} with GPUs cordoned or not ready in it, where nothing can start"
            click.echo(f"note: {printable(str(self.snapshot))}: {said}", err=True)
        return nodes


def arrivals_of(trace: Path | None, history: Path | None, start: Instant | None, days: float | None) -> Arrivals:
    """Raises click.UsageError where it is not clear what is meant, CommandFailedError where there is nothing."""
    if trace and not history:
        if start is None or days is None:
            raise click.UsageError("--trace needs --from and --days")
        end = start.after(round(days * DAY_MS))
        jobs = _readable(trace, lambda: read_philly(trace, start, end))
        past = Arrivals(trace.name, jobs, start, end)
    elif history and not trace:
        past = _recorded(history, start, days)
    else:
        raise click.UsageError("name the jobs with one of --trace and --history")
    if not past.jobs:
        raise CommandFailedError(
            f"no jobs from {past.start} to {past.end}", place=str(trace or history), fix="Choose other days."
        )
    return past


def arrivals_from_server(
    server: str | None, start: Instant | None, days: float | None
) -> tuple[Arrivals, tuple[Node, ...]]:
    """What a server has on record of its jobs, and its nodes. Raises CommandFailedError."""
    with api_client(server) as client, busy("reading the history"):
        pages = list(client.past.pages())
        nodes = client.snapshot().nodes
    place = server or "the server"
    jobs = tuple({job.name: job for page in pages for job in page.items}.values())
    past = _since("the server's jobs", place, HistoryHead(pages[0].at), jobs, start, days)
    if not past.jobs:
        raise CommandFailedError(f"no jobs from {past.start} to {past.end}", place=place, fix="Choose other days.")
    return past, nodes


def _recorded(path: Path, start: Instant | None, days: float | None) -> Arrivals:
    from reconciler.analysis.backtest.past import read_recorded

    head, recorded = _readable(path, lambda: read_recorded(path))
    return _since(path.name, str(path), head, recorded, start, days)


def _since(
    source: str,
    place: str,
    head: HistoryHead,
    recorded: tuple[RecordedJob, ...],
    start: Instant | None,
    days: float | None,
) -> Arrivals:
    from reconciler.analysis.backtest.actuals import Actuals
    from reconciler.analysis.backtest.past import replayable

    past = replayable(head, recorded)
    if not past.jobs:
        fix = "; ".join(past.notes) or "Nothing was ever submitted, or you may see none of it."
        raise CommandFailedError("there is no job that can be replayed", place=place, fix=fix)
    begin = start if start is not None else past.jobs[0].job.submitted_at
    end = begin.after(round(days * DAY_MS)) if days is not None else past.until
    if end <= begin:
        raise CommandFailedError(f"nothing from {begin} to {end}", place=place, fix="Choose other days.")
    jobs = tuple(one for one in past.jobs if begin <= one.job.submitted_at < end)
    record = Actuals({job.name: job for job in recorded}, jobs, begin, end, past.until)
    return Arrivals(source, jobs, begin, end, past.notes, record)


def _readable(path: Path, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except TraceUnreadableError as error:
        raise CommandFailedError(str(error), fix="See docs/simulate.md for what such a file looks like.") from error
    except OSError as error:
        raise unreadable(error, path) from error
