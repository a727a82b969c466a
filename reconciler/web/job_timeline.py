"""A job over time: in which state it was when, as its events say, and what each attempt held where, as its placements say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, get_args

from reconciler.api.payloads import JobView
from reconciler.model.job_record import TERMINAL, JobState
from reconciler.protocols.history import Event
from reconciler.protocols.placements import NodePlacement
from reconciler.web.time_bars import LABEL_FROM
from reconciler.web.time_window import ShownWindow
from solver.model.cluster import NodeName
from solver.model.quantities import Instant, MilliGpu

ROWS_MAX: Final = 200
"""Of a table; the newest."""
NODES_NAMED: Final = 3
HELD_HEIGHT: Final = 40
_SHORTEST: Final = 60_000
_STATES: Final = frozenset(get_args(JobState))
_LOOKS: Final[Mapping[str, str]] = {
    "queued": "wait",
    "reserved": "wait",
    "retrying": "wait",
    "suspended": "hold",
    "starting": "start",
    "running": "run",
    "checkpointing": "leave",
    "evicting": "leave",
    "stopping": "leave",
}


class StateSpan(NamedTuple):
    """`state` "": it is not on record. `until` None: it still is in it. `x`, `width` in percent."""

    state: str
    look: str
    since: Instant
    until: Instant | None
    cause: str
    x: float
    width: float
    label: str


class HeldSpan(NamedTuple):
    """What an attempt held without a change: the first `nodes` of `node_count`. `ended`: why no longer. `y`, `height` in pixels."""

    attempt: int
    since: Instant
    until: Instant | None
    gpus: MilliGpu
    nodes: tuple[NodeName, ...]
    node_count: int
    ended: str
    beneficiary: str
    x: float
    width: float
    y: float
    height: float


class JobTimeline(NamedTuple):
    """`expected`: what is to come, as a part of the width (its beginning and its length), and its words; None: it is not known."""

    shown: ShownWindow
    states: tuple[StateSpan, ...]
    held: tuple[HeldSpan, ...]
    expected: tuple[float, float, str] | None
    is_cut: bool

    def lasted(self, since: Instant, until: Instant | None) -> str:
        """In words; of what is not over until now."""
        return span_words((self.shown.now if until is None else until) - since)


def span_words(span: int) -> str:
    """So many milliseconds, as people say it."""
    seconds = max(0, span) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def job_timeline(
    job: JobView,
    events: Sequence[Event],
    placed: Collection[NodePlacement],
    now: Instant,
    may_start: Instant | None,
    *,
    has_older: bool,
) -> JobTimeline:
    """Of one job. `events`: the oldest first; `may_start`: when it could, if it waits and that is known."""
    ended = job.outcome.at if job.outcome else None
    began = job.submitted_at
    over = ended if ended is not None else now
    over = Instant(max(over, began + _SHORTEST))
    limit = job.running_since.after(job.time_limit) if job.running_since and job.time_limit else None
    ahead = None if ended is not None else (limit or may_start)
    # What is over has half of the width at least.
    end = over if ahead is None or ahead <= over else Instant(min(ahead, over + (over - began)))
    shown = ShownWindow(began, end, now, "", "")
    states = list(_states(job, events, has_older=has_older))
    return JobTimeline(
        shown,
        tuple(_state_span(each, shown, over) for each in states[-ROWS_MAX:]),
        tuple(_held_spans(placed, shown, over))[-ROWS_MAX:],
        _expected(shown, over, limit, ahead),
        is_cut=has_older or len(states) > ROWS_MAX,
    )


class _State(NamedTuple):
    state: str
    since: Instant
    until: Instant | None
    cause: str


def _states(job: JobView, events: Sequence[Event], *, has_older: bool) -> Iterator[_State]:
    """One after the other, without a gap; the last one as the job is now."""
    changes = [("" if has_older else "queued", job.submitted_at, "")]
    for event in events:
        if event.state in _STATES and event.time >= job.submitted_at and event.state != changes[-1][0]:
            changes.append((event.state, event.time, event.cause))
    if changes[-1][0] != job.state:  # No event says so: it is told by what the job holds.
        since = job.running_since or job.since or (job.outcome.at if job.outcome else None) or changes[-1][1]
        changes.append((job.state, Instant(max(since, changes[-1][1])), ""))
    ends = [since for _, since, _ in changes[1:]]
    for (state, since, cause), until in zip(changes, [*ends, None], strict=True):
        if until is None or until > since or state in TERMINAL:
            yield _State(state, since, until, cause)


def _state_span(of: _State, shown: ShownWindow, over: Instant) -> StateSpan:
    is_end = of.state in TERMINAL
    x, end = shown.x(of.since), shown.x(of.since if is_end else over if of.until is None else of.until)
    width = 0.0 if is_end else round(max(end - x, 0.2), 3)
    label = of.state if width >= LABEL_FROM else ""
    return StateSpan(of.state, _LOOKS.get(of.state, "none"), of.since, of.until, of.cause, x, width, label)


def _held_spans(placed: Collection[NodePlacement], shown: ShownWindow, over: Instant) -> Iterator[HeldSpan]:
    """What was held of several GPU types from one moment on is one span."""
    of = defaultdict[tuple[Instant, int], list[NodePlacement]](list)
    for each in placed:
        of[each.placement.since, each.placement.attempt].append(each)
    most = max((sum(int(each.gpus) for each in own) for own in of.values()), default=0)
    for (since, attempt), own in sorted(of.items()):
        gpus, first = MilliGpu(sum(int(each.gpus) for each in own)), own[0].placement
        nodes = tuple(dict.fromkeys(each.node for each in own))
        x, height = shown.x(since), HELD_HEIGHT * gpus / most if most else 3.0
        end = shown.x(over if first.until is None else first.until)
        yield HeldSpan(
            attempt,
            since,
            first.until,
            gpus,
            nodes[:NODES_NAMED],
            len(nodes),
            first.ended,
            first.beneficiary,
            x,
            round(max(end - x, 0.2), 3),
            round(HELD_HEIGHT - height, 1),
            round(height, 1),
        )


def _expected(
    shown: ShownWindow, over: Instant, limit: Instant | None, ahead: Instant | None
) -> tuple[float, float, str] | None:
    if ahead is None or ahead <= over:
        return None
    x = shown.x(over)
    span = span_words(ahead - over)
    told = f"runs for {span} more at most" if limit is not None else f"could start in {span}"
    return x, round(100 - x, 3), told
