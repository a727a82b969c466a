"""The first answer of a round: jobs in order, each placed whole if quota and room allow; the incumbent a solver must beat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import NamedTuple

from solver.capacity.free_capacity import FreeCapacity
from solver.model.workload import JobName, QueueName
from solver.placement.fit import Fit
from solver.placement.footprint import Footprint, finds_less_in_less, footprint_of
from solver.placement.growth import grow_all
from solver.placement.placement import least_tasks
from solver.placement.starts import JobStart
from solver.placement.views import place_in_view
from solver.queueing.demand import StartCandidate
from solver.queueing.strict_queues import Lines
from solver.quota.dominance import HostUse
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares
from solver.quota.host_dues import HostDues, HostTier
from solver.quota.host_guarantees import HeldAlone
from solver.quota.options import Option
from solver.quota.users import UserRoom, beside_least

Eligible = Callable[[QuotaHeadroom, QueueName, Charge], bool]
Growing = Callable[[Sequence[JobStart], FreeCapacity, QuotaHeadroom, UserRoom], list[JobStart]]


def _nobody_grows(starts: Sequence[JobStart], *_: object) -> list[JobStart]:
    return list(starts)


class GreedyPass(NamedTuple):
    """What is served in a pass: gangs with GPUs that are `eligible`, those without inside a `tier`; and what grows then."""

    eligible: Eligible
    growing: Growing
    tier: HostTier


PASSES: tuple[GreedyPass, ...] = (
    GreedyPass(
        lambda headroom, queue, charge: headroom.entitled.part(queue, charge) == sum(charge.values()),
        _nobody_grows,
        "guarantee",
    ),
    GreedyPass(
        lambda headroom, queue, charge: headroom.entitled.part(queue, charge) > 0,
        partial(grow_all, lines=lambda headroom: headroom.entitled),
        "claim",
    ),
    GreedyPass(
        lambda headroom, queue, charge: headroom.fair.part(queue, charge) == sum(charge.values()),
        _nobody_grows,
        "fair share",
    ),
    GreedyPass(
        lambda headroom, queue, charge: headroom.fair.part(queue, charge) > 0,
        partial(grow_all, lines=lambda headroom: headroom.fair),
        "fair share",
    ),
    GreedyPass(lambda *_: True, partial(grow_all, lines=None), "any"),
)
"""What is served in each pass: wholly entitled gangs, partly entitled ones, those wholly and those partly inside their fair
share, then all; and those that grow then: all that can inside guarantees, then inside fair shares, then at all."""


class GreedyEnd(NamedTuple):
    """Where jobs are served no more: after so many passes, and those of the next in which jobs of these names are served."""

    passes: int
    served: Collection[JobName]


def greedy(
    candidates: Iterable[StartCandidate],
    room: FreeCapacity,
    shares: Shares,
    already: Sequence[JobStart] = (),
    fit: Fit | None = None,
    until: GreedyEnd | None = None,
) -> tuple[JobStart, ...]:
    """Serve jobs in the order of the layers: entitled ones, then those inside their fair share, then the rest.

    Takes from `room`, so that what is free afterwards can be read off it. Starts in `already` have been given their
    room before; they count against quota and come back first. `fit` chooses among places that a job likes equally.
    `until`: where to stop.
    """
    known = tuple(candidates)
    handed_out = _HandedOut(QuotaHeadroom(shares), UserRoom(shares.users), Lines(known), shares.host)
    for start in already:
        handed_out.take(start.candidate, start.charge, start.beside)
    taken = {start.candidate.job.name for start in already}
    waiting = [candidate for candidate in known if candidate.job.name not in taken]
    starts = list(already)
    for number, serving in enumerate(PASSES):
        if until is not None and number == until.passes:
            before = [candidate for candidate in waiting if candidate.job.name in until.served]
            return (*starts, *_pass(before, room, handed_out, serving, fit))
        served = {start.candidate.job.name: start for start in _pass(waiting, room, handed_out, serving, fit)}
        starts = serving.growing([*starts, *served.values()], room, handed_out.headroom, handed_out.users)
        waiting = [
            candidate
            for candidate in waiting
            if candidate.job.name not in served and candidate.likeness not in handed_out.hopeless
        ]
    return tuple(starts)


@dataclass(slots=True)
class _HandedOut:
    """What is left while a round hands out room: to queues, to users, past jobs in line, and to jobs without GPUs.

    `full`: ways for which there is no room any more; `hopeless`: the likenesses for which there is none in any way.
    """

    headroom: QuotaHeadroom
    users: UserRoom
    lines: Lines
    host: HostDues
    full: set[Footprint] = field(default_factory=set)
    hopeless: set[int] = field(default_factory=set)

    def allows(self, candidate: StartCandidate, option: Option) -> bool:
        """Nothing but room could keep the gang from starting this way."""
        job, charge = candidate.job, option.charge
        if candidate.is_inside_only(option) and self.headroom.entitled.part(job.spec.queue, charge) < sum(
            charge.values()
        ):
            return False
        asks_gpus = any(charge.values())
        if not asks_gpus and self.host.not_lent(HeldAlone(job.spec.queue, beside_least(job.spec))):
            return False
        return not (
            not self.headroom.allows(job.spec.queue, charge)
            or self.users.blocking(job, charge)
            or self.lines.blocker(candidate, option)
        )

    def serves(self, serving: GreedyPass, candidate: StartCandidate, option: Option) -> bool:
        """Whether a pass is for a gang that is served this way."""
        spec = candidate.job.spec
        if not self.host.fair or any(option.charge.values()):
            return serving.eligible(self.headroom, spec.queue, option.charge)
        # What may not borrow claims nothing of what is shared.
        tier = "guarantee" if serving.tier == "claim" and candidate.inside_only else serving.tier
        return self.host.serves(tier, HeldAlone(spec.queue, beside_least(spec)))

    def take(self, candidate: StartCandidate, charge: Charge, beside: HostUse | None = None) -> None:
        """The gang starts, at this cost; `beside`: with so much CPU and memory, where it is larger than it must be."""
        self.headroom.take(candidate.job.spec.queue, charge)
        self.users.take(candidate.job, charge, beside)
        self.lines.start(candidate)
        if self.host.fair and not any(charge.values()):
            spec = candidate.job.spec
            self.host = self.host.after([HeldAlone(spec.queue, beside_least(spec) if beside is None else beside)])

    def refuse(self, candidate: StartCandidate, options: Iterable[Option]) -> None:
        """There is no room for the gang under any of these options."""
        self.full.update(footprint_of(candidate, option) for option in options if finds_less_in_less(candidate, option))

    def not_full(self, candidate: StartCandidate) -> list[Option]:
        """The options under which there may be room for a gang."""
        left = [option for option in candidate.options if footprint_of(candidate, option) not in self.full]
        if not left:
            self.hopeless.add(candidate.likeness)
        return left


def _pass(
    waiting: Iterable[StartCandidate],
    room: FreeCapacity,
    handed_out: _HandedOut,
    serving: GreedyPass,
    fit: Fit | None,
) -> Iterator[JobStart]:
    # Room and headroom only shrink, and jobs in line stay ahead: what one could not have, none of its like can have
    # later in the same pass.
    without: set[int] = set()
    for candidate in waiting:
        if candidate.likeness not in without and candidate.likeness not in handed_out.hopeless:
            start = _start(candidate, room, handed_out, serving, fit)
            if start is None:
                without.add(candidate.likeness)
            else:
                yield start


def _start(
    candidate: StartCandidate, room: FreeCapacity, handed_out: _HandedOut, serving: GreedyPass, fit: Fit | None
) -> JobStart | None:
    spec = candidate.job.spec
    able = [
        option
        for option in handed_out.not_full(candidate)
        if handed_out.serves(serving, candidate, option) and handed_out.allows(candidate, option)
    ]
    least = least_tasks(spec)
    for _, group in groupby(able, key=lambda option: (option.fallback, option.excess_weight(least))):
        equals = tuple(group)
        chosen = place_in_view(room, candidate, equals, fit)
        if chosen is not None:
            option, placed = chosen
            handed_out.take(candidate, option.charge)
            return JobStart(candidate, option, placed, least)
        handed_out.refuse(candidate, equals)
    return None
