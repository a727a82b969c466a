"""`quorate validate`: every problem of a policy repository, for people, programs, repository hosts and CI systems."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import click

from reconciler.analysis.reports.formats import FORMATS, problems_as
from reconciler.analysis.reports.problems import tally
from reconciler.cli.codeowners import code_owners_of
from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import one_cluster
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable, styled
from reconciler.cli.params import cluster_option
from reconciler.documents.clusters import clusters_of
from reconciler.documents.codeowners import code_owner_problems, terms_of
from reconciler.documents.ended_windows import ended_windows
from reconciler.documents.files import FOLDERS, read_folder
from reconciler.documents.repository import Reading, problems_of, read_clusters, read_repository
from reconciler.model.clock import SystemClock
from reconciler.model.problem import InvalidDocumentsError, Problem
from solver.model.document import API_VERSION, Document


class ValidationReport(Document, frozen=True, omit_defaults=False):
    """What `-o json` prints."""

    valid: bool
    problems: tuple[Problem, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["ValidationReport"] = "ValidationReport"


@click.command(short_help="Check a policy repository.")
@click.argument("path", default=".", type=click.Path(exists=True, path_type=Path))
@cluster_option
@output_option("text", "json", *FORMATS)
@click.pass_context
def validate(ctx: click.Context, path: Path, cluster: str | None, output: str) -> None:
    """Check the policy repository at PATH (its folders policies/, cluster-state/ and clusters/), or one Job or Pipeline file.

    Prints every problem with its place and a fix, those of all clusters unless one is named. Exits with 3 if there is an
    error, with 0 if there are only warnings.
    """
    problems = _problems(path, cluster)
    valid = all(problem.severity != "error" for problem in problems)
    if output == "json":
        print_json(ValidationReport(valid, problems))
    elif output in FORMATS:
        click.echo(problems_as(output, "quorate validate", problems), nl=False)
    else:
        _print_text(problems)
    ctx.exit(ExitCode.OK if valid else ExitCode.POLICY_INVALID)


def _problems(path: Path, cluster: str | None) -> tuple[Problem, ...]:
    if path.is_file():
        return _job_problems(path)
    if not any((path / folder).exists() for folder in FOLDERS):
        fix = f"Run it where {' or '.join(f'{folder}/' for folder in FOLDERS)} is, or start with `quorate init DIR`."
        here = path.absolute()
        above = next((each for each in here.parents if here.relative_to(each).parts[0] in FOLDERS), None)
        if above is not None:
            fix = f"It lies in one: quorate validate {os.path.relpath(above)}"
        raise CommandFailedError("no policy repository here", place=str(path), fix=fix)
    try:
        files = read_folder(path)
        if cluster is not None:
            chosen = one_cluster(clusters_of(files), cluster, str(path))
            reading = read_repository(files, chosen)
            return tuple(sorted((*reading.problems, *_ended({chosen: reading}))))
        readings = read_clusters(files)
        return tuple(sorted((*problems_of(readings), *_ended(readings), *_review_problems(path, readings))))
    except OSError as error:
        raise CommandFailedError(error.strerror or str(error), place=str(error.filename or path)) from error


def _ended(readings: Mapping[str | None, Reading]) -> set[Problem]:
    """What was to come again, and is over by now: the only thing here that a clock decides."""
    now = SystemClock().now()
    compiled = [reading.compiled for reading in readings.values() if reading.compiled]
    return {problem for known in compiled for problem in ended_windows(known.policy, now)}


def _review_problems(path: Path, readings: Mapping[str | None, Reading]) -> Iterator[Problem]:
    """What keeps the repository's host from asking the right people; nothing while the policy itself is wrong."""
    compiled = {name: reading.compiled for name, reading in readings.items() if reading.compiled}
    if len(compiled) == len(readings) and terms_of(compiled).handles:
        yield from code_owner_problems(compiled, code_owners_of(path, compiled))


def _job_problems(path: Path) -> tuple[Problem, ...]:
    from reconciler.documents.pipeline import read_submission

    try:
        read_submission(path.read_bytes(), str(path))
    except InvalidDocumentsError as error:
        return error.problems
    return ()


def _print_text(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        severity = styled(f"{problem.severity}[{problem.code}]:", sys.stdout, fg=colour)
        click.echo(
            f"{printable(problem.file)}:{problem.line}:{problem.column}: {severity} {printable(problem.message)}"
        )
        if problem.fix:
            click.echo(f"    {printable(problem.fix)}")
    click.echo(tally(problems) if problems else "valid")
