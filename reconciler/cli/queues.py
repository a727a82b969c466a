"""`quorate queues`: the quota tree with what each queue is guaranteed, may hold, holds and waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from reconciler.api.payloads import QueueView
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.output import output_option, print_json, print_warning, printable
from reconciler.cli.phrases import active_words, by_whom
from reconciler.cli.tables import print_table
from reconciler.model.queue_line import QueueLine
from solver.model.cluster import GpuType

_HEADINGS = (
    "QUEUE",
    "RUNNING",
    "PENDING",
    "GPU TYPE",
    "GUARANTEED",
    "LENDABLE",
    "MAX",
    "FAIR SHARE",
    "USED",
    "BORROWED",
    "WAITING",
    "ACTIVE",
    "PAST GPU-HOURS",
)
_HOST_HEADINGS = (
    "QUEUE",
    "RESOURCE",
    "GUARANTEED",
    "LENDABLE",
    "MAX",
    "PER USER",
    "FAIR SHARE",
    "USED",
    "WITHOUT GPUS",
    "BORROWED",
    "WAITING",
)
_SPARE = ("PAST GPU-HOURS", "LENDABLE", "BORROWED", "FAIR SHARE", "PENDING", "RUNNING", "MAX")
_HOST_SPARE = ("PER USER", "LENDABLE", "WITHOUT GPUS", "FAIR SHARE", "BORROWED")


@click.command(short_help="Show the quota tree.")
@click.option("--users", is_flag=True, help="Show the users of queues that they share fairly, below each such queue.")
@output_option("text", "json")
@server_option
def queues(users: bool, output: str, server: str | None) -> None:
    """Show the queues as a tree: their jobs, and their GPUs by type with those of the queues below them.

    LENDABLE is what other queues may borrow of the guarantee. BORROWED is what the queue uses above it. WAITING is what its pending
    jobs ask for of their first choice. ACTIVE is how active its GPUs are, as far as that is measured. PAST GPU-HOURS is decayed
    past use, if the policy states a usageHalfLife. Below stand CPU and memory, if a queue has a quota of either, the hours of quota
    that are open, and the budgets. There USED is what all jobs have, WITHOUT GPUS what jobs without GPUs have: for these are
    guarantees and fair shares. PER USER is what the jobs of one user may have.

    With --users, users of a queue with `users.fairShare` that hold or wait for GPUs stand below it, each with its fair share of the
    queue, as far as you may see their jobs.
    """
    with api_client(server) as client:
        found = client.queues(users=users)
    if output == "json":
        print_json(found)
    else:
        rows = [row for depth, queue in _in_tree_order(found.items) for row in _rows(depth, queue)]
        print_table(_HEADINGS, rows, right=set(_HEADINGS) - {"QUEUE", "GPU TYPE"}, spare=_SPARE)
        host = [row for depth, queue in _in_tree_order(found.items) for row in _host_rows(depth, queue)]
        if host:
            click.echo()
            print_table(_HOST_HEADINGS, host, right=set(_HOST_HEADINGS) - {"QUEUE", "RESOURCE"}, spare=_HOST_SPARE)
        for queue in found.items:
            if queue.hours is not None:
                click.echo(printable(f"queue {queue.name}: {queue.hours}"))
        for queue in found.items:
            for hint in queue.hints:
                print_warning(f"queue {queue.name}: {hint}")
        for queue in found.items:
            if queue.hold is not None:
                click.echo(printable(f"queue {queue.name}: hold {by_whom(queue.hold)}"))
        for budget in found.budgets:
            click.echo(printable(str(budget)))


def _in_tree_order(
    items: tuple[QueueView, ...], parent: str | None = None, depth: int = 0
) -> Iterator[tuple[int, QueueView]]:
    """Every queue below a parent with its depth: parents before their children, siblings by name."""
    for queue in items:
        if queue.parent == parent:
            yield depth, queue
            yield from _in_tree_order(items, queue.name, depth + 1)


def _rows(depth: int, queue: QueueView) -> Iterator[list[str]]:
    name = ["  " * depth + queue.name, str(queue.running), str(queue.pending)]
    first, *more = queue.gpus or (None,)
    active = {line.gpu_type: active_words(line) for line in queue.use}
    yield [*name, *(_cells(first, active) if first else [])]
    for line in more:
        if line is not None:
            yield ["", "", "", *_cells(line, active)]
    for user in queue.users:
        weight = f" (weight {user.weight})" if user.weight != 1 else ""
        who = f"{'  ' * (depth + 1)}user {user.user or '(none)'}{weight}"
        figures = ("", "", "", user.fair_share, user.held, "", user.waiting, "", round(user.past_gpu_hours, 1))
        yield [who, "", "", user.gpu_type, *map(str, figures)]


def _host_rows(depth: int, queue: QueueView) -> Iterator[list[str]]:
    for number, line in enumerate(queue.host):
        said = (line.guaranteed, line.lendable or "all", line.max or "none", line.per_user or "none")
        figures = (line.fair_share, line.held, line.without_gpus, line.borrowed, line.waiting)
        name = "  " * depth + queue.name if not number else ""
        yield [name, line.resource, *said, *figures]


def _cells(line: QueueLine, active: Mapping[GpuType, str]) -> list[str]:
    ceiling = "none" if line.max is None else str(line.max)
    figures = (
        line.guaranteed,
        "all" if line.lendable is None else line.lendable,
        ceiling,
        line.fair_share,
        line.held,
        line.borrowed,
        line.waiting,
        active.get(line.gpu_type, ""),
        round(line.past_gpu_hours, 1),
    )
    return [line.gpu_type, *map(str, figures)]
