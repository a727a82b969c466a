"""Judges what a queue holds in a policy test: at the end, at every moment, or on average."""

from __future__ import annotations

from reconciler.documents.policy_test import Statement
from reconciler.gitops.policytests.course import Course, Held
from solver.model.quantities import Instant, MilliGpu


def hold(statement: Statement, course: Course) -> str:
    """Where a queue holds too few or too many GPUs, that; "" where it never does."""
    for at, held in _looked_at(statement, course):
        gpus = course.held_by(statement.queue, statement.gpu_type, held)
        if statement.at_least is not None and gpus < statement.at_least:
            asked = f"at least {statement.at_least} were asked"
        elif statement.at_most is not None and gpus > statement.at_most:
            asked = f"at most {statement.at_most} were asked"
        else:
            continue
        kind = f" {statement.gpu_type}" if statement.gpu_type else ""
        return f"queue {statement.queue} holds {gpus} GPUs{kind} at {course.since_begin(at)}; {asked}"
    return ""


def share(statement: Statement, course: Course) -> str:
    """Where a queue has less of what all queues hold than was asked, that; else ""."""
    if statement.after is None:
        last = course.held[-1][1]
        own, everybody = (course.held_by(queue, statement.gpu_type, last) for queue in (statement.queue, None))
        unit = "GPUs"
    else:
        spans = list(course.spans(statement.after))
        own, everybody = (
            MilliGpu(sum(ms * course.held_by(queue, statement.gpu_type, held) for _, ms, held in spans) // 3_600_000)
            for queue in (statement.queue, None)
        )
        unit = "GPU-hours"
    part = own / everybody if everybody else 0.0
    asked = statement.share or 0.0
    if part >= asked:
        return ""
    kind = f" of {statement.gpu_type}" if statement.gpu_type else ""
    of = f"{own} of the {everybody} {unit}{kind} that all queues have"
    return f"queue {statement.queue} has {of}, which is {part:.1%}; at least {asked:.1%} was asked"


def _looked_at(statement: Statement, course: Course) -> list[tuple[Instant, Held]]:
    if statement.after is None:
        return [(course.ends, course.held[-1][1])]
    return [(at, held) for at, _, held in course.spans(statement.after)]
