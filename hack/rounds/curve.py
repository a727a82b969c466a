"""How the cost of a round grows with GPUs and with jobs that wait: each point in a process of its own, kept once it is there."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np

from hack.rounds.cases import Case, measure, smaller
from hack.rounds.timing import Figures

GPUS: Final = (4_096, 16_384, 50_000, 100_000, 200_000)
PENDING: Final = (1_000, 5_000, 20_000, 50_000)
AT_GPUS, AT_PENDING = 100_000, 5_000
"""What stays the same while the other grows: so each exponent is of one thing alone."""
LATER_ROUNDS: Final = 3

Axis = Literal["gpus", "pending"]
Figure = Literal["cold_s", "warm_p50_s", "rss_mb"]
FIGURES: Final[tuple[Figure, ...]] = ("cold_s", "warm_p50_s", "rss_mb")
SPAWN: Final = multiprocessing.get_context("spawn")


class Point(msgspec.Struct, frozen=True, order=True):
    """A cluster of a size, and for how long the program may run in each of its rounds; None: there is none."""

    gpus: int
    pending: int
    seed: int = 1
    program_s: float | None = None


Along = Mapping[Axis, Sequence[Point]]
"""The points of each axis, the smallest first."""


class Measured(msgspec.Struct, frozen=True):
    """A point and what was measured there; None: it was not done in time."""

    point: Point
    figures: Figures | None


class Fit(msgspec.Struct, frozen=True):
    """A figure grows with this power of what grows: the slope of a line through its points, both logarithmic; None: too few."""

    over: Axis
    figure: Figure
    exponent: float | None
    points: int


class PointFailedError(Exception):
    """A round ended without an answer."""


class KeptPointsError(Exception):
    """What is kept of earlier points can't be read."""


Ask = Callable[[Point, float], Figures | None]
"""Measures a point, for at most so many seconds; None: it takes longer."""


def series(seed: int, program_s: float | None, divisor: int = 1) -> Along:
    """The points along each axis; the divisor makes all of them smaller."""

    def point(gpus: int, pending: int) -> Point:
        case = smaller(Case(gpus, pending), divisor)
        return Point(case.gpus, case.pending, seed, program_s)

    return {
        "gpus": sorted({point(gpus, AT_PENDING) for gpus in GPUS}),
        "pending": sorted({point(AT_GPUS, pending) for pending in PENDING}),
    }


def measured_apart(point: Point, limit_s: float) -> Figures | None:
    """Measure it in a process of its own, which is killed when its time is over; raises PointFailedError where it dies."""
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_measure, args=(theirs, point), daemon=True)
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(limit_s) else None
    except EOFError:
        process.join()
        raise PointFailedError(
            f"{name_of(point)}: its process ended with {process.exitcode} and no answer; what it said is above. "
            "Points measured before are kept: correct it, and begin again."
        ) from None
    finally:
        process.kill()
        process.join()
    return msgspec.convert(found, Figures) if found else None


def _measure(answer: Connection, point: Point) -> None:
    case = Case(point.gpus, point.pending, rounds=LATER_ROUNDS)
    answer.send(msgspec.to_builtins(measure("curve", case, point.seed, point.program_s)))


def kept_in(file: Path) -> dict[Point, Measured]:
    """What was measured before; nothing where there is no such file. Raises KeptPointsError where it is another."""
    if not file.exists():
        return {}
    try:
        known = msgspec.json.decode(file.read_bytes(), type=list[Measured])
    except msgspec.DecodeError as error:
        raise KeptPointsError(f"{file}: {error}. Delete it, and all points are measured anew.") from error
    return {each.point: each for each in known}


def measured(
    points: Iterable[Point], file: Path, limit_s: float, *, afresh: bool = False, ask: Ask = measured_apart
) -> list[Measured]:
    """Each point, asked for where it is not in the file already or `afresh`; the file is written anew after each."""
    known, found = kept_in(file), list[Measured]()
    for point in points:
        if afresh or point not in known:
            known[point] = Measured(point, ask(point, limit_s))
            keep(file, known.values())
        found.append(known[point])
    return found


def keep(file: Path, known: Iterable[Measured]) -> None:
    """Write points that are done; the file is never there in part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    there = sorted((each for each in known if each.figures), key=lambda each: each.point)
    beside = file.with_suffix(".part")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(there), indent=1) + b"\n")
    beside.replace(file)


def fits(known: Sequence[Measured], along: Along) -> list[Fit]:
    """The exponent of each figure along each axis."""
    return [_fit(axis, figure, values(known, along[axis], axis, figure)) for axis in along for figure in FIGURES]


def values(known: Sequence[Measured], points: Sequence[Point], axis: Axis, figure: Figure) -> list[tuple[float, float]]:
    """A figure at each point of an axis that was reached."""
    there = {each.point: each.figures for each in known if each.figures}
    reached = [there[point] for point in points if point in there]
    pairs = [(getattr(figures, axis), getattr(figures, figure)) for figures in reached]
    return [(float(size), float(value)) for size, value in pairs if value]


def _fit(axis: Axis, figure: Figure, pairs: Sequence[tuple[float, float]]) -> Fit:
    if len({size for size, _ in pairs}) < 2:
        return Fit(axis, figure, None, len(pairs))
    sizes, found = ([log(value) for value in column] for column in zip(*pairs, strict=True))
    return Fit(axis, figure, round(float(np.polyfit(sizes, found, 1)[0]), 2), len(pairs))


def name_of(point: Point) -> str:
    """What to call it while it is measured."""
    return f"{point.gpus:,} GPUs, {point.pending:,} waiting"
