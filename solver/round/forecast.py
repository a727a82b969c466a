"""When the first waiting jobs could start: the rounds to come, played ahead as if what runs ends at its limit and no job arrives.

Each instant at which something ends gets a greedy round of its own, by the rules of a real one. So where no program
is needed to do better than greedy, and every job runs exactly to its limit, the forecast is what happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from solver.backfill.future_state import FutureState, with_options
from solver.model.cluster import GpuType
from solver.model.inflight import Reservation
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName
from solver.plan.estimates import AnyEstimate, BeyondHorizon, EarliestStart, NoEndHelps
from solver.queueing.demand import StartCandidate
from solver.queueing.fallback import fallback_opens
from solver.quota.entitlement import Charge
from solver.quota.fairshare import demand_of
from solver.round.protections import LaterStart


def estimates(
    world: FutureState,
    now: Instant,
    waiting: Sequence[StartCandidate],
    reservations: Sequence[Reservation],
    later: Mapping[JobName, LaterStart],
    awaiting: Sequence[StartCandidate] = (),
) -> dict[JobName, AnyEstimate]:
    """When each of the first waiting jobs could start. `waiting` is in order; `world` is as the round leaves it.

    Jobs that are evicted are asked to leave in the world already. A gang with a reservation starts when that says at the latest.
    `later`: jobs that are served by evictions once protections have ended. `awaiting`: those that stand in line only once
    their queue has another quota; only of those with a reservation it is said when they start.
    """
    held = {reservation.holder: reservation for reservation in reservations if not reservation.is_declared}
    most = world.policy.scheduling.estimated_jobs
    first = [c for number, c in enumerate(waiting) if number < most or c.job.name in held]
    joining = sorted((held[c.job.name].start, n) for n, c in enumerate(awaiting) if c.job.name in held)
    if not first and not joining:
        return {}
    world.waiting, world.reservations = first, dict(held)
    world.wanted_behind = _by_queue(demand_of(with_options(c for c in waiting[most:] if c.job.name not in held)))
    known = {name: start for name, start in later.items() if start.gone is not None}
    horizon = world.policy.scheduling.eta_horizon
    _expect(
        world, now.after(horizon), {at for at, _ in joining} | {at for at in (k.gone for k in known.values()) if at}
    )
    found: dict[JobName, EarliestStart] = {}
    for at in world.instants(now.after(horizon)):
        while joining and joining[0][0] <= at:
            world.join(awaiting[joining.pop(0)[1]])
        if not world.waiting and not joining:
            break
        for name, start in known.items():
            if start.gone == at and _begins(world, start, at):
                found[name] = EarliestStart(at, after_protection_of=start.last)
        for begun in world.round(at):
            found[begun.candidate.job.name] = world.start_at(at, begun.queue)
    for name, reservation in held.items():
        kept = world.start_at(reservation.start, world.jobs[name].spec.queue)
        found[name] = min(found.get(name, kept), kept, key=_at)
    otherwise = (
        BeyondHorizon(horizon) if world.ends or world.openings else NoEndHelps(partitioned=bool(world.policy.mig))
    )
    told = {c.job.name: found.get(c.job.name) or world.end_unknown(c) or otherwise for c in first}
    return {**{name: found[name] for name in held}, **told}


def _expect(world: FutureState, until: Instant, more: Set[Instant]) -> None:
    """Let it stop where types open to those who wait, documents are over and quotas change, and at `more` instants."""
    opens = {fallback_opens(c.job, world.policy) for c in world.waiting if _waits_for_first_type(c)}
    over = {reservation.until for reservation in world.declared if reservation.until is not None}
    world.openings = sorted(opens | over | set(world.expect_changes(until)) | more)


def _begins(world: FutureState, later: LaterStart, at: Instant) -> bool:
    """Whether a job waits still when those have left who leave for it: then it starts on what they held."""
    if later.start is None or later.start.candidate.job.name not in {known.job.name for known in world.waiting}:
        return False
    world.begin_after(later.start, () if later.moving else later.leaving, at)
    return True


def _at(estimate: EarliestStart) -> Instant:
    return estimate.at


def _waits_for_first_type(candidate: StartCandidate) -> bool:
    return any(option.inside_only for option in candidate.options)


def _by_queue(wanted: Iterable[tuple[QueueName, Charge]]) -> list[tuple[QueueName, Charge]]:
    """The same demand in fewer entries: it is counted again for every round ahead."""
    total: dict[QueueName, Counter[GpuType]] = {}
    for queue, charge in wanted:
        total.setdefault(queue, Counter()).update(charge)
    return list(total.items())
