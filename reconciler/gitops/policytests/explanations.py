"""What became of a job instead, and what it was told, in words for whoever broke a policy test."""

from __future__ import annotations

from reconciler.gitops.policytests.course import Course, Story
from solver.model.quantities import Instant
from solver.plan.plan import Departs, Evict, Inadmissible, Moves, Shrink, Yields


def instead(story: Story, course: Course) -> str:
    """Where the job stands in the end."""
    if story.starts:
        return f"it starts at {course.since_begin(story.starts[0][0])}"
    if story.blocked and isinstance(story.blocked[-1][1], Inadmissible):
        return "it is refused"
    if story.blocked:
        return f"it still waits at {course.since_begin(course.ends)}"
    return "it goes on with what it has"


def why_not(story: Story) -> str:
    """The codes of what it was told when it was told something last."""
    if not story.blocked:
        return "nothing"
    return ", ".join(sorted({str(reason.__struct_config__.tag) for reason in story.blocked[-1][1].reasons}))


def told(story: Story, course: Course, until: Instant | None = None) -> str:
    """The reasons that it was told last, before an instant."""
    blocked = [(at, verdict) for at, verdict in story.blocked if until is None or at < until]
    if not blocked:
        return ""
    at, verdict = blocked[-1]
    reasons = (f"{reason.__struct_config__.tag}: {reason}" for reason in verdict.reasons)
    return f"at {course.since_begin(at)} {story.job.name} was told: {'; '.join(reasons)}"


def left(story: Story, course: Course, at: Instant, step: Evict | Shrink) -> tuple[str, str]:
    """That it was asked to leave or to shrink, and why."""
    word = "leave" if isinstance(step, Evict) else f"give up {step.gpus} GPUs"
    whom = f" for {step.beneficiary}" if step.beneficiary else ""
    message = f"{story.job.name} is asked to {word} at {course.since_begin(at)}, by {step.means}{whom}"
    why = next((str(v) for when, v in story.verdicts if when == at and isinstance(v, Yields | Moves | Departs)), "")
    return message, f"{story.job.name} {why}" if why else ""
