"""`kubectl quorate queues`: the quota tree, from the objects of queues.quorate.dev."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from reconciler.cli.kubectl.reader import Reader
from solver.model.document import API_VERSION, Document

HEADINGS: Final = (
    "QUEUE", "RUNNING", "PENDING", "GPU TYPE", "GUARANTEED", "MAX", "FAIR SHARE", "USED", "BORROWED", "WAITING",
)  # fmt: skip
NUMBERS: Final = set(HEADINGS) - {"QUEUE", "GPU TYPE"}
HOST_HEADINGS: Final = (
    "QUEUE", "RESOURCE", "GUARANTEED", "LENDABLE", "MAX", "PER USER", "FAIR SHARE", "USED", "WITHOUT GPUS", "BORROWED", "WAITING",
)  # fmt: skip
HOST_NUMBERS: Final = set(HOST_HEADINGS) - {"QUEUE", "RESOURCE"}
_HOST_FIELDS: Final = (
    "resource", "guaranteed", "lendable", "max", "perUser", "fairShare", "used", "withoutGpus", "borrowed", "pending",
)  # fmt: skip


class ToldQueue(Document, frozen=True, omit_defaults=False):
    """A queue as its object says it; `status` is the object's."""

    name: str
    status: dict[str, Any]

    @property
    def parent(self) -> str | None:
        """The queue above it; None: it is a root."""
        return self.status.get("parent")


class QueueListing(Document, frozen=True, omit_defaults=False):
    """All queues, sorted by name."""

    items: tuple[ToldQueue, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION


async def queues_of(reader: Reader) -> QueueListing:
    """All that there are."""
    found = sorted(await reader.queues(), key=lambda queue: queue.metadata.name)
    return QueueListing(tuple(ToldQueue(queue.metadata.name, queue.status) for queue in found))


def rows(found: QueueListing) -> Iterator[list[str]]:
    """Parents before their children, a line for each GPU type. A queue without its parent there stands at the top."""
    for depth, queue in _in_tree_order(found):
        jobs = queue.status.get("jobs", {})
        first = ["  " * depth + queue.name, str(jobs.get("running", "")), str(jobs.get("pending", ""))]
        lines = queue.status.get("gpus") or [{}]
        yield [*first, *_cells(lines[0])]
        yield from (["", "", "", *_cells(line)] for line in lines[1:])


def host_rows(found: QueueListing) -> Iterator[list[str]]:
    """The same of CPU and memory, as far as any queue has a quota of them."""
    for depth, queue in _in_tree_order(found):
        for number, line in enumerate(queue.status.get("host") or ()):
            told = {"lendable": "all", **line}
            yield ["  " * depth + queue.name if not number else "", *(str(told.get(of, "none")) for of in _HOST_FIELDS)]


def _in_tree_order(found: QueueListing, parent: str | None = None, depth: int = 0) -> Iterator[tuple[int, ToldQueue]]:
    known = {queue.name for queue in found.items}
    for queue in found.items:
        if (queue.parent if queue.parent in known else None) == parent:
            yield depth, queue
            yield from _in_tree_order(found, queue.name, depth + 1)


def _cells(line: dict[str, Any]) -> list[str]:
    if not line:
        return []
    fields = ("gpuType", "guaranteed", "max", "fairShare", "used", "borrowed", "pending")
    return [str(line.get(field, "none")) for field in fields]


def notes(found: QueueListing) -> Iterator[str]:
    """Which queues start no jobs, and whether a newer policy is held."""
    told: set[str] = set()
    for queue in found.items:
        for condition in queue.status.get("conditions", ()):
            if condition["type"] == "Ready" and condition["status"] == "False":
                yield f"queue {queue.name} starts no jobs: {condition['message']}"
            elif condition["type"] == "Stalled" and condition["status"] == "True" and condition["message"] not in told:
                told.add(condition["message"])
                yield f"a newer policy is not in force: {condition['message']}"
