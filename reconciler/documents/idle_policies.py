"""What is wrong with IdlePolicy documents: unknown names, evidence that can't be had, two of them for one job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.documents.declarations import Declaration
from reconciler.model.gpu_use import MINUTE
from reconciler.model.idle_policy import IdleEvidence, IdlePolicy
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.quantities import Duration

Policies = Sequence[Declaration[IdlePolicy]]


def idle_policy_problems(
    documents: Policies, queues: set[str] | None, classes: set[str] | None, kept: Duration
) -> Iterator[Problem]:
    """`queues`, `classes`: the names of all; None where some are unreadable. `kept`: for how long minutes of GPUs' use are."""
    ordered = sorted(documents, key=lambda policy: policy.name)
    for place, policy in enumerate(ordered):
        yield from _unknown_names(policy, queues, classes)
        yield from _evidence_problems(policy, kept)
        for before in ordered[:place]:
            if before.value.overlaps(policy.value):
                message = f"IdlePolicy {before.name}, at {before.origin}, is for some of the same jobs"
                fix = "Name other queues, priorityClasses or jobTypes: of two the one with the nearer queue counts."
                yield policy.problem(("spec",), "overlapping-idle-policies", message, fix)


def _unknown_names(
    policy: Declaration[IdlePolicy], queues: set[str] | None, classes: set[str] | None
) -> Iterator[Problem]:
    named: list[tuple[Path, str]] = [
        (("spec", "queues", index), name) for index, name in enumerate(policy.value.queues)
    ]
    for number, exemption in enumerate(policy.value.exempt):
        named += [(("spec", "exempt", number, "queues", index), name) for index, name in enumerate(exemption.queues)]
    for at, name in named:
        if queues is not None and name not in queues:
            yield policy.problem(at, "unknown-queue", f"there is no Queue {name}", did_you_mean(name, queues))
    for index, name in enumerate(policy.value.priority_classes):
        if classes is not None and name not in classes:
            message, fix = f"there is no PriorityClass {name}", did_you_mean(name, classes)
            yield policy.problem(("spec", "priorityClasses", index), "unknown-priority-class", message, fix)


def _evidence_problems(policy: Declaration[IdlePolicy], kept: Duration) -> Iterator[Problem]:
    evidence, at = policy.value.idle_when, ("spec", "idleWhen")
    gpus = evidence.gpu_activity
    if evidence == IdleEvidence():
        message, fix = "nothing says when a job is idle", "Write gpuActivity: {below: 5, for: 30m}, or other evidence."
        yield policy.problem(at, "no-evidence", message, fix)
    for index, exemption in enumerate(policy.value.exempt):
        if not (exemption.queues or exemption.users or exemption.jobs):
            message, fix = "it names no queue, user or job, and would exempt all", "Name queues, users or jobs."
            yield policy.problem(("spec", "exempt", index), "exempts-everything", message, fix)
    if gpus is not None and gpus.lasts % MINUTE:
        message, fix = f"GPUs' use is known by the minute, and {gpus.lasts} is no whole number of minutes", "Write 30m."
        yield policy.problem((*at, "gpuActivity", "for"), "no-whole-minutes", message, fix)
    elif gpus is not None and gpus.lasts > kept:
        message = f"minutes of GPUs' use are kept for {kept}, so that {gpus.lasts} are never known"
        fix = "Write less, or raise gpuUse.keepMinutes of the SchedulingPolicy."
        yield policy.problem((*at, "gpuActivity", "for"), "longer-than-kept", message, fix)
    if evidence.no_task_activity_for is not None and policy.value.job_types != ("interactive",):
        message = "a job that computes uses a CPU and writes logs whatever its GPUs do, so this is for interactive jobs"
        fix = "Add jobTypes: [interactive], or judge by gpuActivity."
        yield policy.problem((*at, "noTaskActivityFor"), "task-activity-not-interactive", message, fix)
