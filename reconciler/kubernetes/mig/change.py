"""What stands on a node whose GPUs Quorate has had partitioned anew, and what has become of it. Pure."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from reconciler.kubernetes.binder.records import UnreadableRecordError, read_record
from reconciler.kubernetes.mig.slots import Slots, offered_slots, offers_of
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.wire import KubeNode
from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Duration, Instant

DEADLINE: Final = Duration(15 * 60_000)
"""The MIG manager takes a minute or two, and may restart the node."""
REST: Final = Duration(10 * 60_000)
"""So long a node is left alone after a change that came to nothing."""
HOUR: Final = Duration(60 * 60_000)

Fate = Literal["made", "failed", "overdue", "taken-over"]
"""taken-over: another program has written the label since."""


class Made(Document, frozen=True):
    """So many GPUs of the node were to be changed then."""

    at: Instant
    gpus: int


class MigChange(Document, frozen=True):
    """The newest change of a node (`uid`) that Quorate asked for: the named `config`, how the node will be seen, by when.

    `gpus`: how many the node has. `before`: changes of the hour before it, and this one. `fate` None: not known yet.
    """

    uid: str
    config: str
    attempt: int
    asked_at: Instant
    deadline: Instant
    gpus: int
    gpu_type: GpuType
    slots: Slots
    before: tuple[Made, ...] = ()
    fate: Fate | None = None
    ended_at: Instant | None = None


def change_on(node: KubeNode) -> MigChange | None:
    """What stands on a node. What can't be read, or was copied from another, counts as nothing."""
    said = node.metadata.annotations.get(names.MIG)
    if said is None:
        return None
    try:
        change = read_record(said, MigChange)
    except UnreadableRecordError:
        return None
    return change if change.uid == node.metadata.uid else None


def fate_of(node: KubeNode, change: MigChange, now: Instant) -> Fate | None:
    """What has become of a change; None: it is on its way.

    What is said of the label is believed before what is said of time: a change that is made late is made.
    """
    if config_of(node) != change.config:
        return "taken-over"
    if change.fate and change.fate != "taken-over":
        return change.fate
    state = node.metadata.labels.get(names.MIG_STATE, "")
    if state == "success" and offered_slots(node) == offers_of(change.slots):
        return "made"
    if state == "failed":
        return "failed"
    return "overdue" if now >= change.deadline else None


def config_of(node: KubeNode) -> str:
    """The config that the node's label names; "": it has none, so that no MIG manager looks after it."""
    return node.metadata.labels.get(names.MIG_CONFIG, "")


def made_lately(change: MigChange | None, now: Instant) -> tuple[Made, ...]:
    """Changes of a node within the last hour."""
    return tuple(made for made in change.before if made.at > now - HOUR) if change else ()


def ended_change(change: MigChange, fate: Fate, now: Instant) -> MigChange:
    """The change with what became of it."""
    return msgspec.structs.replace(change, fate=fate, ended_at=now)
