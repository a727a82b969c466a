"""`quorate plan`: what a change of policy would do, before it is merged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from reconciler.cli.connection import connected, server_option
from reconciler.cli.exits import Exit
from reconciler.cli.inputs import invalid, one_cluster, read_snapshot_file, unreadable, young_enough
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.cli.params import DurationParam, cluster_option
from reconciler.cli.solve import proof_of
from reconciler.clock import SystemClock
from reconciler.documents.clusters import clusters_of
from reconciler.gitsource.tree import Revision
from reconciler.meaning import DocumentChange, FieldChange
from reconciler.review.compare import JobChange, Review, Side, review
from solver.plan.reason import count
from solver.world.quantities import Duration
from solver.world.snapshot import Snapshot


@click.command(short_help="Show what a change of policy would do.")
@click.option("--base", default="main", show_default=True, metavar="REV", help="The revision to compare with.")
@click.option("--head", default="HEAD", show_default=True, metavar="REV", help="The revision that is proposed.")
@click.option(
    "--repo",
    default=".",
    show_default=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The policy repository, or a folder in it. What is not committed is not read.",
)
@click.option(
    "--snapshot",
    "snapshot_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cluster and its jobs from a file; without it, from the server.",
)
@click.option("--max-snapshot-age", type=DurationParam(), help="Refuse a snapshot that is older; for example 15m.")
@server_option
@cluster_option
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the review as JSON to a file too.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 where the change has any effect.")
@output_option("text", "json")
@click.pass_context
def plan(
    ctx: click.Context,
    base: str,
    head: str,
    repo: Path,
    snapshot_file: Path | None,
    max_snapshot_age: Duration | None,
    server: str | None,
    cluster: str | None,
    out: Path | None,
    detailed_exitcode: bool,
    output: str,
) -> None:
    """Solve the cluster as it is under two revisions of the policy, and say what differs. Changes nothing."""
    if snapshot_file and server:
        raise click.UsageError("--snapshot and --server exclude each other: the snapshot comes from one of them", ctx)
    revisions = _revision(repo, base, "--base"), _revision(repo, head, "--head")
    cluster = one_cluster({name for each in revisions for name in clusters_of(each.files)}, cluster, str(repo))
    sides = _side(base, revisions[0], "--base", cluster), _side(head, revisions[1], "--head", cluster)
    from solver.program.highs import optimise

    found = review(_snapshot(snapshot_file, max_snapshot_age, server), *sides, optimise)
    if out:
        _write(found, out)
    if output == "json":
        print_json(found)
    else:
        click.echo("\n".join(printable(line) for line in review_lines(found)))
    ctx.exit(Exit.CHANGES if detailed_exitcode and found.has_changes else Exit.OK)


def _revision(repo: Path, name: str, option: str) -> Revision:
    from reconciler.gitsource.errors import GitSourceError
    from reconciler.gitsource.tree import read_revision

    try:
        return read_revision(repo, name)
    except GitSourceError as error:
        raise CommandFailedError(str(error), place=option, fix=error.fix) from error


def _side(name: str, revision: Revision, option: str, cluster: str | None) -> Side:
    """What a revision says of a cluster: nothing at all where it has others and not this one, which is then new, or gone."""
    from reconciler.documents.files import Files
    from reconciler.documents.problem import InvalidDocumentsError
    from reconciler.documents.repository import read_repository

    known = clusters_of(revision.files)
    files = revision.files if not known or cluster in known else Files({})
    try:
        compiled = read_repository(files, cluster if cluster in known else None).checked()
    except InvalidDocumentsError as error:
        raise invalid(error, Exit.POLICY_INVALID, where=f"{option} {name} ({revision.commit[:12]})") from error
    return Side(name, revision.commit, compiled)


def _snapshot(snapshot_file: Path | None, most: Duration | None, server: str | None) -> Snapshot:
    if snapshot_file:
        found = read_snapshot_file(snapshot_file)
    else:
        with connected(server) as client:
            found = client.snapshot()
    return young_enough(found, snapshot_file, most, SystemClock().now())


def _write(found: Review, out: Path) -> None:
    from solver.world.document import encode

    try:
        out.write_bytes(encode(found) + b"\n")
    except OSError as error:
        raise unreadable(error, out) from error


def review_lines(found: Review) -> Iterator[str]:
    """The review for people: what changes first, what stays as it is last."""
    yield from _headline(found)
    if found.documents:
        yield from ("", "Documents")
        for document in found.documents:
            yield from _document_lines(document)
    changed = [job for job in found.jobs if job.changed]
    for title, jobs in (
        ("Jobs that fare differently", changed),
        ("Start under both", [job for job in found.jobs if not job.changed and job.after == "starts"]),
        ("Leave under both", [job for job in found.jobs if not job.changed and job.after == "leaves"]),
        ("Move under both", [job for job in found.jobs if not job.changed and job.after == "moves"]),
        ("Would still wait", [job for job in found.jobs if not job.changed and job.after in ("waits", "inadmissible")]),
    ):
        if jobs:
            yield from ("", title)
            for job in jobs:
                yield from _job_lines(job)
    yield ""
    for side in (found.base, found.head):
        yield f"{side.name} ({side.commit[:12]}): {proof_of(side.certificate)}"


def _headline(found: Review) -> Iterator[str]:
    starts = sum(job.after == "starts" for job in found.jobs)
    more = starts - sum(job.before == "starts" for job in found.jobs)
    compared = f" ({more:+d})" if more else ""
    waiting = sum(job.after in ("waits", "inadmissible") for job in found.jobs)
    leaving = [job for job in found.jobs if job.after == "leaves"]
    leave = (
        f", {count(len(leaving), 'job')} with {sum(job.gpus for job in leaving)} GPUs would leave" if leaving else ""
    )
    yield (
        f"{found.base.name} → {found.head.name}: {count(starts, 'job')} would start{compared}, "
        f"{waiting} would wait{leave}; {count(len(found.documents), 'document')} changed"
    )
    if not found.has_changes:
        yield "The change has no effect: same policy, same inventory."
    elif found.base.inventory != found.head.inventory and not any("NodePool" in d.document for d in found.documents):
        yield "Nodes have changed places within their pools."


def _document_lines(changed: DocumentChange) -> Iterator[str]:
    if changed.change != "changed":
        yield f"  {changed.document} {changed.change}{':' * bool(changed.fields)}"
        for field in changed.fields:
            yield f"    {field.field} {field.after or field.before}"
    elif len(changed.fields) == 1:
        yield f"  {changed.document}: {_field(changed.fields[0])}"
    else:
        yield f"  {changed.document}:"
        for field in changed.fields:
            yield f"    {_field(field)}"


def _field(change: FieldChange) -> str:
    if change.before is None:
        return f"{change.field} {change.after} (was not set)"
    if change.after is None:
        return f"{change.field} not set (was {change.before})"
    return f"{change.field} {change.before} → {change.after}"


def _job_lines(job: JobChange) -> Iterator[str]:
    fate = f"{job.before} → {job.after}" if job.changed else job.after
    yield f"  {job.job}  {fate}  ({count(job.gpus.number, 'GPU')}, queue {job.queue})"
    for reason in job.reasons:
        yield f"    {reason}"
