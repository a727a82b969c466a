"""How jobs fare under two revisions: in the next round, and in the rounds ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from reconciler.gitops.review.queue_names import in_queues_of
from reconciler.gitops.review.side import Played
from reconciler.model.review_findings import LOST_DECIMALS, JobChange, Loss, Outcome, Unrestartable
from solver.model.quantities import Instant, MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName
from solver.plan.plan import Departs, Evict, Inadmissible, Moves, Runs, Shrink, Starts, Verdict, Waits, Yields
from solver.plan.reasons import AnyReason
from solver.queueing.pools import with_pool_limits
from solver.round.advice import help_for, what_would_fit
from solver.round.solve import gate_of
from solver.simulation.projection import GivenUp

SECONDS_PER_HOUR = 3600


def job_changes(snapshot: Snapshot, base: Played, head: Played) -> Iterator[JobChange]:
    """All jobs that are pending, and those that give something up under one of the revisions, by name."""
    before, after = _verdicts(base), _verdicts(head)
    lost_before, lost_after = losses(snapshot, base), losses(snapshot, head)
    for job in snapshot.jobs:
        name, old, new = job.name, before[job.name], after[job.name]
        gives_up = name in lost_before or name in lost_after or {*map(outcome_of, (old, new))} & {"shrinks", "leaves"}
        if job.phase == "pending" or gives_up or isinstance(old, Moves) or isinstance(new, Moves):
            yield JobChange(
                name,
                job.spec.queue,
                MilliGpu(sum(task.gpus for task in job.placement)) or job.spec.gpus,
                outcome_of(old),
                outcome_of(new),
                _starts(job, base),
                _starts(job, head),
                lost_after.get(name),
                name in lost_before,
                _reasons(new),
                help_for(new),
            )


def unrestartable_jobs(snapshot: Snapshot, base: Played, head: Played) -> Iterator[Unrestartable]:
    """Jobs that hold GPUs and, if they had to start again, never could under the head, by name."""
    before, after = _refusals(snapshot, base), _refusals(snapshot, head)
    for job in snapshot.jobs:
        reasons = after[job.name]
        if reasons:
            gpus = MilliGpu(sum(task.gpus for task in job.placement))
            helps, already = (what_would_fit(reasons),), bool(before[job.name])
            yield Unrestartable(job.name, job.spec.queue, gpus, tuple(map(str, reasons)), helps, already)


def _refusals(snapshot: Snapshot, side: Played) -> Mapping[JobName, tuple[AnyReason, ...]]:
    """Why each running job could never start again; () where it could, and for jobs that hold nothing."""
    jobs = in_queues_of(side.policy, snapshot.jobs)
    limited = with_pool_limits(msgspec.structs.replace(side.snapshot, jobs=jobs), side.policy)
    gate = gate_of(limited, side.policy, RoundCache())
    return {job.name: gate.admit(job).reasons if job.placement else () for job in limited.jobs}


def losses(snapshot: Snapshot, side: Played) -> Mapping[JobName, Loss]:
    """What jobs that run now give up first, if they do, in the next round or ahead."""
    queues = {job.name: job.spec.queue for job in side.snapshot.jobs}
    running = {job.name for job in snapshot.jobs if job.placement}
    found: dict[JobName, Loss] = {}
    for known in (*_given_up_now(snapshot.time, side), *side.ahead.given_up):
        step = known.step
        # Tasks that were to join a gang, and did not come up in time, have done nothing yet.
        if step.job in running and step.means != "overdue":
            by = step.beneficiary
            lost_gpu_h = round(step.lost_gpu_s / SECONDS_PER_HOUR, LOST_DECIMALS)
            by_queue = None if by is None else queues.get(by)
            found.setdefault(step.job, Loss(known.at, step.grace, step.means, step.gpus, lost_gpu_h, by, by_queue))
    return found


def _given_up_now(now: Instant, side: Played) -> Iterable[GivenUp]:
    return (GivenUp(now, step) for step in side.plan.steps if isinstance(step, Evict | Shrink))


def _verdicts(side: Played) -> Mapping[JobName, Verdict]:
    return {verdict.job: verdict for verdict in side.plan.verdicts}


def _starts(job: Job, side: Played) -> Instant | None:
    return side.ahead.starts.get(job.name) if job.phase == "pending" else None


def _reasons(verdict: Verdict) -> tuple[str, ...]:
    match verdict:
        case Waits(reasons=reasons) | Inadmissible(reasons=reasons):
            return tuple(map(str, reasons))
        case Yields() | Departs() | Moves():
            return (str(verdict),)
        case Starts() | Runs():
            return ()


def outcome_of(verdict: Verdict) -> Outcome:
    """What becomes of a job, in a word."""
    match verdict:
        case Starts():
            return "starts"
        case Waits():
            return "waits"
        case Inadmissible():
            return "inadmissible"
        case Runs():
            return "runs"
        case Yields(keeps=keeps) | Departs(keeps=keeps):
            return "shrinks" if keeps else "leaves"
        case Moves():
            return "moves"
