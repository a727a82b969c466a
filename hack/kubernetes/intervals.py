"""Who held which device from when to when, by the API server's audit log alone, and what of that may not be.

It shares nothing with the scheduler: what it knows of Bindings is their annotations `quorate.dev/devices`, `share` and `epoch`.
A log that this can judge has the bodies of Bindings, of status writes and of deletions of pods (AUDIT_POLICY of cluster.py).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WHOLE = 1_000
"""A device has so many parts."""
OVER = ("Succeeded", "Failed")

Entry = dict[str, Any]
PodKey = tuple[str, str]
"""Namespace and name."""
Device = tuple[str, str]
"""Node, and the device there."""


class Violation(NamedTuple):
    """`kind`: double-bound, bound-twice, nowhere, stale-accepted or unguarded; `what` says it with names and times."""

    kind: str
    what: str


@dataclass
class _Holding:
    """What a pod holds since its Binding was accepted; `until`: when what ended that was received, "" while it lasts."""

    pod: PodKey
    devices: tuple[Device, ...]
    part: int
    since: str
    until: str = ""


@dataclass
class Intervals:
    """Reads entries in any order that `judged` is asked about together; it goes on where it was for each further heap.

    Times are of one clock, the server's: an entry says when a request was received, and when it was answered; what it did was
    done in between. A device counts as free from when the request that freed it was received. Who decides by what he has
    seen can't be earlier, so that nothing that is allowed is ever called a violation; at most the time of one request is missed.
    A pod that had no node when its deletion was received may get one before it is taken away: such a Binding holds nothing.
    """

    bindings: int = 0
    _held: dict[Device, list[_Holding]] = field(default_factory=lambda: defaultdict(list))
    _bound: dict[PodKey, _Holding] = field(default_factory=dict)
    _removed: dict[str, str] = field(default_factory=dict)
    """When the request was received that took a pod away, by its uid."""
    _nodes: set[str] = field(default_factory=set)
    _first_of: dict[int, str] = field(default_factory=dict)
    """When the first Binding of each epoch was answered."""

    def judged(self, entries: Iterable[Entry]) -> tuple[Violation, ...]:
        """What may not be, in the order of time. Entries of an earlier call are all older than these."""
        done = [entry for entry in entries if entry["stage"] == "ResponseComplete" and _is_accepted(entry)]
        found: list[Violation] = []
        for entry in sorted(done, key=_received):
            found += self._heard(entry)
        return tuple(found)

    def _heard(self, entry: Entry) -> Iterator[Violation]:
        match _kind_of(entry):
            case ("create", "nodes", ""):
                self._nodes.add(entry["objectRef"]["name"])
            case ("create", "pods", "binding"):
                yield from self._binding(entry)
            case ("delete", "pods", ""):
                removed = entry.get("responseObject") or {}
                if _is_removed(removed):
                    self._ended(entry, is_gone=True)
                    if uid := _uid_of(removed):
                        self._removed[uid] = _received(entry)
            case ("patch" | "update", "pods", "status"):
                if ((entry.get("requestObject") or {}).get("status") or {}).get("phase") in OVER:
                    self._ended(entry, is_gone=False)
            case _:
                pass  # it holds and frees nothing

    def _ended(self, entry: Entry, *, is_gone: bool) -> None:
        key = _pod_of(entry)
        holding = self._bound.get(key)
        if holding and not holding.until:
            holding.until = _received(entry)
        if is_gone:
            self._bound.pop(key, None)

    def _binding(self, entry: Entry) -> Iterator[Violation]:
        self.bindings += 1
        body = entry["requestObject"]
        holding = _holding(entry, body)
        where = f"{'/'.join(holding.pod)} on {body['target']['name']} at {holding.since}"
        if earlier := self._bound.get(holding.pod):
            yield Violation("bound-twice", f"{where}, and at {earlier.since}")
        if body["target"]["name"] not in self._nodes:
            yield Violation("nowhere", f"{where}: there never was such a node")
        if not body["metadata"].get("uid") or not body["metadata"].get("resourceVersion"):
            yield Violation("unguarded", f"{where}: without uid or resourceVersion")
        yield from self._of_epoch(entry, body, where)
        yield from self._taken(holding, where)
        holding.until = self._removed.get(_uid_of(body), "")
        if not holding.until:
            self._bound[holding.pod] = holding

    def _of_epoch(self, entry: Entry, body: Entry, where: str) -> Iterator[Violation]:
        epoch = int(body["metadata"].get("annotations", {}).get("quorate.dev/epoch", "0"))
        for newer in sorted(one for one in self._first_of if one > epoch):
            if self._first_of[newer] < _received(entry):
                yield Violation("stale-accepted", f"{where}: of epoch {epoch}, after the first of {newer}")
                break
        self._first_of.setdefault(epoch, entry["stageTimestamp"])

    def _taken(self, holding: _Holding, where: str) -> Iterator[Violation]:
        for device in holding.devices:
            there = [one for one in self._held[device] if not one.until or one.until > holding.since]
            if sum(one.part for one in there) + holding.part > WHOLE:
                others = ", ".join(f"{'/'.join(one.pod)} since {one.since}" for one in there)
                yield Violation("double-bound", f"{where}: {device[1]} was held by {others}")
            self._held[device] = [*there, holding]


def entries_of(lines: Iterable[str]) -> Iterator[Entry]:
    """The entries of an audit log about pods and nodes; a last line that is still being written is left out."""
    for line in lines:
        if '"resource":"pods"' not in line and '"resource":"nodes"' not in line:
            continue
        if line.endswith("\n"):
            yield json.loads(line)


def _kind_of(entry: Entry) -> tuple[str, str, str]:
    of = entry.get("objectRef") or {}
    return entry["verb"], of.get("resource", ""), of.get("subresource", "")


def _is_accepted(entry: Entry) -> bool:
    status: Entry = entry.get("responseStatus") or {}
    return int(status.get("code", 0)) // 100 == 2


def _received(entry: Entry) -> str:
    return str(entry["requestReceivedTimestamp"])


def _pod_of(entry: Entry) -> PodKey:
    return entry["objectRef"]["namespace"], entry["objectRef"]["name"]


def _uid_of(body: Entry) -> str:
    return str((body.get("metadata") or {}).get("uid", ""))


def _is_removed(pod: Entry) -> bool:
    """Whether a deletion took it away, rather than only asking it to leave."""
    meta: Entry = pod.get("metadata") or {}
    grace_s = int(meta.get("deletionGracePeriodSeconds", 0)) if "deletionTimestamp" in meta else 0
    return not (grace_s or meta.get("finalizers"))


def _holding(entry: Entry, body: Entry) -> _Holding:
    notes, node = body["metadata"].get("annotations", {}), body["target"]["name"]
    names = [name for name in notes.get("quorate.dev/devices", "").split(",") if name]
    share = notes.get("quorate.dev/share", "")
    return _Holding(
        _pod_of(entry),
        tuple((node, name) for name in names),
        _milli(share) if share else WHOLE,
        _received(entry),
    )


def _milli(share: str) -> int:
    """`500m` or `0.5`."""
    return int(share[:-1]) if share.endswith("m") else round(float(share) * WHOLE)
