"""The command `kubectl quorate`, which kubectl finds as `kubectl-quorate` on the PATH."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from reconciler.cli.main import run_as
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable

PROGRAM = "kubectl quorate"


def _where(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which cluster and namespace, as kubectl has them."""
    namespace = click.option("-n", "--namespace", metavar="NAME", help="The namespace; else that of the context.")
    return _context(namespace(command))


def _context(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--context", metavar="NAME", help="The context of the kubeconfig; else the current one.")(
        command
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="quorate", message="%(prog)s %(version)s")
def cli() -> None:
    """What Quorate says of pods and queues, read from the cluster with your own rights."""


@cli.command(short_help="Say why a pod waits, or where it runs.")
@click.argument("pod")
@_where
@output_option("text", "json")
def why(pod: str, namespace: str | None, context: str | None, output: str) -> None:
    """Say why POD waits, what would help, and when it could start; and what was told of it lately."""
    from reconciler.cli.kubectl.pods import why_lines, why_of
    from reconciler.cli.kubectl.reader import KubeContext, read

    found = read(KubeContext(context, namespace), lambda reader: why_of(reader, pod))
    if output == "json":
        print_json(found)
    else:
        for line in why_lines(found):
            click.echo(printable(line))


@cli.command(short_help="List the pods of a gang.")
@click.argument("pod")
@_where
@output_option("text", "json")
def gang(pod: str, namespace: str | None, context: str | None, output: str) -> None:
    """List the pods of the gang that POD belongs to: where each is, with which devices, and what it waits for."""
    from reconciler.cli.kubectl.pods import GANG_HEADINGS, gang_of, gang_rows
    from reconciler.cli.kubectl.reader import KubeContext, read
    from reconciler.cli.tables import print_table

    found = read(KubeContext(context, namespace), lambda reader: gang_of(reader, pod))
    if output == "json":
        print_json(found)
    else:
        click.echo(printable(f"gang {found.name}: {len(found.pods)} pods, {found.on_nodes} on nodes"))
        print_table(GANG_HEADINGS, gang_rows(found))
        for message in dict.fromkeys(one.message for one in found.pods if one.message):
            click.echo(printable(message))


@cli.command(short_help="Show the quota tree.")
@_context
@output_option("text", "json")
def queues(context: str | None, output: str) -> None:
    """Show the queues as a tree, with their GPUs by type and those of the queues below them; and CPU and memory, if a queue has a
    quota of either.
    """
    from reconciler.cli.kubectl import queues as told
    from reconciler.cli.kubectl.reader import KubeContext, read
    from reconciler.cli.tables import print_table

    found = read(KubeContext(context), told.queues_of)
    if output == "json":
        print_json(found)
    else:
        print_table(told.HEADINGS, told.rows(found), right=told.NUMBERS)
        if host := [*told.host_rows(found)]:
            click.echo()
            print_table(told.HOST_HEADINGS, host, right=told.HOST_NUMBERS)
        for line in told.notes(found):
            click.echo(printable(line))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        return run_as(PROGRAM, cli, arguments)
    except ModuleNotFoundError as missing:
        if missing.name != "aiohttp":
            raise
        problem, fix = "the client for Kubernetes is not installed", "Install it: pip install 'quorate[kubernetes]'."
        return run_as(PROGRAM, _failing(CommandFailedError(problem, fix=fix)), [])


def _failing(failure: CommandFailedError) -> click.Command:
    @click.command()
    def fails() -> None:
        raise failure

    return fails


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
