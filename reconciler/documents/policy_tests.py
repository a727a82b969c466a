"""What is wrong with PolicyTest documents: names that nothing has, times after the end, statements that say nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import fields

from reconciler.documents.declarations import Declaration
from reconciler.documents.inventory import Pools
from reconciler.documents.job import LIMITED, LIMITED_FIX
from reconciler.documents.policy_test import DETAILS, REASON_CODES, SUBJECTS, GivenJob, PolicyTest, Statement
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.cluster import NodeName
from solver.model.quantities import Duration
from solver.model.workload import JobName
from solver.plan.reason import count
from solver.policy.policy import Queue

_Test = Declaration[PolicyTest]

_JOBS_MAX = 10_000

_NODES_MAX = 10_000

_LASTS_MAX = Duration(90 * 86_400_000)
"""Of one test. Its rounds are held while a command waits for them, perhaps for a pull request of a stranger."""

_UNKNOWN = {
    "Queue": "unknown-queue",
    "PriorityClass": "unknown-priority-class",
    "GPU type": "unknown-gpu-type",
    "node": "unknown-node",
    "job": "unknown-job",
}
"""The code of a name that nothing has, by what it should be of."""

_WRITTEN = {field.name: field.encode_name for field in fields(Statement)}

_OF_QUEUES = ("hold", "have-share")

_NEEDED = {"keep": ("at_least",), "hold": ("at_least", "at_most"), "have-share": ("share",)}
"""One of these must be said, or nothing is."""


@dataclass(frozen=True)
class Names:
    """What documents of the repository are called; None: some can't be read, so nothing is called unknown."""

    queues: Collection[str] | None
    leaves: Collection[str] | None
    classes: Collection[str] | None
    nodes: Collection[str] | None
    gpu_types: Collection[str] | None


def names_of(
    queues: Iterable[Declaration[Queue]], known: set[str] | None, classes: set[str] | None, pools: Pools | None
) -> Names:
    """Gather them. `known`: names of all queues. `pools` None: not all are there."""
    parents = {queue.value.parent for queue in queues}
    return Names(
        known,
        None if known is None else known - parents,
        classes,
        None if pools is None else {node for pool in pools for node in pool.value.node_names()},
        None if pools is None else {pool.value.gpu_type for pool in pools if pool.value.gpu_type},
    )


def policy_test_problems(tests: Iterable[_Test], names: Names) -> Iterator[Problem]:
    """Everything that their schema can't say."""
    for test in tests:
        too_large = list(_too_large(test))
        yield from too_large
        if too_large:
            continue  # Its names are not even written out.
        own = _with_own_pools(test.value, names)
        yield from _pool_problems(test)
        yield from _job_problems(test, own)
        yield from _time_problems(test)
        yield from _event_problems(test, own)
        for index, node in enumerate(test.value.given.lost):
            yield from _unknown(test, ("spec", "given", "lost", index), "node", node, own.nodes)
        for index, node in enumerate(test.value.given.cordoned):
            yield from _unknown(test, ("spec", "given", "cordoned", index), "node", node, own.nodes)
        jobs = _job_names(test.value)
        for index, statement in enumerate(test.value.then):
            at: Path = ("spec", "then", index)
            yield from _statement_problems(test, at, statement, jobs)
            yield from _unknown(test, (*at, "queue"), "Queue", statement.queue, own.queues)
            yield from _unknown(test, (*at, "priorityClass"), "PriorityClass", statement.priority_class, own.classes)
            yield from _unknown(test, (*at, "gpuType"), "GPU type", statement.gpu_type, own.gpu_types)


def _too_large(test: _Test) -> Iterator[Problem]:
    """What would take too long to try."""
    given = test.value.given
    for what, number, most in (
        ("jobs", sum(job.count for job in given.jobs), _JOBS_MAX),
        ("nodes", sum(pool.nodes for pool in given.pools), _NODES_MAX),
    ):
        if number > most:
            at: Path = ("spec", "given", "jobs" if what == "jobs" else "pools")
            message = f"these are {number} {what}, at most {most} are possible"
            yield test.problem(at, f"too-many-{what}", message, "Lower a count.")
    if test.value.lasts > _LASTS_MAX:
        message = f"the test lasts {test.value.lasts}, at most {_LASTS_MAX} are possible"
        yield test.problem(("spec", "for"), "too-long", message, "Let less time pass.")


def _with_own_pools(test: PolicyTest, names: Names) -> Names:
    """The cluster that a test writes in place counts instead of the declared one."""
    pools = test.given.pools
    if not pools:
        return names
    nodes = {node for pool in pools for node in pool.node_names()}
    types = {pool.gpu_type for pool in pools if pool.gpu_type}
    return Names(names.queues, names.leaves, names.classes, nodes, types)


def _unknown(test: _Test, at: Path, what: str, name: str | None, known: Collection[str] | None) -> Iterator[Problem]:
    if name and known is not None and name not in known:
        yield test.problem(at, _UNKNOWN[what], f"there is no {what} {name}", did_you_mean(name, known))


def _pool_problems(test: _Test) -> Iterator[Problem]:
    owner: dict[NodeName, str] = {}
    for index, pool in enumerate(test.value.given.pools):
        at: Path = ("spec", "given", "pools", index, "name")
        twice = next((node for node in pool.node_names() if owner.setdefault(node, pool.name) != pool.name), None)
        if twice or any(other.name == pool.name for other in test.value.given.pools[:index]):
            message = f"there are two pools with a node {twice or pool.node_names()[0]}"
            yield test.problem(at, "duplicate-name", message, "Rename one of them.")


def _job_names(test: PolicyTest) -> dict[JobName, GivenJob]:
    """What statements and events may call a job: its own name, and of several alike each one's."""
    return {name: job for job in test.given.jobs for name in (job.name, *job.names)}


def _job_problems(test: _Test, names: Names) -> Iterator[Problem]:
    seen: set[JobName] = set()
    jobs = test.value.given.jobs
    for index, job in enumerate(jobs):
        at: Path = ("spec", "given", "jobs", index)
        own = {job.name, *job.names}
        if own & seen:
            message = f"there are two jobs {min(own & seen)}"
            yield test.problem((*at, "name"), "duplicate-name", message, "Rename one of them.")
        seen |= own
        yield from _queue_problems(test, (*at, "queue"), job, names)
        yield from _unknown(test, (*at, "priorityClass"), "PriorityClass", job.priority_class, names.classes)
        for place, gpu_type in enumerate(job.gpu_types):
            yield from _unknown(test, (*at, "gpuTypes", place), "GPU type", gpu_type, names.gpu_types)
        for place, node in enumerate(job.running.on if job.running else ()):
            yield from _unknown(test, (*at, "running", "on", place), "node", node, names.nodes)
        yield from _task_problems(test, at, job, names.gpu_types)


def _queue_problems(test: _Test, at: Path, job: GivenJob, names: Names) -> Iterator[Problem]:
    unknown = list(_unknown(test, at, "Queue", job.queue, names.queues))
    yield from unknown
    if not unknown and names.leaves is not None and job.queue not in names.leaves:
        message = f"jobs are submitted to leaves, and below {job.queue} there are other queues"
        yield test.problem(at, "not-a-leaf", message, "Name one of those.")


def _task_problems(test: _Test, at: Path, job: GivenJob, known: Collection[str] | None) -> Iterator[Problem]:
    default = msgspec.structs.asdict(GivenJob(job.name, job.queue))
    for field, written in (("gpu_types", "gpuTypes"), ("replicas", "replicas"), ("min_replicas", "minReplicas")):
        if job.task_groups and getattr(job, field) != default[field]:
            message = f"{written} goes with gpus, and these tasks are in taskGroups"
            yield test.problem((*at, written), "choose-one", message, "Say it in the task group.")
    if job.min_replicas is not None and job.min_replicas > job.replicas:
        message = f"it starts with at least {count(job.min_replicas, 'task')} and has {job.replicas}"
        yield test.problem((*at, "minReplicas"), "min-above-replicas", message, "Lower it, or raise replicas.")
    for index, group in enumerate(job.task_groups):
        inside: Path = (*at, "taskGroups", index)
        if group.least > group.replicas:
            message = f"it starts with at least {count(group.least, 'task')} and has {group.replicas}"
            yield test.problem((*inside, "minReplicas"), "min-above-replicas", message, "Lower it, or raise replicas.")
        if group.nodes:
            yield test.problem((*inside, "nodes"), "nodes-in-snapshots", LIMITED, LIMITED_FIX)
        if job.running and (group.shape.is_shared or group.shape.mig):
            message = "only jobs of whole GPUs may run already"
            yield test.problem((*at, "running"), "parts-run", message, "Let it be submitted when the test begins.")
        for place, gpu_type in enumerate(group.shape.gpu_types):
            yield from _unknown(test, (*inside, "shape", "gpuTypes", place), "GPU type", gpu_type, known)


def _time_problems(test: _Test) -> Iterator[Problem]:
    """Times that contradict each other, or that the test never comes to."""
    lasts = test.value.lasts
    for index, job in enumerate(test.value.given.jobs):
        at: Path = ("spec", "given", "jobs", index)
        if job.submitted_at > lasts:
            fix = "Submit it earlier, or let the test last longer (for)."
            message = f"it is submitted after {job.submitted_at}, and the test lasts {lasts}"
            yield test.problem((*at, "submittedAt"), "after-the-end", message, fix)
        if job.submitted_at and (job.waited or job.running):
            message = "it is submitted later, so it can't have waited or run before"
            yield test.problem((*at, "submittedAt"), "choose-one", message, "Keep one of them.")
    for index, happening in enumerate(test.value.events):
        if happening.at > lasts:
            message = f"this happens after {happening.at}, and the test lasts {lasts}"
            fix = "Let it happen earlier, or let the test last longer (for)."
            yield test.problem(("spec", "events", index, "at"), "after-the-end", message, fix)
    for index, statement in enumerate(test.value.then):
        for field in ("until", "after"):
            time = getattr(statement, field)
            if time is not None and time > lasts:
                message = f"nothing is seen after {lasts}, when the test ends"
                fix = "Say an earlier time, or let the test last longer (for)."
                yield test.problem(("spec", "then", index, field), "after-the-end", message, fix)


def _event_problems(test: _Test, names: Names) -> Iterator[Problem]:
    jobs = _job_names(test.value)
    for index, happening in enumerate(test.value.events):
        at: Path = ("spec", "events", index)
        for field in ("lose", "cordon", "restore"):
            for place, node in enumerate(getattr(happening, field)):
                yield from _unknown(test, (*at, field, place), "node", node, names.nodes)
        for place, name in enumerate(happening.cancel):
            yield from _unknown(test, (*at, "cancel", place), "job", name, jobs)
            if name in jobs and jobs[name].submitted_at > happening.at:
                message = f"{name} is submitted only after {jobs[name].submitted_at}"
                yield test.problem((*at, "cancel", place), "not-there-yet", message, "Cancel it later.")
        if not (happening.lose or happening.cordon or happening.restore or happening.cancel):
            yield test.problem(at, "missing-field", "nothing happens here", "Add lose, cordon, restore or cancel.")


def _statement_problems(
    test: Declaration[PolicyTest], at: Path, statement: Statement, jobs: Mapping[JobName, GivenJob]
) -> Iterator[Problem]:
    """Everything that can be said of one without the rest of the repository."""
    said = [name for name in _WRITTEN if name != "must" and getattr(statement, name) is not None]
    yield from _subject_problems(test, at, statement, [name for name in said if name in SUBJECTS])
    for name in said:
        if name not in SUBJECTS and name not in DETAILS[statement.must]:
            known = " and ".join(_WRITTEN[detail] for detail in DETAILS[statement.must]) or "nothing"
            message = f"{_WRITTEN[name]} says nothing beside must: {statement.must}"
            yield test.problem((*at, _WRITTEN[name]), "detail-unused", message, f"With it go: {known}.")
    needed = _NEEDED.get(statement.must, ())
    if needed and not set(needed) & set(said):
        words = " or ".join(_WRITTEN[name] for name in needed)
        yield test.problem((*at, "must"), "missing-field", f"{statement.must} needs {words}", f"Add {words}.")
    for name in ("job", "before", "beneficiary"):
        written = getattr(statement, name)
        if written is not None and written not in jobs:
            fix = did_you_mean(written, jobs)
            yield test.problem((*at, name), "unknown-job", f"the test has no job {written}", fix)
    if statement.because is not None and statement.because not in REASON_CODES:
        fix = did_you_mean(statement.because, REASON_CODES) or "docs/reasons.md lists them."
        message = f"there is no reason {statement.because}"
        yield test.problem((*at, "because"), "unknown-reason", message, fix)
    runs = statement.job is not None and statement.job in jobs and jobs[statement.job].running is not None
    if runs and statement.must in ("start", "wait", "be-inadmissible"):
        message = f"{statement.job} runs already when the test begins"
        yield test.problem((*at, "must"), "runs-already", message, "Say stay, leave, shrink or keep.")


def _subject_problems(
    test: Declaration[PolicyTest], at: Path, statement: Statement, subjects: list[str]
) -> Iterator[Problem]:
    if len(subjects) > 1:
        words = " and ".join(_WRITTEN[name] for name in subjects)
        yield test.problem((*at, _WRITTEN[subjects[1]]), "choose-one", f"it is about {words}", "Keep one of them.")
    elif statement.must in _OF_QUEUES and subjects != ["queue"]:
        message = f"only a queue can be said to {statement.must}"
        yield test.problem((*at, "must"), "of-queues", message, "Add queue; of jobs, keep says what they hold.")
