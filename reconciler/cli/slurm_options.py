"""The options of `quorate run` for a cluster that Slurm schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from reconciler.cli.params import DurationParam
from solver.model.quantities import Duration

if TYPE_CHECKING:
    from reconciler.server.settings import SlurmSettings

EVERY: Final = Duration(30_000)

OPTIONS = (
    click.option(
        "--slurm",
        is_flag=True,
        help="Jobs are those of Slurm, seen by its commands `squeue` and `scontrol`. With --observe alone.",
    ),
    click.option(
        "--slurm-every",
        type=DurationParam(),
        metavar="DURATION",
        help=f"With --slurm: how far apart it is asked.  [default: {EVERY}]",
    ),
)


def slurm_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def slurm_settings(options: dict[str, Any]) -> SlurmSettings | None:
    """Taken out of the options, with what they share with those of Kubernetes. Raises click.UsageError."""
    from reconciler.server.settings import SlurmSettings

    is_slurm, every = options.pop("slurm"), options.pop("slurm_every")
    if not is_slurm:
        if every is not None:
            raise click.UsageError("--slurm-every is for --slurm. Add it, or leave --slurm-every out.")
        return None
    if options["kubernetes"]:
        raise click.UsageError("--slurm and --kubernetes are two clusters. Leave one of them out.")
    if not options["observe"]:
        raise click.UsageError("Beside Slurm nothing is done: say --observe too, and it is said what would be done.")
    options["observe"] = False
    queue, options["observed_queue"] = options["observed_queue"], ""
    return SlurmSettings(every or EVERY, queue)
