"""What nodes tell of their GPUs' use: judged as it comes, remembered as the latest, and handed out to be kept.

What can't be true is refused, counted by the reason, and told: it is in no figure. Minutes wait here for some time, since writing
each as it comes would be two hundred rows a second in a large cluster; an agent tells them again to whatever leads next.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final, Literal, NamedTuple, get_args

from reconciler.model.clock import Clock
from reconciler.model.gpu_use import MINUTE, RECORD_BYTES, GpuMinute, NodeMinute, is_record
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Duration, Instant

UseRefusal = Literal["future", "late", "unreadable", "unknown-gpu", "two-places", "not-kept"]
"""`future`: of a minute that has not begun, by the clock here. `late`: of one as old as those that are deleted.
`unreadable`: no record. `unknown-gpu`: Git does not declare it there. `two-places`: its board was somewhere else in that minute or
a later one. `not-kept`: the store took nothing for hours, and the oldest had to go."""

REFUSALS: Final[tuple[UseRefusal, ...]] = get_args(UseRefusal)

AHEAD_MAX: Final = Duration(60_000)
"""So far the clocks of machines may differ."""
TOLD_EVERY: Final = Duration(3_600_000)
WAITING_MAX: Final = 240
"""Minutes of a node that wait to be kept."""


class UseRefused(NamedTuple):
    """Why something of a node does not count; `gpu`: "" for all of it."""

    node: NodeName
    gpu: str
    why: UseRefusal


class _Place(NamedTuple):
    node: NodeName
    gpu: DeviceId
    until: Instant
    """The newest minute in which the board was there."""


class _Waiting(NamedTuple):
    """A minute of a node as it waits: of 12,500 nodes there are hundreds of thousands. Those of a node share their `boards`."""

    start: Instant
    boards: tuple[tuple[DeviceId, str], ...]
    records: bytes

    def minute(self) -> NodeMinute:
        """As it was told."""
        pieces = (self.records[at : at + RECORD_BYTES] for at in range(0, len(self.records), RECORD_BYTES))
        return NodeMinute(
            self.start, tuple(GpuMinute(*board, piece) for board, piece in zip(self.boards, pieces, strict=True))
        )


class UseBook:
    """Threads may share it.

    `declared`: what Git says a node is. `keep`: for how long minutes are. `tell`: hears what is refused, each kind of a node once
    an hour.
    """

    def __init__(
        self,
        clock: Clock,
        declared: Callable[[NodeName], Node | None],
        keep: Callable[[], Duration],
        tell: Callable[[UseRefused], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._declared = declared
        self._keep = keep
        self._tell = tell
        self._lock = Lock()
        self._latest: dict[NodeName, NodeMinute] = {}
        self._waiting: dict[NodeName, list[_Waiting]] = {}
        self._boards_of: dict[NodeName, tuple[tuple[DeviceId, str], ...]] = {}
        self._handed: dict[NodeName, int] = {}
        self._hands = 0
        self._boards: dict[str, _Place] = {}
        self._refused: Counter[UseRefusal] = Counter()
        self._told: dict[tuple[NodeName, UseRefusal], Instant] = {}

    def hear(self, node: NodeName, minutes: Iterable[NodeMinute]) -> None:
        """What a node tells, in whatever order, and however often."""
        now, keep = self._clock.now(), self._keep()
        declared = self._declared(node)
        known = {gpu.id for gpu in declared.gpus} if declared else set()
        with self._lock:
            refused = [each for minute in minutes for each in self._take(node, minute, known, now, keep)]
            news = [each for each in refused if self._is_news(each, now)]
        for each in news:
            self._tell(each)

    def latest(self) -> Mapping[NodeName, NodeMinute]:
        """The newest minute of each node that has told any."""
        with self._lock:
            return dict(self._latest)

    def waiting(self, nodes: Collection[NodeName]) -> Mapping[NodeName, tuple[NodeMinute, ...]]:
        """Minutes of some nodes that wait to be kept."""
        with self._lock:
            found = {node: tuple(self._waiting.get(node, ())) for node in nodes}
        return {node: tuple(one.minute() for one in waiting) for node, waiting in found.items()}

    def refused(self) -> Mapping[UseRefusal, int]:
        """How many records, or minutes, do not count, by the reason."""
        with self._lock:
            return dict(self._refused)

    def due(self, limit: int) -> dict[NodeName, list[NodeMinute]]:
        """What waits to be kept of at most so many nodes: of those that were handed out longest ago. It is forgotten here."""
        with self._lock:
            nodes = heapq.nsmallest(limit, self._waiting, key=lambda node: (self._handed.get(node, 0), node))
            self._hands += 1
            self._handed |= dict.fromkeys(nodes, self._hands)
            return {node: [one.minute() for one in self._waiting.pop(node)] for node in nodes}

    def give_back(self, due: Mapping[NodeName, Sequence[NodeMinute]]) -> None:
        """It could not be kept: it waits again."""
        with self._lock:
            for node, minutes in due.items():
                before = (self._packed(node, minute) for minute in minutes)
                self._waiting[node] = [*before, *self._waiting.get(node, ())]
                self._bound(node)

    def _take(
        self, node: NodeName, minute: NodeMinute, known: Collection[DeviceId], now: Instant, keep: Duration
    ) -> Iterator[UseRefused]:
        why = _untimely(minute, now, keep)
        if why is not None:
            yield self._refuse(node, "", why)
            return
        counts: list[GpuMinute] = []
        for gpu in minute.gpus:
            wrong = self._wrong(node, minute.start, gpu, known)
            if wrong is not None:
                yield self._refuse(node, gpu.gpu, wrong)
            else:
                counts.append(gpu)
        if not counts:
            return
        taken = minute if len(counts) == len(minute.gpus) else NodeMinute(minute.start, tuple(counts))
        latest = self._latest.get(node)
        if latest is None or taken.start >= latest.start:
            self._latest[node] = taken
        self._waiting.setdefault(node, []).append(self._packed(node, taken))
        self._bound(node)

    def _wrong(self, node: NodeName, start: Instant, gpu: GpuMinute, known: Collection[DeviceId]) -> UseRefusal | None:
        if gpu.gpu not in known:
            return "unknown-gpu"
        if not is_record(gpu.record):
            return "unreadable"
        if not gpu.uuid:
            return None
        place = self._boards.get(gpu.uuid)
        is_here = place is not None and (place.node, place.gpu) == (node, gpu.gpu)
        if place is not None and not is_here and start <= place.until:
            return "two-places"
        if place is None or start > place.until:
            self._boards[gpu.uuid] = _Place(node, gpu.gpu, start)
        return None

    def _packed(self, node: NodeName, minute: NodeMinute) -> _Waiting:
        boards = tuple((gpu.gpu, gpu.uuid) for gpu in minute.gpus)
        if self._boards_of.get(node) != boards:
            self._boards_of[node] = boards
        return _Waiting(minute.start, self._boards_of[node], b"".join(gpu.record for gpu in minute.gpus))

    def _bound(self, node: NodeName) -> None:
        lost = len(self._waiting[node]) - WAITING_MAX
        if lost > 0:
            self._refused["not-kept"] += lost
            del self._waiting[node][:lost]

    def _refuse(self, node: NodeName, gpu: str, why: UseRefusal) -> UseRefused:
        self._refused[why] += 1
        return UseRefused(node, gpu, why)

    def _is_news(self, refused: UseRefused, now: Instant) -> bool:
        key = refused.node, refused.why
        told = self._told.get(key)
        if told is not None and 0 <= now - told < TOLD_EVERY:
            return False
        self._told[key] = now
        return True


def _untimely(minute: NodeMinute, now: Instant, keep: Duration) -> UseRefusal | None:
    if minute.start > now + AHEAD_MAX:
        return "future"
    if minute.start < now - keep:
        return "late"
    return "unreadable" if minute.start % MINUTE else None
