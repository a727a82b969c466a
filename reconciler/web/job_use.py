"""What a job's GPUs did lately, as a picture: how active they were in each minute, and the least active of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from reconciler.api.gpu_payloads import JobUsePoint
from reconciler.web.time_window import ShownWindow
from solver.model.quantities import Duration

LOOKS_BACK: Final = "3h ago"


class JobUsePicture(NamedTuple):
    """Paths in a box of a hundred by a hundred: `mean` an area for each minute, `least` a line where a job has several GPUs.

    A minute of which nothing is known has no part in either: it is a gap, and not nothing.
    """

    mean: str
    least: str
    points: tuple[JobUsePoint, ...]


def job_use_picture(points: Iterable[JobUsePoint], step: Duration, shown: ShownWindow) -> JobUsePicture:
    """Of a job in a window, by steps of one length."""
    points = tuple(points)
    areas, lines = list[str](), list[str]()
    for point in points:
        begin, end = shown.x(point.start), shown.x(point.start.after(step))
        areas.append(f"M{begin:g} 100V{100 - point.active.mean:g}H{end:g}V100Z")
        if point.gpus > 1 and point.active.min is not None:
            lines.append(f"M{begin:g} {100 - point.active.min:g}H{end:g}")
    return JobUsePicture("".join(areas), "".join(lines), points)
