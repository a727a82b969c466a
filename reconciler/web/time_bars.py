"""What a picture of time is made of: bars of what held or will hold GPUs, as a user may see them, and areas of what was held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from reconciler.access.rights import Rights
from reconciler.protocols.placements import Placement
from reconciler.web.outlook import END_WORDS, ExpectedEnd, Outlook, PlannedStart
from reconciler.web.past import HeldOverTime
from reconciler.web.queue_colours import OTHER, QueueColours
from reconciler.web.time_window import ShownWindow
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import Job, JobName, QueueName

BarKind = Literal["ran", "runs", "promised", "reserved", "forecast", "closed"]
"""`closed`: kept by a Reservation document of Git."""

LABEL_FROM: Final = 6.0
"""Percent of the width."""
CHARACTERS_PER_PERCENT: Final = 1.3
LABEL_HEIGHT: Final = 10


class BarSpot(NamedTuple):
    """Where a bar lies from top to bottom, in pixels."""

    y: float
    height: float


class TimeBar(NamedTuple):
    """What held, holds or will hold `gpus`, from `since` to `until` (None: it is not known).

    `name` "": the user may not see which job it is; `is_link`: it leads to the job. `told`: why it ended, or on what `until` rests.
    `known`: until when it is certain; from there on it is expected. `end`: how far it is drawn.
    """

    kind: BarKind
    name: str
    queue: str
    is_link: bool
    colour: str
    gpus: MilliGpu
    since: Instant
    until: Instant | None
    told: str
    known: Instant
    end: Instant
    spots: tuple[BarSpot, ...] = ()
    is_vague: bool = False

    @property
    def shown_name(self) -> str:
        """In a picture."""
        return self.name or "another job"


class DrawnBar(NamedTuple):
    """A bar in a window, in percent of its width: what is certain (`x`, `width`), what is expected, a name where there is room."""

    bar: TimeBar
    x: float
    width: float
    ahead_x: float
    ahead_width: float
    label: str
    label_x: float
    label_width: float
    words: str


class Area(NamedTuple):
    """What was held in all, as the outline of a picture in a picture: `path` in a box of `steps` by 100, to be stretched.

    The last step may not be over: `steps` is no whole number then.
    """

    width: float
    steps: float
    path: str


class BarMaker:
    """Makes bars for one user and one look."""

    def __init__(self, outlook: Outlook, colours: QueueColours, rights: Rights, shown: ShownWindow) -> None:
        self._outlook, self._colours, self._rights, self._shown = outlook, colours, rights, shown

    def held(self, placement: Placement, gpus: MilliGpu) -> TimeBar:
        """What a placement held, and how long it is expected to hold it."""
        name, may = self._name(placement.job, placement.queue, placement.user)
        colour = self._colours.of_queue(placement.queue)
        if placement.until is not None:
            told = placement.ended + (f" for {placement.beneficiary}" if placement.beneficiary else "") if may else ""
            of = placement.queue, may, colour, gpus, placement.since, placement.until, told
            return TimeBar("ran", name, *of, placement.until, placement.until)
        expected = self._outlook.ends.get(placement.job, ExpectedEnd(None, ""))
        return self._running(name, placement.queue, gpus, placement.since, expected, may)

    def running(self, job: Job, gpus: MilliGpu) -> TimeBar:
        """What a job holds, where there is no record but that it does."""
        name, may = self._name(job.name, job.spec.queue, job.user)
        since = self._outlook.snapshot.time if job.started_at is None else job.started_at
        return self._running(name, job.spec.queue, gpus, since, self._outlook.ends[job.name], may)

    def planned(self, start: PlannedStart, gpus: MilliGpu) -> TimeBar:
        """What a job is to hold."""
        name, may = self._name(start.job.name, start.job.spec.queue, start.job.user)
        at = Instant(max(start.at, self._shown.now))
        of = start.job.spec.queue, may, self._colours.of_queue(start.job.spec.queue), gpus, at, start.until
        told = start.told if may else ""
        return TimeBar(start.kind, name, *of, told, at, self._end(start.until), is_vague=start.is_vague)

    def document(self, name: str, gpus: MilliGpu, since: Instant, until: Instant | None) -> TimeBar:
        """What a Reservation document keeps."""
        told = "a Reservation of the policy"
        return TimeBar("closed", name, "", False, OTHER, gpus, since, until, told, since, self._end(until))

    def _running(
        self, name: str, queue: QueueName, gpus: MilliGpu, since: Instant, expected: ExpectedEnd, may: bool
    ) -> TimeBar:
        colour, told = self._colours.of_queue(queue), END_WORDS[expected.basis]
        known = Instant(max(since, self._shown.now))
        end = max(known, self._end(expected.at))
        is_vague = expected.basis in ("history", "")
        return TimeBar("runs", name, queue, may, colour, gpus, since, expected.at, told, known, end, is_vague=is_vague)

    def _name(self, job: JobName, queue: QueueName, user: str) -> tuple[str, bool]:
        may = self._rights.may("see-job", queue, user)
        return (job if may else "", may)

    def _end(self, until: Instant | None) -> Instant:
        """It is drawn to the end of the picture where it is not known."""
        return self._shown.end if until is None else until


def drawn(bar: TimeBar, shown: ShownWindow) -> DrawnBar:
    """A bar in a window."""
    x, turn, end = shown.x(bar.since), shown.x(max(bar.since, bar.known)), shown.x(bar.end)
    is_planned = bar.kind not in ("ran", "runs")
    label_x = x
    label_width = (turn if bar.kind == "ran" else end) - label_x
    fits = label_width >= LABEL_FROM and max((spot.height for spot in bar.spots), default=0) >= LABEL_HEIGHT
    label = bar.shown_name[: max(1, int(label_width * CHARACTERS_PER_PERCENT))] if fits else ""
    return DrawnBar(
        bar,
        x,
        0.0 if is_planned else max(round(turn - x, 3), 0.15),
        turn,
        round(end - turn, 3) if bar.kind != "ran" else 0.0,
        label,
        label_x,
        label_width,
        words_of(bar),
    )


def words_of(bar: TimeBar) -> str:
    """For pointing at it. Moments are in UTC."""
    gpus = f"{bar.gpus / 1000:g} GPU{'' if bar.gpus == MilliGpu(1000) else 's'}"
    whose = f" of {bar.queue}" if bar.queue else ""
    span = f"from {_minute(bar.since)} {'until ' + _minute(bar.until) if bar.until is not None else 'on, open end'}"
    why = f" ({bar.told})" if bar.told else ""
    return f"{bar.shown_name}{whose}: {bar.kind}, {gpus}, {span}{why}"


def _minute(at: Instant) -> str:
    day, _, rest = str(at).partition("T")
    return f"{day} {rest[:5]} UTC"


def area_of(values: Sequence[int], most: int, held: HeldOverTime[Any], shown: ShownWindow) -> Area:
    """An outline of what was held in each step, in a box whose height stands for `most`."""
    over = held.steps_over
    path = ["M0 100"]
    for number, value in enumerate(values):
        y = round(100 - 100 * min(value, most) / most, 1) if most else 100
        path.append(f"L{number} {y}L{min(number + 1, over)} {y}")
    path.append(f"L{over} 100Z")
    return Area(shown.x(held.until), over, "".join(path))
