"""`quorate describe`: one job with its gang, its tasks and devices, its verdict and its events."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

import click

from reconciler.api.group_payloads import GroupView
from reconciler.api.payloads import JobView, Why
from reconciler.cli.completion import job_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.job_names import counts_of, find
from reconciler.cli.output import output_option, print_json
from reconciler.cli.phrases import (
    by_whom,
    class_of,
    devices_of,
    shape_words,
    short_list,
    size_of,
    state_line,
)
from reconciler.cli.tables import print_fields, print_table
from reconciler.cli.times import local
from reconciler.model.clock import SystemClock
from reconciler.protocols.history import Event
from solver.model.cluster import Level
from solver.model.document import API_VERSION, Document
from solver.model.workload import Bundle, JobSpec, Spread, TaskGroup, Together
from solver.plan.reason import count


class JobDescription(Document, frozen=True, omit_defaults=False):
    """What `-o json` prints. Events are oldest first."""

    job: JobView
    why: Why
    events: tuple[Event, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["JobDescription"] = "JobDescription"


@click.command(short_help="Show everything about a job.")
@click.argument("job", shell_complete=job_names)
@output_option("text", "json")
@server_option
def describe(job: str, output: str, server: str | None) -> None:
    """Show what JOB asked for, where its tasks are, why it is where it is, and what happened to it.

    Of an array or pipeline: how many of its jobs are in which state, and which went wrong. The values of a job's environment
    are left out of the text: they may be secrets.
    """
    with api_client(server) as client:
        found = find(client, job)
        if isinstance(found, GroupView):
            _describe_group(found, output)
            return
        description = JobDescription(found, client.why(found.name), client.events(found.name).items)
    if output == "json":
        print_json(description)
        return
    print_fields(_fields(description))
    _print_tasks(description.job)
    _print_events(description.events)


def _describe_group(group: GroupView, output: str) -> None:
    if output == "json":
        print_json(group)
        return
    failed = [job.name for job in group.jobs if job.code]
    print_fields(
        (name, value)
        for name, value in (
            ("Name", group.name),
            (group.kind.capitalize(), f"{count(len(group.jobs), 'job')}: {counts_of(group)}"),
            ("Pipeline", group.pipeline),
            ("At a time", f"at most {group.max_running}" if group.max_running else ""),
            ("User", group.user),
            ("Submitted", local(group.submitted_at)),
            ("Went wrong", short_list(failed, named_max=20)),
        )
        if value
    )


def _fields(description: JobDescription) -> Iterator[tuple[str, str]]:
    job = description.job
    spec = job.spec
    yield "Name", job.name
    yield "Queue", spec.queue
    yield "Class", class_of(spec)
    yield "User", job.user
    yield "Submitted", local(job.submitted_at)
    yield "State", state_line(job, SystemClock().now())
    yield from _people(job)
    for failure in job.failures:
        said = failure.message.splitlines()[0] if failure.message else failure.kind
        yield f"Attempt {failure.attempt}", f"{'went on after' if failure.outlived else 'failed'}: {said}"
    yield spec.type.capitalize(), size_of(spec)
    for group in spec.task_groups:
        yield f"  {group.name}", f"{_tasks_of(group)} x {shape_words(group.shape)}"
        yield "", shlex.join(group.command or spec.command)
    yield from _wishes(spec)
    yield from _limits(job)
    if job.work:
        yield "Reports", str(job.work)
    if job.redacted:
        yield "Left out", "command, environment and output: they are for the job's own team"
    yield "Why", "\n".join(description.why.words)
    if description.why.would_help:
        yield "Helps", "\n".join(description.why.would_help)


def _tasks_of(group: TaskGroup) -> str:
    """`4`, `4 to 12`, or `4 to 12 (by 4)` where so many come and go at once."""
    if group.least == group.replicas:
        return str(group.replicas)
    return f"{group.least} to {group.replicas}" + (f" (by {group.replica_step})" if group.replica_step > 1 else "")


def _people(job: JobView) -> Iterator[tuple[str, str]]:
    """What a user asked of it."""
    if job.cancel_requested_by:
        yield "Cancel", f"asked for by {job.cancel_requested_by}"
    if job.suspended_by:
        yield "Suspended", f"by {job.suspended_by}"
    if job.boost:
        yield "Boosted", by_whom(job.boost)


def _limits(job: JobView) -> Iterator[tuple[str, str]]:
    spec = job.spec
    limit = job.time_limit or spec.time_limit
    if limit:
        ends_by = f", ends by {local(job.running_since.after(limit))}" if job.running_since else ""
        yield "Time limit", f"{limit}{ends_by}"
    if (by := spec.to_finish_by(job.submitted_at)) is not None:
        yield "Finish by", local(by)
    idle_limit = job.idle_limit or spec.idle_limit
    if idle_limit:
        yield "Idle limit", f"{idle_limit}{_idleness(job)}"
    if spec.time_limit_warning:
        yield "Warned", f"{spec.time_limit_warning.before} before its time limit"
    if spec.stuck:
        yield "If stuck", f"{spec.stuck.action} after {spec.stuck.after} without progress"


def _idleness(job: JobView) -> str:
    unknown = job.running_since is not None and job.activity is None
    return ", but it is not known what the job does: it is not kept" if unknown else ""


def _wishes(spec: JobSpec) -> Iterator[tuple[str, str]]:
    topology = spec.topology
    wished = [f"required one {topology.required}"] if topology.required else []
    wished += [f"preferred one {level}" for level in topology.wishes]
    wished += ["bound by communication"] if topology.communication == "bound" else []
    wished += _kept(topology.group, topology.spread)
    for known in topology.together:
        wished.append(_together(known))
    for group in spec.task_groups:
        own = group.topology
        levels = [f"required one {own.required}"] if own.required else []
        levels += [f"preferred one {level}" for level in own.wishes]
        wished += [f"{group.name}: {wish}" for wish in (*levels, *_kept(own.group, own.spread))]
    if wished:
        yield "Topology", ", ".join(wished)
    if spec.container:
        options = ", read-only" if spec.container.read_only else ""
        yield "Container", f"{spec.container.image}, network {spec.container.network}{options}"
    if spec.working_directory:
        yield "Folder", spec.working_directory
    if spec.env:
        yield "Environment", ", ".join(sorted(spec.env))
    if spec.secrets:
        yield "Secrets", ", ".join(f"{use} as {use.env or f'file {use.file}'}" for use in spec.secrets)


def _together(known: Together) -> str:
    """`leader and worker together in one rack`, or `3 to 4 units of prefill and decode, each in one rack`."""
    groups, levels = " and ".join(known.groups), _levels(known.within, known.wishes)
    if known.units == 1:
        return f"{groups} together {levels}"
    least = known.units if known.min_units is None else known.min_units
    count = f"{known.units}" if least == known.units else f"{least} to {known.units}"
    return f"{count} units of {groups}" + (f", each {levels}" if levels else "")


def _kept(bundles: Bundle | tuple[Bundle, ...] | None, spread: Spread | None) -> Iterator[str]:
    for bundle in (bundles,) if isinstance(bundles, Bundle) else bundles or ():
        yield f"every {bundle.tasks} tasks {_levels(bundle.within, bundle.wishes)}"
    if spread:
        yield f"at most {spread.max_per_domain} tasks in each {spread.level}"


def _levels(within: Level | None, wishes: Sequence[Level]) -> str:
    kept = [f"in one {within}"] if within else []
    return ", ".join((*kept, *(f"best in one {level}" for level in wishes)))


def _print_tasks(job: JobView) -> None:
    if job.tasks:
        click.echo(f"\n{count(len(job.tasks), 'task')} of attempt {job.attempt}:")
        rows = ((f"{task.group}/{task.index}", task.node, devices_of(task)) for task in job.tasks)
        print_table(("TASK", "NODE", "DEVICES"), rows)


def _print_events(events: tuple[Event, ...]) -> None:
    if events:
        click.echo("\nEvents:")
        rows = ((local(event.time), event.kind, event.actor, event.cause) for event in events)
        print_table(("TIME", "EVENT", "BY", "CAUSE"), rows)
