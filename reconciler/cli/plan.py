"""`quorate plan`: what a change of policy would do, before it is merged."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import get_terminal_size

import click

from reconciler.analysis.reports.formats import FORMATS, problems_as
from reconciler.analysis.reports.paths import UNKNOWN, Paths, paths_of
from reconciler.analysis.reports.review_outline import outline_of
from reconciler.analysis.reports.review_problems import review_problems
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import invalid, one_cluster, read_snapshot_file, unreadable, young_enough
from reconciler.cli.optimiser import program_beside
from reconciler.cli.output import CommandFailedError, output_option, print_json, print_warning
from reconciler.cli.params import DurationParam, cluster_option
from reconciler.cli.saved_plan import envelope_of, write_plan
from reconciler.cli.status_line import busy
from reconciler.cli.times import local
from reconciler.documents.clusters import clusters_of
from reconciler.gitops.review.comparison import review
from reconciler.gitops.review.side import ReviewSide
from reconciler.gitops.source.tree import Revision
from reconciler.model.clock import SystemClock
from reconciler.model.envelope import SavedPlan
from reconciler.model.review_findings import Review
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot

_WIDE_COLUMNS = 120
"""From here on there is room for a queue's path beside the name of a job."""


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
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it as a saved plan to a file too: see `quorate apply`.",
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all of it as a page to a file too, with the queues and racks before and after.",
)
@click.option("--exact", is_flag=True, help="Let what --out writes be good for this cluster and base alone.")
@click.option(
    "--accept-evicted-jobs", type=click.IntRange(min=0), metavar="N", help="Let the saved plan accept so many, if more."
)
@click.option(
    "--accept-gpu-hours",
    type=click.FloatRange(min=0),
    metavar="N",
    help="Let the saved plan accept so many lost, if more.",
)
@click.option("--held", is_flag=True, help="Show the server's own plan of the revision that it holds.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 where the change has any effect.")
@click.option("--all", "unfold", is_flag=True, help="Print long lists whole, where the output is text.")
@output_option("text", "markdown", "json", *FORMATS)
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
    html_file: Path | None,
    exact: bool,
    accept_evicted_jobs: int | None,
    accept_gpu_hours: float | None,
    held: bool,
    detailed_exitcode: bool,
    unfold: bool,
    output: str,
) -> None:
    """Solve the cluster as it is under two revisions of the policy, and say what differs. Changes nothing."""
    _refuse_conflicts(ctx)
    if held:
        found = _of_held(server)
        _tell(found, UNKNOWN, output, cluster or "", html_file, unfold=unfold)
        ctx.exit(_exit_code(found, detailed=detailed_exitcode))
    revisions = _revision(repo, _begun(repo, base, head), "--base"), _revision(repo, head, "--head")
    cluster = one_cluster({name for each in revisions for name in clusters_of(each.files)}, cluster, str(repo))
    sides = _side(base, revisions[0], "--base", cluster), _side(head, revisions[1], "--head", cluster)
    snapshot = _snapshot(snapshot_file, max_snapshot_age, server)
    with program_beside() as optimiser, busy("solving the cluster under both revisions"):
        found = review(snapshot, *sides, optimiser)
    if out:
        gap = sides[1].compiled.policy.scheduling.solver.gap
        envelope = envelope_of(found, gap, accept_evicted_jobs, accept_gpu_hours, exact=exact)
        write_plan(SavedPlan(envelope, found), out)
    paths = paths_of(sides[0].compiled, sides[1].compiled)
    _tell(found, paths, output, cluster or "", html_file, unfold=unfold)
    ctx.exit(_exit_code(found, detailed=detailed_exitcode))


def _refuse_conflicts(ctx: click.Context) -> None:
    """Options that would be ignored beside the others raise UsageError."""
    said = {name for name, value in ctx.params.items() if value is not None and value is not False}
    if "snapshot_file" in said and said & {"server", "held"}:
        raise click.UsageError("--snapshot excludes --server and --held: the snapshot comes from one of them", ctx)
    if "held" in said and said & {"out", "max_snapshot_age"}:
        raise click.UsageError("--held shows a plan that is made: it excludes --out and --max-snapshot-age", ctx)
    if "out" not in said and said & {"exact", "accept_evicted_jobs", "accept_gpu_hours"}:
        raise click.UsageError("--exact and --accept-... say what --out writes: name a file with --out", ctx)


def _begun(repo: Path, base: str, head: str) -> str:
    """The revision to compare with: a base that has gone on since counts as it was where the head left it."""
    from reconciler.gitops.source.errors import GitSourceError
    from reconciler.gitops.source.tree import branched_at

    try:
        begun = branched_at(repo, base, head)
    except GitSourceError:
        return base  # Reading either says which of them is not there.
    if begun is not None:
        told = f"{base} has gone on since {head} left it: compared with {begun[:12]}, where it did"
        print_warning(told, fix=f"To see what merging does now, merge or rebase onto {base} first.")
    return begun or base


def _revision(repo: Path, name: str, option: str) -> Revision:
    from reconciler.gitops.source.errors import GitSourceError
    from reconciler.gitops.source.tree import read_revision

    try:
        return read_revision(repo, name)
    except GitSourceError as error:
        raise CommandFailedError(str(error), place=option, fix=error.fix) from error


def _side(name: str, revision: Revision, option: str, cluster: str | None) -> ReviewSide:
    """What a revision says of a cluster: nothing at all where it has others and not this one, which is then new, or gone.

    Nor does a base without a policy: the head has the first one.
    """
    from reconciler.documents.repository import NO_DOCUMENTS, compiled_of_nothing, read_repository
    from reconciler.model.problem import InvalidDocumentsError

    known = clusters_of(revision.files)
    if known and cluster not in known:
        return ReviewSide(name, revision.commit, compiled_of_nothing())
    reading = read_repository(revision.files, cluster if known else None)
    if option == "--base" and any(problem.code == NO_DOCUMENTS for problem in reading.problems):
        return ReviewSide(name, revision.commit, compiled_of_nothing())
    try:
        return ReviewSide(name, revision.commit, reading.checked())
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.POLICY_INVALID, where=f"{option} {name} ({revision.commit[:12]})") from error


def _snapshot(snapshot_file: Path | None, most: Duration | None, server: str | None) -> Snapshot:
    if snapshot_file:
        found = read_snapshot_file(snapshot_file)
    else:
        with api_client(server) as client:
            found = client.snapshot()
    return young_enough(found, snapshot_file, most, SystemClock().now())


def _of_held(server: str | None) -> Review:
    with api_client(server) as client, busy("solving the cluster under both revisions"):
        return client.following.fresh_plan().review


def _tell(found: Review, paths: Paths, output: str, cluster: str, html_file: Path | None, *, unfold: bool) -> None:
    """Print it, once the page is written where one is asked for."""
    if html_file:
        from reconciler.web.plan_page import plan_file

        try:
            html_file.write_text(plan_file(found, paths, cluster), "utf-8")
        except OSError as error:
            raise unreadable(error, html_file) from error
    _print(found, paths, output, cluster, unfold=unfold)


def _print(found: Review, paths: Paths, output: str, cluster: str, *, unfold: bool) -> None:
    if output == "json":
        print_json(found)
    elif output in FORMATS:
        click.echo(problems_as(output, "quorate plan", review_problems(found, paths)), nl=False)
    elif output == "markdown":
        from reconciler.analysis.reports.markdown import markdown

        click.echo(markdown(outline_of(found, paths, str), cluster), nl=False)
    else:
        _print_text(found, paths, unfold=unfold)


def _print_text(found: Review, paths: Paths, *, unfold: bool) -> None:
    """As wide as a terminal where one reads it, and in colour if it likes. Where that is narrow queues go by their names alone."""
    from reconciler.analysis.reports.tables import UNLIMITED
    from reconciler.analysis.reports.text import text

    terminal = sys.stdout.isatty()
    columns = get_terminal_size().columns if terminal else UNLIMITED
    colour = terminal and not os.environ.get("NO_COLOR")
    outline = outline_of(found, paths if columns >= _WIDE_COLUMNS else UNKNOWN, local)
    click.echo(text(outline, unfold=unfold, columns=columns, colour=colour), nl=False, color=colour)


def _exit_code(found: Review, *, detailed: bool) -> ExitCode:
    """The worse wins."""
    if found.breaches:
        return ExitCode.GUARDRAIL_REFUSED
    return ExitCode.CHANGES if detailed and found.has_changes else ExitCode.OK
