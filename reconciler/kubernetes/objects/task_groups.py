"""Task groups of YuniKorn: how many members an application is to have room for before any of it runs.

YuniKorn keeps room by placeholders. Here nothing is kept free for pods that are not there. One group whose members say so
themselves is a gang like any other. Of several, some come only once others run, as Spark's executors do: those are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.remarks import Refusal, Remark
from reconciler.kubernetes.objects.wire import Meta, Wire

_HARD: Final = re.compile(r"(^|\s)gangSchedulingStyle=hard(\s|$)", re.IGNORECASE)
_FIX: Final = f"Write {names.GANG} and {names.GANG_SIZE} on the pods that start together, or gangSchedulingStyle=Soft."


class _TaskGroup(Wire, frozen=True):
    name: str
    min_member: int = 0


class OneGroup(NamedTuple):
    """The only task group of an application, and how many members it needs."""

    application: str
    members: int


def one_group(meta: Meta) -> OneGroup | None:
    """Of which a pod is a member, and which it defines; None: it is in none, in one of several, or does not say its application."""
    if names.YUNIKORN_GROUPS not in meta.annotations:
        return None
    application = names.label_or_annotation(meta, *names.YUNIKORN_APP)
    try:
        groups = msgspec.json.decode(meta.annotations[names.YUNIKORN_GROUPS], type=tuple[_TaskGroup, ...])
    except msgspec.MsgspecError:
        return None
    if len(groups) != 1 or not application or meta.annotations.get(names.YUNIKORN_GROUP) != groups[0].name:
        return None
    return OneGroup(application, groups[0].min_member) if groups[0].min_member > 0 else None


def unfollowed(pods: Iterable[Meta]) -> Iterator[Refusal | Remark]:
    """What is to be said of a gang whose pods name task groups by which it does not go.

    An application may say that it runs without, too (style Soft, which is what YuniKorn assumes): that is what happens here.
    """
    said = [
        meta for meta in pods if not meta.annotations.keys().isdisjoint((names.YUNIKORN_GROUPS, names.YUNIKORN_GROUP))
    ]
    message = "its task groups of YuniKorn are not followed: nothing is kept free for pods that are not there yet"
    if any(_HARD.search(meta.annotations.get(names.YUNIKORN_PARAMETERS, "")) for meta in said):
        yield Refusal("task-groups", f"{message}, and gangSchedulingStyle=Hard forbids it to start without", _FIX)
    elif said:
        yield Remark("task-groups", message)
