"""`quorate nodes`: every node, what of it is used, and by which jobs."""

from __future__ import annotations

from collections.abc import Iterator

import click

from reconciler.api.payloads import NodeView
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.output import output_option, print_json
from reconciler.cli.phrases import by_whom, short_list
from reconciler.cli.tables import print_table
from reconciler.cli.times import local
from reconciler.model.health_record import PartHealth
from solver.model.cluster import Node
from solver.model.quantities import Memory, MilliGpu
from solver.plan.reason import count

_HEADINGS = ("NODE", "POOL", "GPU TYPE", "GPUS", "CPU", "MEMORY", "STATE", "JOBS")


@click.command(short_help="Show the nodes and the jobs on them.")
@output_option("text", "json")
@server_option
def nodes(output: str, server: str | None) -> None:
    """Show every declared node: GPUs, CPU and memory as used/total, whether it takes work, and the jobs on it."""
    with api_client(server) as client:
        found = client.nodes()
    if output == "json":
        print_json(found)
    elif found.items:
        print_table(_HEADINGS, map(_row, found.items), right=("GPUS", "CPU", "MEMORY"), spare=("CPU", "MEMORY", "POOL"))
    else:
        click.echo("no nodes are declared")


def _row(view: NodeView) -> list[str]:
    node = view.node
    return [
        node.name,
        node.pool,
        node.gpu_type,
        f"{_gpus_held(view)}/{len(node.gpus)}" if node.gpus else "",
        f"{view.cpu_held}/{node.cpu}",
        f"{_whole(view.memory_held)}/{node.memory}",
        ", ".join(
            (
                state_of(node),
                *parts_of(view),
                *([by_whom(view.cordon)] if view.cordon else []),
                *map(health_words, view.health),
                *([view.nvlink] if view.nvlink else []),
            )
        ),
        short_list(view.jobs),
    ]


def _gpus_held(view: NodeView) -> MilliGpu:
    """Shares count as what they are of a GPU."""
    return MilliGpu(sum(MilliGpu.gpus(1) if part.share is None else part.share for part in view.held))


def _whole(memory: Memory) -> str:
    return str(memory) if memory else "0"


def parts_of(view: NodeView) -> Iterator[str]:
    """How many of its GPUs are partitioned by MIG, and how many are about to be, or to be whole again."""
    divided = [gpu for gpu in view.node.gpus if gpu.instances is not None]
    if divided:
        yield f"{count(sum(len(gpu.instances or ()) for gpu in divided), 'instance')} on {count(len(divided), 'GPU')}"
    if view.changing:
        yield f"{count(len(view.changing), 'GPU')} being partitioned"


def health_words(part: PartHealth) -> str:
    """`health: drained since 2026-11-20 09:00:00 +01:00: XID 79`; of a GPU, its name instead of the first word."""
    return f"{part.part or 'health'}: {part.state} since {local(part.since)}: {part.reason}"


def state_of(node: Node) -> str:
    """Whether the node takes work, and how many of its GPUs can't."""
    broken = sum(not gpu.healthy for gpu in node.gpus)
    words = ("" if node.ready else "not ready", "cordoned" if node.cordoned else "")
    said = ", ".join(word for word in words if word) or "ready"
    return f"{said}, {count(broken, 'unhealthy GPU')}" if broken and node.ready else said
