"""What was held, as pages show it: read once, however many look, and added up where it is too much to be drawn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from reconciler.api.services import Services
from reconciler.api.timeline import SPANS_MAX, TimeWindow, added_up
from reconciler.protocols.placements import NodePlacement, Placement, Steps, Use
from reconciler.web.memo import Memo, PassMemo
from reconciler.web.time_window import ShownWindow
from solver.model.cluster import GpuType, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import QueueName

_STEPS_AIMED_AT: Final = 96
_MINUTE: Final = 60_000
_STEPS: Final = tuple(
    Duration(minutes * _MINUTE)
    for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 10_080, 43_200)
)

T = TypeVar("T")
KeyT = TypeVar("KeyT")
QueueAndType = tuple[QueueName, GpuType]


class HeldOverTime(NamedTuple, Generic[KeyT]):
    """GPUs held on average in each step, by what they are counted for; what was nothing is left out.

    `until`: how far it was added up; the last step may not be over then.
    """

    steps: Steps
    until: Instant
    of: Mapping[KeyT, tuple[MilliGpu, ...]]

    @property
    def steps_over(self) -> float:
        """How many of them have passed."""
        return round(min(self.steps.number, (self.until - self.steps.start) / self.steps.step), 3)


class PastReader:
    """Of one server. Where no placements are kept, nothing is known of it.

    Placements are read once for a pass. What the store adds up may be all that it has, and is read once a minute.
    """

    def __init__(self, services: Services, memo: PassMemo) -> None:
        self._services, self._memo, self._sums = services, memo, Memo()

    @property
    def is_kept(self) -> bool:
        """Whether there is a record of it."""
        return self._services.placements is not None

    def on_nodes(self, nodes: Sequence[NodeName], shown: ShownWindow) -> tuple[NodePlacement, ...] | None:
        """Placements on these nodes; None: there are too many."""
        placements, (start, end, _) = self._services.placements, shown.past
        if placements is None or end <= start:
            return ()

        def read() -> tuple[NodePlacement, ...] | None:
            found = placements.on_nodes(nodes, start, end, SPANS_MAX + 1)
            return found if len(found) <= SPANS_MAX else None

        return self._once(self._memo, ("on-nodes", tuple(nodes)), shown, read)

    def in_queues(self, queues: Sequence[QueueName], shown: ShownWindow) -> tuple[Placement, ...] | None:
        """Placements of these queues; None: there are too many."""
        placements, (start, end, _) = self._services.placements, shown.past
        if placements is None or end <= start:
            return ()

        def read() -> tuple[Placement, ...] | None:
            found = placements.in_queues(queues, start, end, SPANS_MAX + 1)
            return found if len(found) <= SPANS_MAX else None

        return self._once(self._memo, ("in-queues", tuple(queues)), shown, read)

    def use_of_nodes(self, nodes: Sequence[NodeName], shown: ShownWindow) -> HeldOverTime[NodeName]:
        """What was held of each."""
        placements, window = self._services.placements, shown.past
        steps = steps_of(window)

        def read() -> HeldOverTime[NodeName]:
            used = placements.use_of_nodes(nodes, steps, window.now) if placements is not None and steps.number else {}
            return HeldOverTime(steps, window.end, {node: window.averages(steps, use) for node, use in used.items()})

        return self._once(self._sums, ("use-of-nodes", tuple(nodes)), shown, read)

    def use_of_queues(self, row_of: Mapping[QueueName, QueueName], shown: ShownWindow) -> HeldOverTime[QueueAndType]:
        """What was held in each row of queues, of each GPU type: keys are pairs of them."""
        placements = self._services.placements

        def read() -> tuple[TimeWindow, Mapping[QueueAndType, Use]]:
            window, steps = shown.past, steps_of(shown.past)
            if placements is None or not steps.number:
                return window, {}
            return window, placements.use_of_queues(steps, window.now)

        # As of when it was read.
        window, used = self._once(self._sums, "use-of-queues", shown, read)
        steps = steps_of(window)
        rows = added_up(row_of, used, steps)
        return HeldOverTime(steps, window.end, {row: window.averages(steps, use) for row, use in rows.items()})

    @staticmethod
    def _once(memo: Memo, key: Hashable, shown: ShownWindow, read: Callable[[], T]) -> T:
        return memo.of((key, shown.start, shown.end, shown.now // _MINUTE), read)


def held_in_all(held: HeldOverTime[QueueAndType]) -> dict[QueueName, tuple[int, ...]]:
    """Of each row of queues, all GPU types together."""
    found: dict[QueueName, tuple[int, ...]] = {}
    for (row, _), values in held.of.items():
        before = found.get(row, (0,) * len(values))
        found[row] = tuple(map(int.__add__, before, values))
    return found


def by_type(held: HeldOverTime[QueueAndType]) -> dict[GpuType, dict[QueueName, tuple[MilliGpu, ...]]]:
    """Of each GPU type, row by row."""
    found: dict[GpuType, dict[QueueName, tuple[MilliGpu, ...]]] = {}
    for (row, gpu_type), values in sorted(held.of.items()):
        found.setdefault(gpu_type, {})[row] = values
    return found


def steps_of(window: TimeWindow) -> Steps:
    """In which a picture adds up: of a length that people count in; none where the window has no length."""
    length = window.end - window.start
    step = next((each for each in _STEPS if length <= each * _STEPS_AIMED_AT), Duration(-(-length // _STEPS_AIMED_AT)))
    return Steps(window.start, step, -(-length // step) if length > 0 else 0)
