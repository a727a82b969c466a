"""The account of GPUs: at every moment of a window each GPU is held, or else in one state; what that adds up to is the capacity.

Time is counted in thousandths of a GPU times milliseconds, as integers: nothing is rounded. A GPU of which jobs hold parts (MIG
instances, fractions) is divided by their shares, and what is left of it is in the state that it has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Final, Literal, NamedTuple

from reconciler.protocols.capacity import CapacitySpan, DeviceState, WatchSpan
from reconciler.protocols.placements import NodePlacement, Placement
from solver.model.cluster import DeviceId, GpuType
from solver.model.quantities import MILLI_PER_GPU, Instant

GpuTimeState = Literal["allocated", "idle", "reserved", "unhealthy", "partitioning"]
STATES: Final[tuple[GpuTimeState, ...]] = ("allocated", "idle", "reserved", "unhealthy", "partitioning")
UNITS_PER_GPU_SECOND: Final = MILLI_PER_GPU * 1_000


class GpuKind(NamedTuple):
    """GPUs that are counted together. `pool` "": of no node that was known."""

    pool: str
    gpu_type: GpuType


class HeldPiece(NamedTuple):
    """What a placement held of one kind of GPUs on one node, within the window."""

    of: NodePlacement
    kind: GpuKind
    since: Instant
    until: Instant

    @property
    def placement(self) -> Placement:
        """Of all nodes."""
        return self.of.placement

    @property
    def milli(self) -> int:
        """Thousandths of GPUs, all the time."""
        return int(self.of.gpus)

    @property
    def amount(self) -> int:
        """Thousandths of GPUs times milliseconds."""
        return self.milli * (self.until - self.since)


@dataclass
class GpuAccount:
    """`totals`: by kind and state. `held`: what that is made of as far as it is allocated, without an order.

    `overheld`: how much was held of GPUs beyond what they are: counted nowhere, and 0 as long as the ledger keeps its word.
    """

    start: Instant
    end: Instant
    totals: dict[GpuKind, Counter[GpuTimeState]] = field(default_factory=lambda: defaultdict(Counter))
    held: list[HeldPiece] = field(default_factory=list)
    overheld: int = 0

    def capacity(self, kind: GpuKind) -> int:
        """All there was of a kind."""
        return self.totals[kind].total()


class _There(NamedTuple):
    """A GPU's state from `since` until `until`; None: it is not there, and its node is."""

    since: int
    until: int
    state: DeviceState | None
    kind: GpuKind


class _Hold(NamedTuple):
    """So much of a GPU is held from `since` until `until`."""

    since: int
    until: int
    milli: int


def account_of(
    start: Instant, end: Instant, spans: Iterable[CapacitySpan], placed: Iterable[NodePlacement]
) -> GpuAccount:
    """Of a window that is over, or ends now. `spans` and `placed`: those that lie in it, by node and since when."""
    account = GpuAccount(start, end)
    held = {node: list(those) for node, those in groupby(placed, key=lambda one: one.node)}
    there = {node: list(those) for node, those in groupby(spans, key=lambda span: span.node)}
    for node in sorted(there.keys() | held.keys()):
        _add_node(account, there.get(node, ()), held.get(node, ()))
    return account


def unwatched(start: Instant, end: Instant, watches: Iterable[WatchSpan], gap: int) -> int:
    """Milliseconds of a window in which no leader was there to see changes. What is shorter than `gap` counts as seen."""
    missing, at = 0, int(start)
    for since, until in watches:
        missing += max(0, since - at)
        at = max(at, until)
    rest = max(0, end - at)
    return missing + (rest if rest > gap else 0)


def _add_node(account: GpuAccount, spans: Sequence[CapacitySpan], placed: Sequence[NodePlacement]) -> None:
    holds = _holds(account, placed)
    there = _states(account, spans, holds)
    alike = Counter((tuple(there.get(gpu, ())), tuple(holds.get(gpu, ()))) for gpu in there.keys() | holds.keys())
    gpu_type = next((one.placement.gpu_type for one in placed if one.placement.gpu_type), GpuType(""))
    for (states, held), number in alike.items():
        for kind, state, amount in _divided(states, held, GpuKind("", gpu_type)):
            if state == "overheld":
                account.overheld += number * amount
            else:
                account.totals[kind][state] += number * amount
    account.held += _pieces(account, spans, placed, GpuKind("", gpu_type))


def _states(
    account: GpuAccount, spans: Iterable[CapacitySpan], held: Iterable[DeviceId]
) -> Mapping[DeviceId, list[_There]]:
    """By GPU, one after the other. `held`: GPUs that may have gone from the node before their jobs have."""
    found = defaultdict[DeviceId, list[_There]](list)
    gone: Mapping[DeviceId, DeviceState | None] = dict.fromkeys(held)
    for _, begun, over, (pool, gpu_type, devices, states) in spans:
        since, until = _within(account, begun, over)
        kind = GpuKind(pool, gpu_type)
        for device, state in {**gone, **dict(zip(devices, states, strict=True))}.items():
            found[device].append(_There(since, until, state, kind))
    return found


def _holds(account: GpuAccount, placed: Iterable[NodePlacement]) -> Mapping[DeviceId, list[_Hold]]:
    """By GPU, whatever part of it is held."""
    found = defaultdict[DeviceId, list[_Hold]](list)
    for one in placed:
        since, until = _within(account, one.placement.since, one.placement.until)
        if since >= until:
            continue
        for task in one.tasks:
            each = int(task.gpus) // max(1, len(task.on_gpus))
            for device in task.on_gpus:
                found[device].append(_Hold(since, until, each))
    return found


def _divided(
    states: Sequence[_There], held: Sequence[_Hold], unknown: GpuKind
) -> Iterator[tuple[GpuKind, GpuTimeState | Literal["overheld"], int]]:
    """The time of one GPU. While nothing says that it is there it counts as far as it is held, as of `unknown` kind."""
    change: Counter[int] = Counter()
    for since, until, milli in held:
        change[since] += milli
        change[until] -= milli
    moments = sorted({*change, *(one.since for one in states), *(one.until for one in states)})
    level, place = 0, 0
    for at, following in pairwise(moments):
        level += change.get(at, 0)
        while place < len(states) and states[place].until <= at:
            place += 1
        lasted, within = following - at, min(level, MILLI_PER_GPU)
        there = states[place] if place < len(states) and states[place].since <= at else None
        kind = there.kind if there else unknown
        if within:
            yield kind, "allocated", within * lasted
        if there and there.state and within < MILLI_PER_GPU:
            yield kind, there.state, (MILLI_PER_GPU - within) * lasted
        if level > within:
            yield kind, "overheld", (level - within) * lasted


def _pieces(
    account: GpuAccount, spans: Iterable[CapacitySpan], placed: Iterable[NodePlacement], unknown: GpuKind
) -> Iterator[HeldPiece]:
    """What is held of a node, cut where its GPUs come to be of another kind."""
    kinds = list(_kinds(account, spans))
    for one in placed:
        since, until = _within(account, one.placement.since, one.placement.until)
        if one.gpus == 0 or since >= until:
            continue
        at = since
        for begun, over, kind in kinds:
            if over <= at or begun >= until:
                continue
            if at < begun:
                yield HeldPiece(one, unknown, Instant(at), Instant(begun))
            first, at = max(begun, at), min(over, until)
            yield HeldPiece(one, kind, Instant(first), Instant(at))
        if at < until:
            yield HeldPiece(one, unknown, Instant(at), Instant(until))


def _kinds(account: GpuAccount, spans: Iterable[CapacitySpan]) -> Iterator[tuple[int, int, GpuKind]]:
    """Of which kind the GPUs of a node are, from when to when."""
    following: tuple[int, int, GpuKind] | None = None
    for _, begun, over, capacity in spans:
        since, until = _within(account, begun, over)
        kind = GpuKind(capacity.pool, capacity.gpu_type)
        if following and following[1] == since and following[2] == kind:
            following = following[0], until, kind
        else:
            if following:
                yield following
            following = since, until, kind
    if following:
        yield following


def _within(account: GpuAccount, since: Instant, until: Instant | None) -> tuple[int, int]:
    return max(since, account.start), account.end if until is None else min(until, account.end)
