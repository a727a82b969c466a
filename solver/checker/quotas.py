"""Judges S3: no admission lifts a queue above its max at any level; a limit already broken is not made worse.

Part of the checker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from solver.checker.case import JudgedPlan
from solver.checker.host_quota import host_lending_violations, host_quota_violations
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.plan.violation import Violation
from solver.policy.tree import QuotaLine

Charged = tuple[str, GpuType, int]
"""A queue, and how much a job of it has of a type."""


def quota_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every line of the quota tree that a plan breaks. What joins or leaves a running gang is a job of its own here."""
    yield from host_quota_violations(case)
    yield from host_lending_violations(case)
    added = case.lookup.added_up(_added(case))
    limited = [
        (QuotaLine(queue.name, entry.gpu_type), entry.max)
        for queue in case.policy.queues
        for entry in queue.quota
        if entry.max is not None and added[QuotaLine(queue.name, entry.gpu_type)]
    ]
    before = case.lookup.added_up(_charged(case)) if limited else added
    for line, most in limited:
        if before[line] + added[line] > most:
            held, more = MilliGpu(before[line]), MilliGpu(added[line])
            yield Violation("S3", line.queue, f"{held} + {more} {line.gpu_type} is above max {most}")


def _added(case: JudgedPlan) -> Iterator[Charged]:
    """What the plan gives and promises."""
    for step in case.placing:
        queue = case.jobs[step.job].spec.queue
        for gpu_type, milli in case.given(step).items():
            yield queue, gpu_type, milli


def _charged(case: JudgedPlan) -> Iterator[Charged]:
    """Who counts beside this plan's own starts: not who is evicted, but who was promised its devices."""
    leaving = case.sent_back | case.evicted
    for job in case.snapshot.jobs:
        if job.placement and job.name not in leaving:
            for gpu_type, milli in case.held[job.name].items():
                yield job.spec.queue, gpu_type, milli
    provided = case.bound | case.promises.keys() | case.withdrawn
    for intent in case.intents:
        if intent.kind == "nominate" and intent.job in case.jobs and intent.job not in provided:
            for gpu_type, milli in case.ground.charge(intent.tasks).items():
                yield case.jobs[intent.job].spec.queue, gpu_type, milli
