"""The first answer of a round: jobs in order, each placed whole if quota and room allow; the incumbent a solver must beat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from solver.placement import place
from solver.rules.demand import Candidate
from solver.rules.entitlement import Headroom, Shares
from solver.rules.users import UserRoom
from solver.starts import Start
from solver.world.room import Room

ENTITLED_SHARES = (1.0, 1e-9, 0.0)
"""Least share of a gang that must lie inside the guarantee to be served in each pass: all of it, any of it, none."""


def greedy(
    candidates: Iterable[Candidate],
    room: Room,
    shares: Shares,
    already: Sequence[Start] = (),
) -> tuple[Start, ...]:
    """Serve jobs in the order of the layers: wholly entitled ones, then partly entitled ones, then the rest.

    Takes from `room`, so that what is free afterwards can be read off it. Starts in `already` have been given their
    room before; they count against quota and come back first.
    """
    headroom, users = Headroom(shares), UserRoom(shares.users)
    for start in already:
        headroom.take(start.queue, start.option.charge)
        users.take(start.candidate.job, start.option.charge)
    taken = {start.candidate.job.name for start in already}
    waiting = [candidate for candidate in candidates if candidate.job.name not in taken]
    starts = list(already)
    for entitled_share in ENTITLED_SHARES:
        served = {start.candidate.job.name: start for start in _pass(waiting, room, headroom, users, entitled_share)}
        starts += served.values()
        waiting = [candidate for candidate in waiting if candidate.job.name not in served]
    return tuple(starts)


def _pass(
    waiting: Iterable[Candidate], room: Room, headroom: Headroom, users: UserRoom, entitled_share_min: float
) -> Iterator[Start]:
    # Room and headroom only shrink: what one could not have, none of its like can have later in the same pass.
    without: set[int] = set()
    for candidate in waiting:
        if candidate.likeness not in without:
            start = _start(candidate, room, headroom, users, entitled_share_min)
            if start is None:
                without.add(candidate.likeness)
            else:
                yield start


def _start(
    candidate: Candidate, room: Room, headroom: Headroom, users: UserRoom, entitled_share_min: float
) -> Start | None:
    job, spec = candidate.job, candidate.job.spec
    for option in candidate.options:
        gpus = sum(option.charge.values())
        if headroom.entitled_part(spec.queue, option.charge) < entitled_share_min * gpus:
            continue
        if headroom.blocking(spec.queue, option.charge) or users.blocking(job, option.charge):
            continue
        placed = place(room, spec, option)
        if placed is not None:
            headroom.take(spec.queue, option.charge)
            users.take(job, option.charge)
            return Start(candidate, option, placed)
    return None
