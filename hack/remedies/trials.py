"""Trials of what would help: one for each job that waits, each GPU type that it accepts, and each way that is offered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from hack.remedies.kinds import FILLER, Kind
from hack.remedies.remedy import Way, can_be_tried, made, of_type, ways
from hack.remedies.world import TYPES, World, at_rest, drawn
from solver.model.cluster import GpuType
from solver.model.snapshot import with_jobs
from solver.model.workload import Job, JobName
from solver.plan.plan import Starts, Waits
from solver.plan.reasons import AnyReason, AwaitsRelease
from solver.round.solve import solve

STEPS_MAX = 4
"""So often advice is followed, one piece after the other, before it counts as going nowhere."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one. `steps`: how often advice had to be followed until the job started; None: it never did.

    `alone`: without the others that wait; else they may take what was meant for it. `taken`: another job started in its place.
    `then`: what bound it after each step but the last.
    """

    kind: Kind
    seed: int
    job: JobName
    gpu_type: GpuType
    way: Way
    alone: bool
    reasons: tuple[AnyReason, ...]
    steps: int | None
    taken: bool = False
    then: tuple[str, ...] = ()

    @property
    def codes(self) -> str:
        """The reasons' codes, sorted."""
        return " ".join(sorted({type(reason).__struct_config__.tag for reason in self.reasons}))  # type: ignore[misc]

    def __str__(self) -> str:
        came = "never started" if self.steps is None else f"started after {self.steps}"
        return (
            f"{self.kind} {self.seed}: {self.job} on {self.gpu_type} by {self.way}, {came}: "
            f"{'; '.join(map(str, self.reasons))}\n then: " + " | ".join(self.then)
        )


def trials(seed: int, kind: Kind = "whole") -> Iterator[Trial]:
    """All trials of one world."""
    world = drawn(seed, kind)
    if world is None:
        return
    for verdict in solve(world.snapshot, world.policy, None).verdicts:
        if isinstance(verdict, Waits):
            job = next(job for job in world.snapshot.jobs if job.name == verdict.job)
            yield from _of_job(kind, seed, world, job, verdict.reasons)


def _of_job(kind: Kind, seed: int, world: World, job: Job, reasons: Sequence[AnyReason]) -> Iterator[Trial]:
    for gpu_type in _types(job, reasons):
        bound = of_type(reasons, gpu_type)
        if not bound or not can_be_tried(bound):
            continue
        for way in ways(bound):
            for alone in (True, False):
                start = _without_others(world, job) if alone else world
                came = _followed(start, job, gpu_type, bound, way)
                yield Trial(kind, seed, job.name, gpu_type, way, alone, bound, *came)


def _types(job: Job, reasons: Sequence[AnyReason]) -> Sequence[GpuType]:
    """The types of which the reasons speak; where they speak of none, the first that the job accepts, since it does not matter."""
    named = {gpu_type for reason in reasons if (gpu_type := getattr(reason, "gpu_type", None))}
    return sorted(named) or (job.spec.task_groups[0].shape.gpu_types or TYPES)[:1]


def _without_others(world: World, job: Job) -> World:
    """Nothing else waits."""
    snapshot = world.snapshot
    jobs = [known for known in snapshot.jobs if known.phase != "pending" or known.name == job.name]
    holders = {known.name for known in jobs}
    kept = tuple(held for held in snapshot.in_flight.reservations if held.is_declared or held.holder in holders)
    return World(
        with_jobs(snapshot, jobs, msgspec.structs.replace(snapshot.in_flight, reservations=kept)), world.policy
    )


def _followed(
    world: World, job: Job, gpu_type: GpuType, reasons: Sequence[AnyReason], way: Way
) -> tuple[int | None, bool, tuple[str, ...]]:
    """How often advice is followed until the job starts, whether others started first, and what bound it then."""
    taken, then = False, list[str]()
    for step in range(1, STEPS_MAX + 1):
        job = next(known for known in world.snapshot.jobs if known.name == job.name)
        world = made(world, job, gpu_type, reasons, way if step == 1 else "room")
        plan = solve(world.snapshot, world.policy, None)
        verdict = next(known for known in plan.verdicts if known.job == job.name)
        if isinstance(verdict, Starts) or not isinstance(verdict, Waits):
            return (step if isinstance(verdict, Starts) else None), taken, (*then, str(verdict))
        leaving = [job for reason in verdict.reasons if isinstance(reason, AwaitsRelease) for job in reason.leaving]
        if leaving:
            # What stands for room that was not asked for never leaves.
            return (None if any(job.startswith(FILLER) for job in leaving) else step), taken, tuple(then)
        then.append("; ".join(map(str, verdict.reasons)))
        taken |= any(isinstance(other, Starts) for other in plan.verdicts)
        rested = at_rest(world)
        if rested is None:
            return None, taken, tuple(then)
        world, settled = rested, solve(rested.snapshot, rested.policy, None)
        now = next(known for known in settled.verdicts if known.job == job.name)
        if not isinstance(now, Waits):
            return step, taken, tuple(then)
        reasons = of_type(now.reasons, gpu_type)
        if not reasons or not can_be_tried(reasons):
            return None, taken, tuple(then)
    return None, taken, tuple(then)


def figures(tried: Iterable[Trial]) -> dict[str, object]:
    """How many, and how many of them started at once, later, and never; alone and in line."""
    tried = tuple(tried)
    found: dict[str, object] = {}
    for alone, name in ((True, "alone"), (False, "inLine")):
        of = [trial for trial in tried if trial.alone == alone]
        steps = Counter(trial.steps for trial in of)
        found[name] = {
            "trials": len(of),
            "startedAtOnce": steps[1],
            "startedLater": sum(count for step, count in steps.items() if step is not None and step > 1),
            "never": steps[None],
            "takenByOthers": sum(trial.taken and trial.steps != 1 for trial in of),
            "share": round(steps[1] / len(of), 4) if of else None,
        }
    return found
