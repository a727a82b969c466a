"""Judges the statements of a policy test by what became of its jobs, and says what happened instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from reconciler.documents.policy_test import GivenJob, Must, PolicyTest, Statement
from reconciler.gitops.policytests.course import Course, Held, Story, duration_text
from reconciler.gitops.policytests.idleness import warning_of
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Departs, Evict, Inadmissible, Moves, Shrink, Waits, Yields
from solver.plan.reason import count

_SHOWN_MAX = 3
"""Of many jobs alike that broke a statement, so many are told of."""


class Broken(NamedTuple):
    """A statement, by its place in `then`, that does not hold: what happened instead, and why."""

    statement: int
    message: str
    why: str


class _Said(NamedTuple):
    """What one job did instead, and why."""

    message: str
    why: str = ""


def broken(test: PolicyTest, course: Course) -> Iterator[Broken]:
    """Every statement that does not hold, in the order in which they are written."""
    for index, statement in enumerate(test.then):
        if statement.must in ("hold", "have-share"):
            said = _hold(statement, course) if statement.must == "hold" else _share(statement, course)
            if said:
                yield Broken(index, said, "")
        else:
            yield from _of_jobs(index, statement, test, course)


def _of_jobs(index: int, statement: Statement, test: PolicyTest, course: Course) -> Iterator[Broken]:
    stories = list(_about(statement, test, course))
    if not stories:
        yield Broken(index, "it is about no job: none was there while the test lasted", "")
        return
    findings = [found for story in stories if (found := _JUDGES[statement.must](statement, story, course, test))]
    if not findings:
        return
    count = f"{len(findings)} of {len(stories)} jobs: " if len(stories) > 1 else ""
    rest = f"; and {len(findings) - _SHOWN_MAX} more" if len(findings) > _SHOWN_MAX else ""
    shown = "; ".join(found.message for found in findings[:_SHOWN_MAX])
    yield Broken(index, f"{count}{shown}{rest}", findings[0].why)


def _about(statement: Statement, test: PolicyTest, course: Course) -> Iterator[Story]:
    """The jobs that a statement is about. To start, be refused or wait is asked only of those that do not run already."""
    named = set(_names(statement.job, test)) if statement.job else None
    queues = course.leaves_below(statement.queue) if statement.queue else None
    for name, story in sorted(course.stories.items()):
        known = course.policy.priority_class_name(story.job)
        if (
            (named is None or name in named)
            and (queues is None or story.job.spec.queue in queues)
            and statement.priority_class in (None, known)
            and not (story.ran_already and statement.must in ("start", "wait", "be-inadmissible"))
        ):
            yield story


def _names(name: JobName, test: PolicyTest) -> tuple[JobName, ...]:
    """The jobs that a name means: all of those alike, or one."""
    return next((job.names for job in test.given.jobs if job.name == name), (name,))


def _start(statement: Statement, story: Story, course: Course, test: PolicyTest) -> _Said | None:
    name = story.job.name
    if not story.starts:
        return _Said(f"{name} never starts: {_instead(story, course)}", _told(story, course))
    at, tasks = story.starts[0]
    # Before the first round no job can start: a job that has waited already is counted from there.
    waited = at - max(story.job.submitted_at, course.begins)
    if statement.within is not None:
        if waited > statement.within:
            late = f"{name} starts only {duration_text(waited)} after its submission, at {course.since_begin(at)}"
            return _Said(f"{late}; within {statement.within} was asked", _told(story, course, until=at))
    elif statement.before is None and at != story.verdicts[0][0]:
        return _Said(f"{name} does not start at once but at {course.since_begin(at)}", _told(story, course, until=at))
    return _before(statement, at, story, course, test) or _where(statement, name, tasks, course)


def _before(statement: Statement, at: Instant, story: Story, course: Course, test: PolicyTest) -> _Said | None:
    for name in _names(statement.before, test) if statement.before else ():
        other = course.stories.get(name)
        if other is not None and other.starts and other.starts[0][0] <= at:
            first = f"{name} starts at {course.since_begin(other.starts[0][0])}"
            late = f"{story.job.name} at {course.since_begin(at)}"
            return _Said(f"{first}, {late}", _told(story, course, until=at))
    return None


def _where(statement: Statement, name: JobName, tasks: tuple[TaskPlacement, ...], course: Course) -> _Said | None:
    nodes = [course.nodes[task.node] for task in tasks]
    types = {node.gpu_type for node, task in zip(nodes, tasks, strict=True) if task.devices}
    if statement.gpu_type is not None and types != {statement.gpu_type}:
        return _Said(f"{name} starts on {' and '.join(sorted(types)) or 'no GPUs'}, not on {statement.gpu_type}")
    domains = sorted({node.domain(statement.in_one) for node in nodes}) if statement.in_one else []
    if len(domains) > 1:
        return _Said(f"{name} starts over {len(domains)} {statement.in_one}s: {', '.join(domains)}")
    return None


def _wait(statement: Statement, story: Story, course: Course, _: PolicyTest) -> _Said | None:
    name = story.job.name
    first = story.verdicts[0][1] if story.verdicts else None
    started = story.starts[0][0] if story.starts else None
    if not isinstance(first, Waits):
        return _Said(f"{name} does not wait: {_instead(story, course)}", _told(story, course))
    if statement.until is not None and started is not None and started < course.begins.after(statement.until):
        return _Said(f"{name} starts at {course.since_begin(started)}, and was to wait until {statement.until}")
    return _told_so(statement, story, course)


def _be_inadmissible(statement: Statement, story: Story, course: Course, _: PolicyTest) -> _Said | None:
    if not story.blocked or not isinstance(story.blocked[0][1], Inadmissible):
        return _Said(f"{story.job.name} is not refused: {_instead(story, course)}", _told(story, course))
    return _told_so(statement, story, course)


def _told_so(statement: Statement, story: Story, course: Course) -> _Said | None:
    """Whether the reason that is asked for is among those that the job was ever told."""
    if statement.because is None or any(
        reason.__struct_config__.tag == statement.because for _, verdict in story.blocked for reason in verdict.reasons
    ):
        return None
    return _Said(f"{story.job.name} is never told {statement.because}, but {_why_not(story)}", _told(story, course))


def _stay(_: Statement, story: Story, course: Course, __: PolicyTest) -> _Said | None:
    gone = next(((at, step) for at, step in story.asked if isinstance(step, Evict)), None)
    return _Said(*_left(story, course, *gone)) if gone else None


def _leave(statement: Statement, story: Story, course: Course, test: PolicyTest) -> _Said | None:
    return _asked(statement, story, course, test, Evict)


def _shrink(statement: Statement, story: Story, course: Course, test: PolicyTest) -> _Said | None:
    return _asked(statement, story, course, test, Shrink)


def _asked(
    statement: Statement, story: Story, course: Course, test: PolicyTest, kind: type[Evict | Shrink]
) -> _Said | None:
    asked = [(at, step) for at, step in story.asked if isinstance(step, kind)]
    word = "asked to leave" if kind is Evict else "asked to shrink"
    name, beneficiaries = story.job.name, _names(statement.beneficiary, test) if statement.beneficiary else ()
    if not asked:
        return _Said(f"{name} is never {word}: {_instead(story, course)}")
    fitting = [
        at
        for at, step in asked
        if statement.by in (None, step.means) and (not beneficiaries or step.beneficiary in beneficiaries)
    ]
    if not fitting:
        said, why = _left(story, course, *asked[0])
        return _Said(f"{said}, which is not as asked", why)
    if statement.within is not None and fitting[0] > course.begins.after(statement.within):
        return _Said(f"{name} is {word} only at {course.since_begin(fitting[0])}; within {statement.within} was asked")
    return None


def _keep(statement: Statement, story: Story, course: Course, _: PolicyTest) -> _Said | None:
    asked = statement.at_least or MilliGpu(0)
    for at, held in story.held:
        if held < asked:
            why = [_left(story, course, when, step)[1] for when, step in story.asked if when == at]
            short = f"{story.job.name} holds {count(held.number, 'GPU')} at {course.since_begin(at)}"
            return _Said(f"{short}; at least {statement.at_least} were asked", "\n".join(why))
    if not story.held:
        return _Said(f"{story.job.name} never holds anything: {_instead(story, course)}", _told(story, course))
    return None


def _be_warned(statement: Statement, story: Story, course: Course, test: PolicyTest) -> _Said | None:
    found, name = warning_of(story, _given(story, test), course), story.job.name
    if isinstance(found, str):
        return _Said(f"{name} is not warned: {found}")
    said = f"{name} is warned at {course.since_begin(found.at)} by IdlePolicy {found.policy.name}"
    started = story.starts[0][0] if story.starts else story.job.started_at
    if statement.within is not None and started is not None and found.at > started.after(statement.within):
        return _Said(f"{said}; within {statement.within} of its start was asked")
    if statement.action not in (None, found.policy.action):
        return _Said(f"{said}, and {found.policy.action} follows; {statement.action} was asked")
    return None


def _not_be_warned(_: Statement, story: Story, course: Course, test: PolicyTest) -> _Said | None:
    found = warning_of(story, _given(story, test), course)
    if isinstance(found, str):
        return None
    by = f"IdlePolicy {found.policy.name}, {found.policy.origin}"
    return _Said(f"{story.job.name} is warned at {course.since_begin(found.at)} ({by})")


def _given(story: Story, test: PolicyTest) -> GivenJob:
    return next(job for job in test.given.jobs if story.job.name in job.names)


_JUDGES: dict[Must, Callable[[Statement, Story, Course, PolicyTest], _Said | None]] = {
    "start": _start,
    "wait": _wait,
    "be-inadmissible": _be_inadmissible,
    "stay": _stay,
    "leave": _leave,
    "shrink": _shrink,
    "keep": _keep,
    "be-warned": _be_warned,
    "not-be-warned": _not_be_warned,
}


def _instead(story: Story, course: Course) -> str:
    """Where the job stands in the end."""
    if story.starts:
        return f"it starts at {course.since_begin(story.starts[0][0])}"
    if story.blocked and isinstance(story.blocked[-1][1], Inadmissible):
        return "it is refused"
    if story.blocked:
        return f"it still waits at {course.since_begin(course.ends)}"
    return "it goes on with what it has"


def _why_not(story: Story) -> str:
    """The codes of what it was told when it was told something last."""
    if not story.blocked:
        return "nothing"
    return ", ".join(sorted({str(reason.__struct_config__.tag) for reason in story.blocked[-1][1].reasons}))


def _told(story: Story, course: Course, until: Instant | None = None) -> str:
    """The reasons that it was told last, before an instant."""
    blocked = [(at, verdict) for at, verdict in story.blocked if until is None or at < until]
    if not blocked:
        return ""
    at, verdict = blocked[-1]
    reasons = (f"{reason.__struct_config__.tag}: {reason}" for reason in verdict.reasons)
    return f"at {course.since_begin(at)} {story.job.name} was told: {'; '.join(reasons)}"


def _left(story: Story, course: Course, at: Instant, step: Evict | Shrink) -> tuple[str, str]:
    """That it was asked to leave or to shrink, and why."""
    word = "leave" if isinstance(step, Evict) else f"give up {count(step.gpus.number, 'GPU')}"
    whom = f" for {step.beneficiary}" if step.beneficiary else ""
    message = f"{story.job.name} is asked to {word} at {course.since_begin(at)}, by {step.means}{whom}"
    why = next((str(v) for when, v in story.verdicts if when == at and isinstance(v, Yields | Moves | Departs)), "")
    return message, f"{story.job.name} {why}" if why else ""


def _hold(statement: Statement, course: Course) -> str:
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
        return f"queue {statement.queue} holds {count(gpus.number, 'GPU')}{kind} at {course.since_begin(at)}; {asked}"
    return ""


def _share(statement: Statement, course: Course) -> str:
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
