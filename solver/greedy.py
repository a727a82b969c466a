"""The first answer of a round: jobs in order, each placed whole if quota and room allow; the incumbent a solver must beat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from solver.fit import Fit
from solver.placement import place_best
from solver.rules.demand import Candidate
from solver.rules.entitlement import Charge, Headroom, Shares
from solver.rules.users import UserRoom
from solver.starts import Start
from solver.world.room import Room
from solver.world.workload import QueueName

Eligible = Callable[[Headroom, QueueName, Charge], bool]

PASSES: tuple[Eligible, ...] = (
    lambda headroom, queue, charge: headroom.entitled.part(queue, charge) == sum(charge.values()),
    lambda headroom, queue, charge: headroom.entitled.part(queue, charge) > 0,
    lambda headroom, queue, charge: headroom.fair.part(queue, charge) == sum(charge.values()),
    lambda *_: True,
)
"""Who is served in each pass: wholly entitled gangs, partly entitled ones, those inside their fair share, then everybody."""


def greedy(
    candidates: Iterable[Candidate],
    room: Room,
    shares: Shares,
    already: Sequence[Start] = (),
    fit: Fit | None = None,
) -> tuple[Start, ...]:
    """Serve jobs in the order of the layers: entitled ones, then those inside their fair share, then the rest.

    Takes from `room`, so that what is free afterwards can be read off it. Starts in `already` have been given their
    room before; they count against quota and come back first. `fit` chooses among places that a job likes equally.
    """
    headroom, users = Headroom(shares), UserRoom(shares.users)
    for start in already:
        headroom.take(start.queue, start.option.charge)
        users.take(start.candidate.job, start.option.charge)
    taken = {start.candidate.job.name for start in already}
    waiting = [candidate for candidate in candidates if candidate.job.name not in taken]
    starts = list(already)
    for eligible in PASSES:
        served = {start.candidate.job.name: start for start in _pass(waiting, room, headroom, users, eligible, fit)}
        starts += served.values()
        waiting = [candidate for candidate in waiting if candidate.job.name not in served]
    return tuple(starts)


def _pass(
    waiting: Iterable[Candidate], room: Room, headroom: Headroom, users: UserRoom, eligible: Eligible, fit: Fit | None
) -> Iterator[Start]:
    # Room and headroom only shrink: what one could not have, none of its like can have later in the same pass.
    without: set[int] = set()
    for candidate in waiting:
        if candidate.likeness not in without:
            start = _start(candidate, room, headroom, users, eligible, fit)
            if start is None:
                without.add(candidate.likeness)
            else:
                yield start


def _start(
    candidate: Candidate, room: Room, headroom: Headroom, users: UserRoom, eligible: Eligible, fit: Fit | None
) -> Start | None:
    job, spec = candidate.job, candidate.job.spec
    able = [
        option
        for option in candidate.options
        if eligible(headroom, spec.queue, option.charge)
        and not headroom.blocking(spec.queue, option.charge)
        and not users.blocking(job, option.charge)
    ]
    for _, equals in groupby(able, key=lambda option: option.fallback):
        chosen = place_best(room, spec, tuple(equals), fit)
        if chosen is not None:
            option, placed = chosen
            headroom.take(spec.queue, option.charge)
            users.take(job, option.charge)
            return Start(candidate, option, placed)
    return None
