"""The files by which tasks of an attempt see the gang's members now, and their hosts: no environment can change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from reconciler.node.local.attempts import Orders, in_rank_order
from reconciler.protocols.backend import Meeting
from reconciler.supervisor.taskfiles import write_durably
from solver.model.cluster import NodeName
from solver.model.document import Document, encode

GANG: Final = "gang.json"
HOSTS: Final = "hosts"
_THIS_MACHINE: Final = "127.0.0.1"


class RankedTask(Document, frozen=True, omit_defaults=False):
    """One task, and its rank among those that are there now."""

    group: str
    index: int
    rank: int
    node: NodeName


class GangFile(Document, frozen=True, omit_defaults=False):
    """The tasks that belong to an attempt, in the order of their ranks; `master`: HOST:PORT where they can meet."""

    attempt: int
    growth: int
    world: tuple[RankedTask, ...]
    master: str


def write_gang(attempt: Path, orders: Orders) -> None:
    """Bring the file up to date: tasks ordered and not told to leave. Only where something is new, and whole or not at all."""
    if not orders.accepted:
        return
    path, newest = attempt / GANG, max(orders.accepted)
    first, meeting = orders.accepted[min(orders.accepted)], orders.accepted[newest].order.meeting
    stay = [life.task for life in orders.gang.values() if orders.leave_of(life) is None]
    world = tuple(
        RankedTask(task.group, task.index, rank, task.node)
        for rank, task in enumerate(in_rank_order(stay, first.order.spec))
    )
    master = address_of(meeting, world[0].node) if world else _THIS_MACHINE
    gang = GangFile(first.order.attempt, newest, world, f"{master}:{first.master_port}")
    _write_if_new(path, encode(gang).decode())
    launcher = first.order.spec.launcher
    if launcher is not None:
        _write_if_new(attempt / HOSTS, hosts_of((member for member in world if member.group != launcher.name), meeting))


def hosts_of(members: Iterable[RankedTask], meeting: Meeting | None = None) -> str:
    """One line for each node, in the order of ranks, with how many tasks are there (mpirun(1), "Hostfiles").

    Where every node is this machine, they have one name; Open MPI adds up the slots of lines with the same one.
    """
    slots = Counter(member.node for member in members)
    return "".join(f"{address_of(meeting, node)} slots={number}\n" for node, number in slots.items())


def address_of(meeting: Meeting | None, node: NodeName) -> str:
    """Where a node of the gang can be reached from this one."""
    return meeting.addresses.get(node, _THIS_MACHINE) if meeting else _THIS_MACHINE


def _write_if_new(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        write_durably(str(path), text, 0o644)  # Its tasks may run as another user.
