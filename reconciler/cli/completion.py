"""`quorate completion`: what a shell sources to complete commands, options, and the names of jobs and queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

from reconciler.cli.connection import api_client
from reconciler.cli.output import CommandFailedError
from reconciler.client import Client
from solver.model.mig_table import MODELS

VARIABLE: Final = "_QUORATE_COMPLETE"
"""By which the shell's function asks for completions; click makes it of the program's name."""
NAMES_MAX: Final = 200
"""More are no help at a prompt."""
_SHELLS: Final = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}

Item = TypeVar("Item")


@click.command(short_help="Print what lets a shell complete commands and names.")
@click.argument("shell", type=click.Choice(tuple(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what a SHELL sources to complete commands, options, and the names of jobs and queues.

    \b
    quorate completion bash > ~/.local/share/bash-completion/completions/quorate
    quorate completion zsh > "${fpath[1]}/_quorate"
    quorate completion fish > ~/.config/fish/completions/quorate.fish
    """
    click.echo(_SHELLS[shell](ctx.find_root().command, {}, "quorate", VARIABLE).source())


def job_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest jobs whose names begin so, with their states, but for those that stand on the line already."""
    given = ctx.params.get(parameter.name or "") or ()
    listed = _asked(ctx, lambda client: client.jobs(NAMES_MAX, prefix=incomplete).items)
    return [CompletionItem(job.name, help=job.state) for job in listed if job.name not in given]


def queue_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The queues whose names begin so."""
    listed = _asked(ctx, lambda client: client.queues().items)
    return [CompletionItem(queue.name) for queue in listed if queue.name.startswith(incomplete)]


def gpu_types(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The GPU types of the cluster that begin so, but for those that stand on the line already."""
    given = ctx.params.get(parameter.name or "") or ()
    listed = {line.gpu_type for queue in _asked(ctx, lambda client: client.queues().items) for line in queue.gpus}
    return [CompletionItem(each) for each in sorted(listed) if each.startswith(incomplete) and each not in given]


def mig_profiles(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The MIG profiles that begin so, of all models that are known: no server is asked."""
    models: dict[str, list[str]] = {}
    for model in MODELS:
        for profile in model.profiles:
            models.setdefault(profile.name, []).append(model.name)
    return [CompletionItem(name, help=", ".join(of)) for name, of in models.items() if name.startswith(incomplete)]


def _asked(ctx: click.Context, ask: Callable[[Client], Sequence[Item]]) -> Sequence[Item]:
    """Of the server that the line names; none where it can't be asked: between two keys nothing can be said of why."""
    try:
        with api_client(ctx.params.get("server")) as client:
            return ask(client)
    except CommandFailedError:
        return ()
