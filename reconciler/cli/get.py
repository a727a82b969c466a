"""`quorate get`: jobs as a table, newest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, get_args

import click
import msgspec

from reconciler.api.group_payloads import GroupView, MemberView
from reconciler.api.payloads import JobList, JobView, QueueView
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.job_names import counts_of, find
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.phrases import class_of, gpus_of, nodes_of, standing, with_idleness
from reconciler.cli.tables import print_table
from reconciler.cli.times import local, span
from reconciler.client import Client
from reconciler.model.clock import SystemClock
from reconciler.model.job_record import JobState
from reconciler.model.problem import did_you_mean
from solver.model.quantities import Instant
from solver.model.workload import Dependency
from solver.plan.reason import count

STATES = get_args(JobState)


@click.command(short_help="List jobs.")
@click.argument("job", required=False)
@click.option("--queue", help="Only jobs of this queue and of those below it.")
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
@output_option("text", "wide", "json")
@server_option
def get(
    job: str | None,
    queue: str | None,
    states: tuple[str, ...],
    limit: int,
    expand: bool,
    output: str,
    server: str | None,
) -> None:
    """List the newest jobs, or one JOB: its queue, state and size, where it runs or how it ended.

    An array is one line that counts its elements; the name of a pipeline shows its jobs as a tree. `-o wide` adds its
    submitter and when it was submitted, its tasks, and every node.
    """
    with api_client(server) as client:
        found = find(client, job) if job else None
        if isinstance(found, GroupView):
            _show(found, states, expand, output)
            return
        jobs = (found,) if found else client.jobs(limit).items
        if queue is not None:
            below = _with_those_below(client, queue)
            jobs = tuple(each for each in jobs if each.spec.queue in below)
        jobs = tuple(each for each in jobs if not states or each.state in states)
        folds = not (expand or states or found)
        lines = tuple(_folded(jobs, client.group)) if folds and output != "json" else jobs
    if output == "json":
        print_json(JobList(items=jobs))
    elif lines:
        _print(lines, wide=output == "wide")
    else:
        click.echo("no jobs")


def _show(group: GroupView, states: tuple[str, ...], expand: bool, output: str) -> None:
    """One array or pipeline."""
    if output == "json":
        print_json(group)
        return
    limit = f", at most {group.max_running} at a time" if group.max_running else ""
    click.echo(f"{group.name}: {group.kind} of {count(len(group.jobs), 'job')}{limit}: {counts_of(group)}")
    if expand or states:
        print_table(
            ("NAME", "STATE"), ([job.name, job.state] for job in group.jobs if not states or job.state in states)
        )
    elif group.kind == "pipeline":
        for line in _tree_of(group):
            click.echo(line)


def _with_those_below(client: Client, queue: str) -> set[str]:
    queues = client.queues().items
    known = {each.name for each in queues}
    if queue not in known:
        raise CommandFailedError(f"there is no queue {queue}", fix=did_you_mean(queue, known))
    return set(_subtree(queue, queues))


def _subtree(queue: str, queues: tuple[QueueView, ...]) -> Iterable[str]:
    yield queue
    for each in queues:
        if each.parent == queue:
            yield from _subtree(each.name, queues)


def _print(jobs: Iterable[JobView | _Folded], wide: bool) -> None:
    now = SystemClock().now()
    headings = ["NAME", "QUEUE", "CLASS", "STATE", "GPUS", "AGE", "WHERE"]
    rows = [
        _folded_row(job, now, wide) if isinstance(job, _Folded) else _row(job, now - job.submitted_at, wide)
        for job in jobs
    ]
    if wide:
        headings += ["TASKS", "ATTEMPT", "USER", "SUBMITTED"]
    print_table(headings, rows, right=("GPUS", "AGE", "TASKS", "ATTEMPT"))


def _folded_row(array: _Folded, now: Instant, wide: bool) -> list[str]:
    """What all elements have in common is that of one."""
    one = array.element
    row = _row(msgspec.structs.replace(one, name=array.name, tasks=(), outcome=None), now - one.submitted_at, wide)
    row[3] = array.counts
    return row


def _row(job: JobView, age_ms: int, wide: bool) -> list[str]:
    spec = job.spec
    row = [job.name, spec.queue, class_of(spec), job.state, gpus_of(job), span(age_ms), standing(job)]
    if not wide:
        return row
    row[-1] = with_idleness(", ".join(nodes_of(job)), job) or standing(job)
    return [*row, str(spec.tasks), str(job.attempt), job.user, local(job.submitted_at)]


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
