"""What GPUs did while jobs held them: measured use is joined to what was held, by days, hours and minutes that lie wholly in it.

A stretch counts for a job if the job held the GPU whole, from its begin to its end. So of a minute in which a job began, and of
GPUs that are divided or shared, nothing is measured. Each stretch is the longest that fits: what is over stays known by hours and
days when its minutes are deleted, and the ends of what was held are not known any more then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from reconciler.analysis.showback.account import HeldPiece
from reconciler.analysis.showback.statement import MeasuredUse, UsedTime
from reconciler.protocols.gpu_use import HALF_PERCENTS, STEPS, ActiveTime, PlaceInUse, UseStep, UseStretch
from reconciler.protocols.placements import NodePlacement
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import MILLI_PER_GPU, Instant, MilliGpu

_LONGEST_FIRST: Final[tuple[UseStep, ...]] = ("day", "hour", "minute")
_MINUTE: Final = MILLI_PER_GPU * STEPS["minute"]
"""A minute of a whole GPU, in the account's units. A half per cent of it is a whole number of them."""
_HALF_PERCENT: Final = _MINUTE // HALF_PERCENTS

NODES_AT_ONCE: Final = 500

StretchesOfNodes = Mapping[UseStep, Mapping[NodeName, set[UseStretch]]]
KnownActivity = Mapping[UseStep, Mapping[PlaceInUse, Mapping[UseStretch, ActiveTime]]]
ReadActivity = Callable[
    [UseStep, Mapping[NodeName, Collection[UseStretch]]], Mapping[PlaceInUse, Mapping[UseStretch, ActiveTime]]
]
"""As GpuUses reads it."""


def measured_use(
    pieces: Iterable[HeldPiece], kept_since: Mapping[UseStep, Instant], active: ReadActivity
) -> MeasuredUse:
    """What is known of these very pieces, which are by node: some nodes are read after the others.

    A month of 100,000 GPUs has millions of stretches: what is known of each is added up to what is known of its piece at once.
    """
    found: dict[int, UsedTime] = {}
    for some in _of_some_nodes(pieces):
        used = measured_by({step: active(step, of) for step, of in stretches_of(some, kept_since).items()})
        found |= {id(piece): known for piece in some if (known := used(piece)) is not None}
    return lambda piece: found.get(id(piece))


def _of_some_nodes(pieces: Iterable[HeldPiece]) -> Iterator[list[HeldPiece]]:
    nodes, some = 0, list[HeldPiece]()
    for _, own in groupby(pieces, key=lambda piece: piece.of.node):
        some += own
        nodes += 1
        if nodes == NODES_AT_ONCE:
            yield some
            nodes, some = 0, []
    yield some


def stretches_of(pieces: Iterable[HeldPiece], kept_since: Mapping[UseStep, Instant]) -> StretchesOfNodes:
    """What has to be known for these pieces. `kept_since`: what was over before is not kept any more, and not asked for."""
    found: dict[UseStep, dict[NodeName, set[UseStretch]]] = {step: defaultdict(set) for step in _LONGEST_FIRST}
    for piece in pieces:
        if any(True for _ in whole_gpus_of(piece.of)):
            for step, stretch in _divided(piece.since, piece.until, _LONGEST_FIRST):
                if stretch.end > kept_since[step]:
                    found[step][piece.of.node].add(stretch)
    return found


def measured_by(known: KnownActivity) -> MeasuredUse:
    """How much of a piece was measured, and how much of that was active, by what is known of its GPUs."""

    def used(piece: HeldPiece) -> UsedTime | None:
        minutes = half_percents = 0
        for step, stretch in _divided(piece.since, piece.until, _LONGEST_FIRST):
            of_step = known[step]
            for gpu in whole_gpus_of(piece.of):
                of_gpu = of_step.get((piece.of.node, gpu))
                active = of_gpu.get(stretch) if of_gpu else None
                if active is not None:
                    minutes += active.minutes
                    half_percents += active.half_percents
        return UsedTime(minutes * _MINUTE, half_percents * _HALF_PERCENT) if minutes else None

    return used


def whole_gpus_of(placed: NodePlacement) -> Iterator[DeviceId]:
    """The GPUs that a placement has whole on a node: of others it is not known which job used them."""
    for task in placed.tasks:
        if task.instance_of is None and task.gpus == MilliGpu.gpus(len(task.devices)):
            yield from task.devices


def _divided(since: int, until: int, steps: tuple[UseStep, ...]) -> Iterator[tuple[UseStep, UseStretch]]:
    """What lies wholly in a time, in steps that are as long as may be: at most five stretches, none of which overlap."""
    if not steps or since >= until:
        return
    step, *finer = steps
    length = STEPS[step]
    first, last = -(-since // length) * length, until // length * length
    if first >= last:
        yield from _divided(since, until, tuple(finer))
        return
    yield from _divided(since, first, tuple(finer))
    yield step, UseStretch(Instant(first), Instant(last))
    yield from _divided(last, until, tuple(finer))
