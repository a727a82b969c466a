"""What decides the rounds of commands: the program runs as in a control plane, beside the round and within its time limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from reconciler.cli.output import printable
from solver.milp.optimiser import Optimiser


@contextmanager
def program_beside() -> Iterator[Optimiser]:
    """An optimiser in a process of its own, which is started once a round asks. Why it gave no answer is said."""
    from reconciler.control.optimiser import KillableOptimiser
    from reconciler.control.optimiser.budget import RoundBudget
    from reconciler.model.clock import SystemClock

    with KillableOptimiser(report=lambda why: click.echo(f"note: {printable(why)}", err=True)) as child:
        yield RoundBudget(child, SystemClock())
