"""`quorate get`: jobs as a table, those that have not ended first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, get_args

import click
import msgspec

from reconciler.api.group_payloads import GroupView, MemberView
from reconciler.api.payloads import JobList, JobView
from reconciler.cli.completion import job_names, queue_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.job_names import counts_of, find
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.phrases import class_of, gpus_of, nodes_of, standing, tasks_of, with_idleness
from reconciler.cli.tables import Listing, show, show_again
from reconciler.cli.times import local, span
from reconciler.client import Client
from reconciler.model.clock import SystemClock
from reconciler.model.job_record import TERMINAL, JobState
from reconciler.model.problem import did_you_mean
from solver.model.quantities import Instant
from solver.model.workload import Dependency
from solver.plan.reason import count

STATES: Final = get_args(JobState)
LIVE: Final = tuple(state for state in STATES if state not in TERMINAL)
ENDED: Final = tuple(state for state in STATES if state in TERMINAL)
ENDED_SHOWN: Final = 10
"""So that a job that ended just now is still found."""
_SPARE: Final = ("CLASS", "SUBMITTED", "ATTEMPT", "TASKS", "AGE", "GPUS", "QUEUE")


@click.command(short_help="List jobs.")
@click.argument("job", required=False, shell_complete=job_names)
@click.option(
    "-A", "--all", "ended_too", is_flag=True, help=f"All that have ended, too, and not the newest {ENDED_SHOWN} alone."
)
@click.option("--me", is_flag=True, help="Only jobs of the user whose token this is.")
@click.option("-u", "--user", help="Only jobs of this user.")
@click.option("--queue", shell_complete=queue_names, help="Only jobs of this queue and of those below it.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES), help="Only jobs in this state; repeatable."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1_000,
    show_default=True,
    help="Look at no more than this many of the newest jobs.",
)
@click.option("--expand", is_flag=True, help="Every element of an array on a line of its own.")
@click.option("-w", "--watch", is_flag=True, help="Show them anew every 2 seconds, until interrupted.")
@output_option("text", "wide", "json")
@server_option
def get(
    job: str | None,
    ended_too: bool,
    me: bool,
    user: str | None,
    queue: str | None,
    states: tuple[JobState, ...],
    limit: int,
    expand: bool,
    watch: bool,
    output: str,
    server: str | None,
) -> None:
    """List jobs that have not ended, the newest first, and below them the newest that have; or one JOB.

    A line is a job's queue, state and size, where it runs or how it ended. An array is one line that counts its elements; the name
    of a pipeline shows its jobs as a tree. `-o wide` adds its submitter and when it was submitted, its tasks, and every node.
    A narrow terminal goes without CLASS, AGE and GPUS.
    """
    if watch and (output == "json" or not sys.stdout.isatty()):
        raise click.UsageError("--watch is for a terminal: programs follow GET /v1/watch")
    if job and (queue or user or me or ended_too):
        raise click.UsageError("JOB names one: leave out --queue, --user, --me and --all")
    with api_client(server) as client:
        if queue:
            _require_queue(client, queue)
        named = client.who_am_i().user if me else user or ""
        asked = _Asked(job or "", named, queue or "", states, limit, ended_too, expand, output == "wide")
        if watch:
            show_again(lambda: _parts(client, asked, asked.found(client)))
            return
        found = asked.found(client)
        if output == "json":
            print_json(found if isinstance(found, GroupView) else JobList(items=found))
            return
        show(_parts(client, asked, found))


class _Asked(NamedTuple):
    """What is looked for, "" being any, and how it is shown."""

    job: str
    user: str
    queue: str
    states: tuple[JobState, ...]
    limit: int
    ended_too: bool
    expand: bool
    wide: bool

    def found(self, client: Client) -> GroupView | tuple[JobView, ...]:
        """The one that is named, or those that match: what is live, and below it what has ended."""
        if self.job:
            named = find(client, self.job)
            if isinstance(named, GroupView):
                return named
            return (named,) if not self.states or named.state in self.states else ()
        if self.states:
            return self._listed(client, self.states, self.limit)
        live = self._listed(client, LIVE, self.limit)
        left = self.limit - len(live)
        most = left if self.ended_too else min(left, ENDED_SHOWN)
        return (*live, *self._listed(client, ENDED, most)) if most else live

    def _listed(self, client: Client, states: Iterable[JobState], limit: int) -> tuple[JobView, ...]:
        states, found, cursor = tuple(states), list[JobView](), ""
        while True:
            page = client.jobs(limit - len(found), cursor, queue=self.queue, user=self.user, states=states)
            found += page.items
            if len(found) >= limit or not page.next:
                return tuple(found)
            cursor = page.next


def _parts(client: Client, asked: _Asked, found: GroupView | tuple[JobView, ...]) -> Iterator[str | Listing]:
    if isinstance(found, GroupView):
        yield from _group_parts(found, asked)
        return
    lines = found if asked.expand or asked.states or asked.job else tuple(_folded(found, client.group))
    yield _listing(lines, asked.wide) if lines else "no jobs"


def _group_parts(group: GroupView, asked: _Asked) -> Iterator[str | Listing]:
    """One array or pipeline."""
    limit = f", at most {group.max_running} at a time" if group.max_running else ""
    yield f"{group.name}: {group.kind} of {count(len(group.jobs), 'job')}{limit}: {counts_of(group)}"
    if asked.expand or asked.states:
        rows = [[job.name, job.state] for job in group.jobs if not asked.states or job.state in asked.states]
        yield Listing(("NAME", "STATE"), rows)
    elif group.kind == "pipeline":
        yield from _tree_of(group)


def _require_queue(client: Client, queue: str) -> None:
    known = {each.name for each in client.queues().items}
    if queue not in known:
        raise CommandFailedError(f"there is no queue {queue}", fix=did_you_mean(queue, known))


def _listing(jobs: Iterable[JobView | _Folded], wide: bool) -> Listing:
    now = SystemClock().now()
    headings = ["NAME", "QUEUE", "CLASS", "STATE", "GPUS", "AGE", "WHERE"]
    rows = [
        _folded_row(job, now, wide) if isinstance(job, _Folded) else _row(job, now - job.submitted_at, wide)
        for job in jobs
    ]
    if wide:
        headings += ["TASKS", "ATTEMPT", "USER", "SUBMITTED"]
    return Listing(headings, rows, right=("GPUS", "AGE", "TASKS", "ATTEMPT"), spare=_SPARE)


def _folded_row(array: _Folded, now: Instant, wide: bool) -> list[str]:
    """What all elements have in common is that of one."""
    one = array.element
    row = _row(msgspec.structs.replace(one, name=array.name, tasks=(), outcome=None), now - one.submitted_at, wide)
    row[3] = array.counts
    return row


def _row(job: JobView, age_ms: int, wide: bool) -> list[str]:
    spec = job.spec
    row = [job.name, spec.queue, class_of(spec), job.state_word, gpus_of(job), span(age_ms), standing(job)]
    if not wide:
        return row
    row[-1] = with_idleness(", ".join(nodes_of(job)), job) or standing(job)
    return [*row, tasks_of(job), str(job.attempt), job.user, local(job.submitted_at)]


class _Folded(NamedTuple):
    """An array, shown by one of its elements and by how many are in each state."""

    name: str
    element: JobView
    counts: str


def _folded(jobs: Iterable[JobView], group: Callable[[str], GroupView]) -> Iterator[JobView | _Folded]:
    """The jobs in their order, an array where its first element is; `group` is asked where not all elements are among them."""
    jobs = tuple(jobs)
    states: dict[str, Counter[str]] = {}
    for job in jobs:
        if job.array is not None:
            states.setdefault(job.array.id, Counter())[job.state] += 1
    for job in jobs:
        if job.array is None:
            yield job
        elif (counted := states.pop(job.array.id, None)) is not None:
            whole = counted.total() == job.array.count
            yield _Folded(job.array.id, job, _words(counted if whole else Counter(group(job.array.id).counts)))


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))


def _tree_of(view: GroupView) -> Iterator[str]:
    """Its lines. A job that waits for several stands below the last of them, and names the others."""
    nodes = _nodes_of_tree(view)
    parents = {name: _tree_parent(nodes, jobs[0].depends_on) for name, jobs in nodes.items()}

    def lines(parent: str, indent: str) -> Iterator[str]:
        children = [name for name in nodes if parents[name] == parent]
        for child in children:
            last = child == children[-1]
            branch = ("└─ " if last else "├─ ") if parent else ""
            yield f"{indent}{branch}{_tree_line(child, nodes[child])}"
            deeper = ("   " if last else "│  ") if parent else ""
            yield from lines(child, indent + deeper)

    return lines("", "")


def _nodes_of_tree(view: GroupView) -> dict[str, list[MemberView]]:
    """The jobs of the pipeline, an array as one."""
    nodes: dict[str, list[MemberView]] = {}
    for job in view.jobs:
        nodes.setdefault(job.array or job.name, []).append(job)
    return nodes


def _tree_parent(nodes: dict[str, list[MemberView]], depends_on: tuple[Dependency, ...]) -> str:
    """The last of the pipeline's own jobs that it waits for; "": none."""
    return next((each.job for each in reversed(depends_on) if each.job in nodes), "")


def _tree_line(name: str, jobs: list[MemberView]) -> str:
    states = Counter(job.state for job in jobs)
    state = jobs[0].state if len(jobs) == 1 else ", ".join(f"{number} {each}" for each, number in states.items())
    waits = ", ".join(map(str, jobs[0].depends_on))
    code = f" with exit code {jobs[0].code}" if len(jobs) == 1 and jobs[0].code and jobs[0].state == "failed" else ""
    return f"{name}  {state}{code}" + (f"  ({waits})" if waits else "")
