"""Judges whether a plan starts only what the queues let in: none on hold, no class or namespace barred there, no user above a cap.

Part of the checker. It needs every bound job and node to be in the snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from solver.checker.case import Charge, JudgedPlan
from solver.checker.dues import inside_limits
from solver.checker.policy_index import PolicyIndex
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.model.workload import Job
from solver.plan.violation import Violation
from solver.policy.policy import NamespaceAccess

UserUse = Counter[tuple[str, GpuType, str]]
"""GPUs by queue, type and user."""

Held = tuple[Job, Charge]
"""Somebody, and what counts for it."""


def entry_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every start that a queue on the job's path does not let in."""
    yield from gate_violations(case)
    yield from _users(case)
    yield from _not_lent(case)


def gate_violations(case: JudgedPlan) -> Iterator[Violation]:
    """Every start in a queue on hold, of a class that a queue does not take, or from a namespace that may not use the queue."""
    listed = [entry for queue in case.policy.queues for entry in queue.access.namespaces]
    allowed: dict[tuple[str, tuple[str, ...], str, str], bool] = {}
    for step in case.placing:
        job = case.jobs[step.job]
        alike = job.namespace, job.namespace_labels, job.spec.queue, job.spec.priority_class
        if job.namespace and alike not in allowed:
            allowed[alike] = _namespace_may(case, job, listed)
        if not allowed.get(alike, True):
            yield Violation("namespace", job.name, f"starts although namespace {job.namespace} may not use its queue")
        known = case.lookup.class_of(job)
        for queue in case.lookup.path(job.spec.queue):
            if queue.stop_policy != "None":
                yield Violation("hold", job.name, f"starts although queue {queue.name} is on hold")
            if queue.priority_classes is not None and (known is None or known.name not in queue.priority_classes):
                problem = f"starts with a priority class that queue {queue.name} does not take"
                yield Violation("class", job.name, problem)


def _namespace_may(case: JudgedPlan, job: Job, listed: Sequence[NamespaceAccess]) -> bool:
    """Whether a queue on the path lists its namespace for its class; of one that no queue lists, whether none there lists any."""
    on_path = [entry for queue in case.lookup.path(job.spec.queue) for entry in queue.access.namespaces]
    if not any(_means(entry, job) for entry in listed):
        return not on_path and case.policy.scheduling.unlisted_namespaces == "allowed"
    known = case.lookup.class_of(job)
    name = known.name if known else None
    return any(
        _means(entry, job) and (entry.priority_classes is None or name in entry.priority_classes) for entry in on_path
    )


def _means(entry: NamespaceAccess, job: Job) -> bool:
    if entry.selector is not None:
        return all(f"{key}={value}" in job.namespace_labels for key, value in entry.selector.match_labels.items())
    beginning, star, _ = entry.name.partition("*")
    namespace = job.namespace
    return namespace[: len(beginning)] == beginning and (bool(star) or len(namespace) == len(beginning))


def staying(case: JudgedPlan) -> Iterator[Held]:
    """Who counts beside the plan's own starts: not who is asked to leave, but who was promised something before."""
    leaving = case.sent_back | case.evicted
    settled = case.bound | case.promises.keys() | case.withdrawn
    promised = {name: case.ground.charge(tasks) for name, tasks in case.promised.items() if name not in settled}
    for job in case.snapshot.jobs:
        if job.placement and job.name not in leaving:
            yield job, case.held[job.name]
        elif job.name in promised:
            yield job, promised[job.name]


def _users(case: JudgedPlan) -> Iterable[Violation]:
    """S3 for users: no start lifts a user above a queue's perUser; a cap already broken is not made worse."""
    caps = {
        (str(queue.name), entry.gpu_type): entry.per_user
        for queue in case.policy.queues
        for entry in queue.quota
        if entry.per_user is not None
    }
    if not caps:
        return
    before = _use(case, staying(case))
    added = _use(case, ((case.jobs[step.job], case.given(step)) for step in case.placing))
    for (name, gpu_type, user), milli in sorted(added.items()):
        most, held = caps.get((name, gpu_type)), before[name, gpu_type, user]
        if milli and most is not None and held + milli > most:
            holds = f"{MilliGpu(held)} + {MilliGpu(milli)} {gpu_type} of user {user or '(none)'}"
            yield Violation("S3", name, f"{holds} is above perUser {most}")


def _not_lent(case: JudgedPlan) -> Iterator[Violation]:
    """S14: what may be neither preempted nor borrow lies inside the guarantees on its path, beside all that is not preemptible."""
    # What was promised before was judged when it was.
    firm = [step for step in case.placing if _is_firm(case, case.jobs[step.job]) and step.job not in case.promised]
    if not firm:
        return
    held = (
        (job.spec.queue, *one)
        for job, charge in staying(case)
        if (known := case.lookup.class_of(job)) and not known.preemptible
        for one in charge.items()
    )
    inside = inside_limits(case.lookup, case.guaranteed, held)
    gained = case.lookup.added_up(
        (case.jobs[step.job].spec.queue, *one) for step in firm for one in case.given(step).items()
    )
    for line, milli in gained.items():
        left = case.guaranteed.get(line, 0) - inside[line]
        if milli > left:
            told = f"{MilliGpu(milli)} {line.gpu_type} start that may not be lent, {MilliGpu(left)} of its guarantee are left"
            yield Violation("S14", line.queue, told)


def _is_firm(case: JudgedPlan, job: Job) -> bool:
    return is_firm(case.lookup, job)


def is_firm(lookup: PolicyIndex, job: Job) -> bool:
    """Whether a job may be neither preempted nor borrow."""
    known = lookup.class_of(job)
    return known is not None and not known.preemptible and not known.may_borrow


def _use(case: JudgedPlan, holders: Iterable[Held]) -> UserUse:
    use: UserUse = Counter()
    for job, charge in holders:
        for queue in case.lookup.path(job.spec.queue):
            for gpu_type, milli in charge.items():
                use[queue.name, gpu_type, job.user] += milli
    return use
