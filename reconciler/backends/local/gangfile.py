"""The file by which every task of an attempt sees who is in the gang now, though its own environment can't change."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reconciler.backends.local.attempts import Orders, in_rank_order
from reconciler.supervisor.taskfiles import write_durably
from solver.world.cluster import NodeName
from solver.world.document import Document, encode

GANG: Final = "gang.json"


class Member(Document, frozen=True, omit_defaults=False):
    """One task, and its rank among those that are there now."""

    group: str
    index: int
    rank: int
    node: NodeName


class Gang(Document, frozen=True, omit_defaults=False):
    """The tasks that belong to an attempt, in the order of their ranks; `master`: HOST:PORT where they can meet."""

    attempt: int
    growth: int
    world: tuple[Member, ...]
    master: str


def write_gang(attempt: Path, orders: Orders) -> None:
    """Bring the file up to date: who was ordered and not told to leave. Only where something is new, and whole or not at all."""
    if not orders.accepted:
        return
    path, newest = attempt / GANG, max(orders.accepted)
    first = orders.accepted[min(orders.accepted)]
    stay = [life.task for life in orders.lives.values() if orders.leave_of(life) is None]
    world = tuple(
        Member(task.group, task.index, rank, task.node)
        for rank, task in enumerate(in_rank_order(stay, first.order.spec))
    )
    text = encode(Gang(first.order.attempt, newest, world, f"127.0.0.1:{first.master_port}"))
    if not path.exists() or path.read_bytes() != text:
        write_durably(str(path), text.decode(), 0o644)  # Its tasks may run as another user.
