"""`quorate test`: whether the policy keeps the requirements that stand beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click
import msgspec

from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import invalid, one_cluster, policy_files, unreadable
from reconciler.cli.optimiser import program_beside
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable, styled
from reconciler.cli.params import cluster_option
from reconciler.documents.clusters import clusters_of
from reconciler.documents.declarations import Declaration
from reconciler.documents.policy_test import PolicyTest
from reconciler.documents.repository import Compiled, Reading, read_repository
from reconciler.model.problem import InvalidDocumentsError, did_you_mean

if TYPE_CHECKING:
    from reconciler.gitops.policytests.conduct import PolicyTestReport, PolicyTestResult

_FOLDER = "policies/tests/"


@click.command(short_help="Run the policy's own tests.")
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-k", "--name", "wanted", metavar="NAME", help="Only tests whose name has NAME in it.")
@cluster_option
@output_option("text", "json", "junit")
@click.pass_context
def test(ctx: click.Context, path: Path, wanted: str | None, cluster: str | None, output: str) -> None:
    """Run the PolicyTests of the policy repository at PATH: given a cluster and jobs, its policy must do that.

    Rounds are held as in production, with the same solve, and every plan is judged by the independent checker. Exits
    with 1 if a test fails, with 3 if the policy is invalid.
    """
    reading = _read(path, cluster)
    report = _report(_chosen(reading, path, wanted), reading.checked())
    if output == "json":
        print_json(report)
    elif output == "junit":
        click.echo(_junit(report), nl=False)
    else:
        _print_text(report)
    ctx.exit(ExitCode.OK if report.passed else ExitCode.ERROR)


def _read(path: Path, cluster: str | None) -> Reading:
    try:
        files = policy_files(path)
        reading = read_repository(files, one_cluster(clusters_of(files), cluster, str(path)))
        reading.checked()
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.POLICY_INVALID) from error
    except OSError as error:
        raise unreadable(error, path) from error
    return reading


def _chosen(reading: Reading, path: Path, wanted: str | None) -> list[Declaration[PolicyTest]]:
    if not reading.tests:
        fix = f"Write a PolicyTest into {_FOLDER}; docs/testing-policy.md begins with one."
        raise CommandFailedError("there are no policy tests", place=str(path), fix=fix)
    chosen = [known for known in reading.tests if wanted is None or wanted in known.name]
    if not chosen:
        fix = did_you_mean(wanted, (known.name for known in reading.tests))
        raise CommandFailedError(f"no test has {wanted} in its name", place=str(path), fix=fix)
    return chosen


def _report(tests: Sequence[Declaration[PolicyTest]], compiled: Compiled) -> PolicyTestReport:
    from reconciler.gitops.policytests.conduct import PolicyTestReport

    results = tuple(_with_progress(_conducted(tests, compiled), len(tests)))
    return PolicyTestReport(all(result.passed for result in results), results)


def _conducted(tests: Sequence[Declaration[PolicyTest]], compiled: Compiled) -> Iterator[PolicyTestResult]:
    from reconciler.gitops.policytests.conduct import conduct

    with program_beside() as optimiser:
        for known in tests:
            before = perf_counter()
            result = conduct(known, compiled, optimiser)
            yield msgspec.structs.replace(result, seconds=round(perf_counter() - before, 3))


def _with_progress(results: Iterator[PolicyTestResult], total: int) -> Iterator[PolicyTestResult]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("testing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("testing", total=total)
        for result in results:
            progress.advance(task)
            yield result


def _print_text(report: PolicyTestReport) -> None:
    for result in report.tests:
        word = styled("pass", sys.stdout, fg="green") if result.passed else styled("FAIL", sys.stdout, fg="red")
        rounds = "1 round" if result.rounds == 1 else f"{result.rounds} rounds"
        click.echo(f"{word}  {printable(result.name)}  ({rounds}, {result.seconds:.1f} s)")
        for failure in result.failures:
            first, *more = printable(failure.message).split("\n")
            click.echo(f"      {printable(failure.file)}:{failure.line}:{failure.column}: {first}")
            for line in (*more, *([failure.fix] if failure.fix else [])):
                click.echo(f"          {printable(line)}")
    failed = sum(not result.passed for result in report.tests)
    seconds = sum(result.seconds for result in report.tests)
    click.echo(f"{len(report.tests) - failed} passed, {failed} failed, in {seconds:.1f} s")


def _junit(report: PolicyTestReport) -> str:
    from reconciler.analysis.reports.junit import JunitCase, junit

    return junit(
        "quorate test",
        (JunitCase(result.file, result.name, _failure(result), result.seconds) for result in report.tests),
    )


def _failure(result: PolicyTestResult) -> str | None:
    said = (
        f"{failure.file}:{failure.line}:{failure.column}: {failure.message}{f' {failure.fix}' * bool(failure.fix)}"
        for failure in result.failures
    )
    return None if result.passed else "\n".join(said)
