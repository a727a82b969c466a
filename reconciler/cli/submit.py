"""`quorate submit`: hands a job to the control plane, or says why it could never run and what would."""

from __future__ import annotations

from typing import Any

import click

from reconciler.api.payloads import JobView
from reconciler.cli.connection import connected, server_option
from reconciler.cli.exits import Exit
from reconciler.cli.jobfile import ShortForm, job_in_file
from reconciler.cli.output import output_option, print_json
from reconciler.cli.wait import exit_code_of, wait_for
from reconciler.cli.wording import size_of
from reconciler.client import ApiError, Client
from reconciler.documents.job import NamedJob

_REFUSED_STATUS = 422


@click.command(short_help="Submit a job.")
@click.option("-f", "--file", "path", metavar="FILE", help="A Job document, YAML or JSON; - reads stdin.")
@click.option("--name", help="The job's name; replaces that of the file.")
@click.option("--queue", help="The queue it is charged to; replaces that of the file.")
@click.option("--gpus", type=click.IntRange(0), help="Whole GPUs of one task. Default: none.")
@click.option("--tasks", type=click.IntRange(1), help="Tasks, which start together or not at all. Default: 1.")
@click.option("--type", "types", multiple=True, help="A GPU type that will do; repeatable, the most wanted first.")
@click.option("--class", "priority_class", help="Its priority class. Default: the policy's.")
@click.option("--cpu", help="CPU cores of one task, such as 8 or 500m.")
@click.option("--memory", help="Memory of one task, such as 64Gi.")
@click.option("--time-limit", help="How long it may run, such as 12h. Default: as long as its class says.")
@click.option("--topology", multiple=True, metavar="WISH=LEVEL", help="Like required=rack or preferred=island.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="An environment variable of every task; repeatable.")
@click.option("--key", default="", help="Submitting the same name with the same key again is harmless.")
@click.option("--wait", "and_wait", is_flag=True, help="Wait until it has ended, and exit with its exit code.")
@click.argument("command", nargs=-1, metavar="[-- COMMAND ARGS...]")
@output_option("text", "json")
@server_option
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    path: str | None,
    name: str | None,
    queue: str | None,
    key: str,
    and_wait: bool,
    output: str,
    server: str | None,
    **short_form: Any,
) -> None:
    """Submit the job in FILE, or one of equal tasks described by options: --name, --queue and -- COMMAND at least.

    A job that could never run under the policy in force is refused, with the reasons and what would fit. Names are never
    used again: submitting one twice is an error, unless both times carry the same --key.
    """
    short = ShortForm(**short_form)
    if path is not None and not short.is_empty:
        raise click.UsageError("-f describes the whole job: beside it only --name and --queue say more of it")
    job = job_in_file(path, name, queue) if path is not None else short.job(name, queue)
    with connected(server) as client:
        view = _submit(client, job, key, output)
        if and_wait:
            view = wait_for(client, view.name, "ended")
    if output == "json":
        print_json(view)
    else:
        click.echo(
            f"{view.name}: {view.state}"
            if and_wait
            else f"submitted {view.name} to {view.spec.queue}: {size_of(view.spec)}"
        )
    ctx.exit(exit_code_of(view) if and_wait else Exit.OK)


def _submit(client: Client, job: NamedJob, key: str, output: str) -> JobView:
    try:
        return client.submit(job.name, job.spec, key)
    except ApiError as error:
        if error.status == _REFUSED_STATUS and output == "json":
            # The reasons as data, for programs; the same in words is on stderr.
            print_json(error.problem)
        raise
