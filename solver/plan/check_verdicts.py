"""Judges whether a plan says of every live job what it does with it. Part of the checker, and as slow and obvious."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from solver.plan.plan import Bind, Departs, Grow, Moves, Plan, Runs, Starts, Yields
from solver.plan.violation import Violation
from solver.world.snapshot import Snapshot


def verdict_violations(snapshot: Snapshot, plan: Plan) -> Iterable[Violation]:
    """Every live job has one verdict, and it says what the steps do."""
    jobs = {job.name: job for job in snapshot.jobs}
    named = Counter(verdict.job for verdict in plan.verdicts)
    for name in sorted(set(jobs) | set(named)):
        if named[name] != 1 or name not in jobs:
            yield Violation("verdicts", name, f"has {named[name]} verdicts; every live job has one")
    bound = {step.job for step in plan.steps if isinstance(step, Bind)}
    starting = {verdict.job for verdict in plan.verdicts if isinstance(verdict, Starts)}
    for name in sorted(bound ^ starting):
        yield Violation("verdicts", name, "is bound without the verdict `starts`, or the other way round")
    grown = {step.job for step in plan.steps if isinstance(step, Grow)}
    growing = {verdict.job for verdict in plan.verdicts if isinstance(verdict, Runs) and verdict.grows}
    for name in sorted(growing - grown):
        yield Violation("verdicts", name, "is said to grow, and does not")
    for verdict in plan.verdicts:
        job = jobs.get(verdict.job)
        if job and isinstance(verdict, Runs | Yields | Moves | Departs) != (job.phase != "pending"):
            yield Violation("verdicts", verdict.job, f"verdict does not suit a job that is {job.phase}")
