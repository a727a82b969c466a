"""The first answer of a round: jobs in order, each placed whole if quota and room allow; the incumbent a solver must beat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from solver.growth import grow_all
from solver.placement import least_tasks, place
from solver.rules.demand import Candidate
from solver.rules.entitlement import Charge, Headroom, Shares
from solver.rules.users import UserRoom
from solver.starts import Start
from solver.world.room import Room
from solver.world.workload import QueueName

Eligible = Callable[[Headroom, QueueName, Charge], bool]
Growing = Callable[[Sequence[Start], Room, Headroom, UserRoom], list[Start]]


def _nobody_grows(starts: Sequence[Start], *_: object) -> list[Start]:
    return list(starts)


PASSES: tuple[tuple[Eligible, Growing], ...] = (
    (
        lambda headroom, queue, charge: headroom.entitled.part(queue, charge) == sum(charge.values()),
        _nobody_grows,
    ),
    (
        lambda headroom, queue, charge: headroom.entitled.part(queue, charge) > 0,
        partial(grow_all, lines=lambda headroom: headroom.entitled),
    ),
    (
        lambda headroom, queue, charge: headroom.fair.part(queue, charge) == sum(charge.values()),
        _nobody_grows,
    ),
    (
        lambda headroom, queue, charge: headroom.fair.part(queue, charge) > 0,
        partial(grow_all, lines=lambda headroom: headroom.fair),
    ),
    (lambda *_: True, partial(grow_all, lines=None)),
)
"""Who is served in each pass: wholly entitled gangs, partly entitled ones, those wholly and those partly inside their fair
share, then everybody; and who grows once they are: whoever can inside guarantees, then inside fair shares, then at all."""


def greedy(
    candidates: Iterable[Candidate],
    room: Room,
    shares: Shares,
    already: Sequence[Start] = (),
) -> tuple[Start, ...]:
    """Serve jobs in the order of the layers: entitled ones, then those inside their fair share, then the rest.

    Takes from `room`, so that what is free afterwards can be read off it. Starts in `already` have been given their
    room before; they count against quota and come back first.
    """
    headroom, users = Headroom(shares), UserRoom(shares.users)
    for start in already:
        headroom.take(start.queue, start.charge)
        users.take(start.candidate.job, start.charge)
    taken = {start.candidate.job.name for start in already}
    waiting = [candidate for candidate in candidates if candidate.job.name not in taken]
    starts = list(already)
    for eligible, growing in PASSES:
        served = {start.candidate.job.name: start for start in _pass(waiting, room, headroom, users, eligible)}
        starts = growing([*starts, *served.values()], room, headroom, users)
        waiting = [candidate for candidate in waiting if candidate.job.name not in served]
    return tuple(starts)


def _pass(
    waiting: Iterable[Candidate], room: Room, headroom: Headroom, users: UserRoom, eligible: Eligible
) -> Iterator[Start]:
    # Room and headroom only shrink: what one could not have, none of its like can have later in the same pass.
    without: set[int] = set()
    for candidate in waiting:
        if candidate.likeness not in without:
            start = _start(candidate, room, headroom, users, eligible)
            if start is None:
                without.add(candidate.likeness)
            else:
                yield start


def _start(candidate: Candidate, room: Room, headroom: Headroom, users: UserRoom, eligible: Eligible) -> Start | None:
    job, spec = candidate.job, candidate.job.spec
    for option in candidate.options:
        if not eligible(headroom, spec.queue, option.charge):
            continue
        if candidate.inside_only and headroom.entitled.part(spec.queue, option.charge) < sum(option.charge.values()):
            continue
        if headroom.blocking(spec.queue, option.charge) or users.blocking(job, option.charge):
            continue
        placed = place(room, spec, option)
        if placed is not None:
            headroom.take(spec.queue, option.charge)
            users.take(job, option.charge)
            return Start(candidate, option, placed, least_tasks(spec))
    return None
