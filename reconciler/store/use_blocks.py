"""Blocks of use: the records of a node's GPUs over sixty minutes, a day's hours or thirty-two days, packed into one value.

A block has a row for each board, and in it the first byte of all records, then the second, and so on: neighbours are alike, which
Zstandard makes use of. What a row was not told is 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from reconciler.model.gpu_use import (
    HEADER_BYTES,
    METRICS,
    QUANTILE_SAMPLES_MIN,
    RECORD_BYTES,
    UNKNOWN,
    code_of,
    rank_of,
    value_of,
)
from reconciler.store.round_records import BadPackingError, pack, unpack
from solver.model.cluster import DeviceId, NodeName

Board = tuple[DeviceId, str]
"""Where it is, and its UUID."""

_UUID: Final = re.compile(r"GPU-([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})")
_RAW: Final = "="
"""Before the id of a GPU that does not begin with its node's name."""
_HEX, _TEXT = b"G", b"="
"""Before a UUID in bytes, and before one that is no such number."""


class _Packed(msgspec.Struct, array_like=True):
    boards: list[tuple[str, bytes]]
    records: bytes


_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder(_Packed)


def _values(metric_at: int) -> npt.NDArray[np.float64]:
    return np.array([value_of(METRICS[metric_at], code) or 0.0 for code in range(256)])


_VALUES: Final = np.stack([_values(at) for at in range(len(METRICS))])
_ACTIVE_AT: Final = HEADER_BYTES + 4 * METRICS.index("active")
_METRIC_ROWS: Final = np.arange(len(METRICS))[:, None]


class UseBlock:
    """Of one node, for so many `steps`."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._rows: dict[Board, bytearray] = {}

    @property
    def boards(self) -> tuple[Board, ...]:
        """Those that something is known of."""
        return tuple(self._rows)

    def at(self, board: Board, step: int) -> bytes:
        """The record of a step."""
        return bytes(self._rows[board][step :: self.steps]) if board in self._rows else UNKNOWN

    def known(self, board: Board) -> Iterator[tuple[int, bytes]]:
        """Steps of which something is known, and their records."""
        row = self._rows[board]
        return ((step, bytes(row[step :: self.steps])) for step in range(self.steps) if row[step])

    def tell(self, board: Board, step: int, record: bytes) -> bool:
        """A sampler's word; whether that is news. The greater record counts."""
        return record > self.at(board, step) and self._put(board, step, record)

    def make(self, board: Board, step: int, record: bytes) -> bool:
        """What was made of a finer block anew; whether that is news. Not of one of which less is there than there was."""
        before = self.at(board, step)
        fuller = record[1:HEADER_BYTES] >= before[1:HEADER_BYTES]
        return fuller and record != before and self._put(board, step, record)

    def rolled(self, board: Board, *, by_cover: bool) -> bytes:
        """One record of all steps: of the source that most of them have, and of no other.

        `by_cover`: a step counts by how much it covers, and not as one.
        """
        codes = np.frombuffer(self._rows[board], np.uint8).reshape(RECORD_BYTES, self.steps)
        sources = np.bincount(codes[0], minlength=2)[1:]
        if not sources.any():
            return UNKNOWN
        source = len(sources) - int(np.argmax(sources[::-1]))
        chosen = codes[:, codes[0] == source]
        covers = chosen[1].astype(np.int64) * 256 + chosen[2] if by_cover else np.ones(chosen.shape[1], np.int64)
        covered = min(int(covers.sum()), 2**16 - 1)
        figures = chosen[HEADER_BYTES:].reshape(len(METRICS), 4, chosen.shape[1])
        return bytes((source, *covered.to_bytes(2))) + _rolled_figures(figures[:, 0], figures[:, 1], covers)

    def pack(self, node: NodeName) -> bytes:
        """As it is kept."""
        boards = sorted(self._rows)
        named = [(_short(node, gpu), _packed_uuid(uuid)) for gpu, uuid in boards]
        return pack(_PACK.encode(_Packed(named, b"".join(self._rows[board] for board in boards))))

    @classmethod
    def unpacked(cls, node: NodeName, steps: int, stored: bytes) -> UseBlock:
        """From what `pack` made. Raises BadPackingError."""
        packed, size, found = _read(steps, stored), steps * RECORD_BYTES, cls(steps)
        for at, (gpu, uuid) in enumerate(packed.boards):
            board = _whole(node, gpu), _unpacked_uuid(uuid)
            found._rows[board] = bytearray(packed.records[at * size : (at + 1) * size])
        return found

    def _put(self, board: Board, step: int, record: bytes) -> bool:
        if board not in self._rows:
            self._rows[board] = bytearray(self.steps * RECORD_BYTES)
        self._rows[board][step :: self.steps] = record
        return True


class BlockActivity(NamedTuple):
    """How active GPUs were in a block: for each, sums of its first 0, 1, 2 ... steps: of known minutes, and of their means."""

    gpus: tuple[DeviceId, ...]
    minutes: npt.NDArray[np.int64]
    half_percents: npt.NDArray[np.int64]


def block_activity(node: NodeName, steps: int, stored: bytes, minutes_max: int) -> BlockActivity:
    """Of what `pack` made; a step has so many minutes at most. Raises BadPackingError.

    Where steps are minutes, a record covers samples: it counts as one.
    """
    packed = _read(steps, stored)
    codes = np.frombuffer(packed.records, np.uint8).reshape(len(packed.boards), RECORD_BYTES, steps)
    active, high, low = (codes[:, at].astype(np.int64) for at in (_ACTIVE_AT, 1, 2))
    minutes = np.where(active > 0, np.minimum(high * 256 + low, minutes_max), 0)
    half_percents = minutes * (active - 1)
    places = [_whole(node, short) for short, _ in packed.boards]
    gpus = tuple(dict.fromkeys(places))
    if len(gpus) < len(places):
        minutes, half_percents = _together([gpus.index(gpu) for gpu in places], minutes, half_percents, minutes_max)
    return BlockActivity(gpus, _sums(minutes), _sums(half_percents))


def _together(
    rows: list[int], minutes: npt.NDArray[np.int64], half_percents: npt.NDArray[np.int64], minutes_max: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Boards that followed each other in one place add up; where both can't be, the one of which more is known counts."""
    known = np.zeros((max(rows) + 1, minutes.shape[1]), np.int64)
    active = np.zeros_like(known)
    for row, own, means in zip(rows, minutes, half_percents, strict=True):
        is_more = (own > known[row]) | ((own == known[row]) & (means > active[row]))
        both = known[row] + own <= minutes_max
        active[row] = np.where(both, active[row] + means, np.where(is_more, means, active[row]))
        known[row] = np.where(both, known[row] + own, np.maximum(known[row], own))
    return known, active


def _sums(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate((np.zeros((len(values), 1), np.int64), np.cumsum(values, 1)), 1)


def _read(steps: int, stored: bytes) -> _Packed:
    try:
        packed = _UNPACK.decode(unpack(stored))
    except msgspec.MsgspecError as error:
        raise BadPackingError(str(error)) from error
    if len(packed.records) != steps * RECORD_BYTES * len(packed.boards):
        raise BadPackingError(f"{len(packed.records)} bytes are not records of {len(packed.boards)} GPUs")
    return packed


def _rolled_figures(means: npt.NDArray[np.uint8], least: npt.NDArray[np.uint8], covers: npt.NDArray[np.int64]) -> bytes:
    """Codes of mean, min, p10 and p90 of each metric, of those steps that have it."""
    values, known = _VALUES[_METRIC_ROWS, means], means > 0
    weights = known * covers
    totals = weights.sum(1)
    sums = (values * weights).sum(1)
    # What is not known sorts behind everything else.
    ranked = np.sort(np.where(known, means, 255), 1)
    lowest = np.where(least > 0, least, 255).min(1)
    found = bytearray()
    for at, metric in enumerate(METRICS):
        number = int(known[at].sum())
        mean = code_of(metric, float(sums[at] / totals[at])) if number else 0
        low = int(lowest[at]) if number and (least[at] > 0).any() else 0
        p10, p90 = (
            (int(ranked[at, rank_of(0.1, number)]), int(ranked[at, rank_of(0.9, number)]))
            if number >= QUANTILE_SAMPLES_MIN
            else (0, 0)
        )
        found += bytes((mean, low, p10, p90))
    return bytes(found)


def _short(node: NodeName, gpu: DeviceId) -> str:
    rest = gpu.removeprefix(f"{node}/")
    return _RAW + gpu if rest == gpu or rest.startswith(_RAW) else rest


def _whole(node: NodeName, short: str) -> DeviceId:
    return DeviceId(short[1:] if short.startswith(_RAW) else f"{node}/{short}")


def _packed_uuid(uuid: str) -> bytes:
    written = _UUID.fullmatch(uuid)
    return _HEX + bytes.fromhex("".join(written.groups())) if written else _TEXT + uuid.encode()


def _unpacked_uuid(packed: bytes) -> str:
    if not packed.startswith(_HEX):
        return packed[1:].decode()
    text = packed[1:].hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
