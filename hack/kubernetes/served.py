"""Lists and watches answered from memory, so that what is measured of a cluster is the reader's work and no server's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from reconciler.kubernetes.client.refusals import refusal
from reconciler.kubernetes.objects.resource import Resource

T = TypeVar("T")
Sent = dict[str, Any]
Name = tuple[str, str]

_FIELDS = [{"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "2026-11-20T08:00:00Z"}]
"""What the server keeps of each writer, and nobody here reads; with what it wrote, as large as the object."""


_EXPIRED = msgspec.json.encode({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})


class ServedObjects:
    """Stands for a session with an API server that has objects of some kinds and no others: `get` lists, `stream` watches.

    `put` and `drop` change what there is, under a new resourceVersion, and tell the watches of it. What happens before a kind is
    first listed is not kept for its watches.
    """

    def __init__(self, *kinds: Resource) -> None:
        self._kinds = {kind.path(): kind for kind in kinds}
        self._objects: dict[str, dict[Name, Sent]] = {path: {} for path in self._kinds}
        self._happened: dict[str, list[tuple[int, bytes]]] = {}
        self._forgotten: dict[str, int] = {}
        self._watches: dict[str, list[asyncio.Queue[bytes]]] = {path: [] for path in self._kinds}
        self._revision = 1
        self._made = 0

    def fill(self, kind: Resource, objects: Iterable[Sent]) -> None:
        """These are there before anything is watched."""
        for sent in objects:
            self.put(kind, sent)

    def put(self, kind: Resource, sent: Sent) -> None:
        """It is made, or is so from now on."""
        there, name = self._objects[kind.path()], _name(sent)
        before = there.get(name)
        self._revision += 1
        if before is None:
            self._made += 1
        uid = before["metadata"]["uid"] if before else f"00000000-0000-4000-8000-{self._made:012}"
        made = {"uid": uid, "resourceVersion": str(self._revision)}
        written: Sent = {"f:metadata": {"f:labels": {key: {} for key in sent["metadata"].get("labels", ())}}}
        fields = [
            {**one, "fieldsV1": {**written, "f:spec": {key: {} for key in sent.get("spec", ())}}} for one in _FIELDS
        ]
        meta = {"creationTimestamp": "2026-11-20T08:00:00Z", **sent["metadata"], **made, "managedFields": fields}
        there[name] = {**sent, "metadata": meta}
        self._tell(kind, "MODIFIED" if before else "ADDED", there[name])

    def drop(self, kind: Resource, namespace: str, name: str) -> None:
        """It is gone."""
        self._revision += 1
        gone = self._objects[kind.path()].pop((namespace, name))
        gone["metadata"]["resourceVersion"] = str(self._revision)
        self._tell(kind, "DELETED", gone)

    def there(self, kind: Resource) -> dict[Name, Sent]:
        """The objects of a kind, by namespace and name."""
        return self._objects[kind.path()]

    async def get(self, path: str, kind: type[T], parameters: Mapping[str, str]) -> T:
        """A page of a list. NotFoundError of a kind that is not served."""
        objects = self._known(path)
        self._happened.setdefault(path, [])
        first, limit = int(parameters.get("continue", 0)), int(parameters.get("limit", len(objects) or 1))
        listed = list(objects.values())[first : first + limit]
        more = str(first + limit) if first + limit < len(objects) else ""
        page = {"metadata": {"resourceVersion": str(self._revision), "continue": more}, "items": listed}
        return msgspec.json.decode(msgspec.json.encode(page), type=kind)

    def forget(self, kind: Resource) -> None:
        """What happened to a kind is not known any more: its watches end, and all of it is to be listed again."""
        watches, self._watches[kind.path()] = self._watches[kind.path()], []
        self._happened[kind.path()] = []
        self._forgotten[kind.path()] = self._revision
        for told in watches:
            told.put_nowait(_EXPIRED)

    async def stream(self, path: str, parameters: Mapping[str, str], *_: object) -> AsyncGenerator[bytes]:
        """What has changed since a resourceVersion, and what does from now on."""
        self._known(path)
        since = int(parameters["resourceVersion"])
        if since < self._forgotten.get(path, 0):
            yield _EXPIRED
        told: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches[path].append(told)
        for revision, line in self._happened[path]:
            if revision > since:
                told.put_nowait(line)
        while True:
            lines = [await told.get()]
            while not told.empty():
                lines.append(told.get_nowait())
            yield b"\n".join(lines)

    def _known(self, path: str) -> dict[Name, Sent]:
        if path not in self._objects:
            raise refusal(f"GET {path}", 404, b"")
        return self._objects[path]

    def _tell(self, kind: Resource, event: str, sent: Sent) -> None:
        happened = self._happened.get(kind.path())
        if happened is not None:
            line = msgspec.json.encode({"type": event, "object": sent})
            happened.append((self._revision, line))
            for told in self._watches[kind.path()]:
                told.put_nowait(line)


def _name(sent: Sent) -> Name:
    return sent["metadata"].get("namespace", ""), sent["metadata"]["name"]
