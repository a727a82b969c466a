"""Jobs tried without being kept: the last snapshot with them in it, solved once; and those that are told "not now" for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.submission import bare_spec
from reconciler.api.views import verdict_words
from reconciler.control.control import NoPolicyError
from reconciler.lifecycle.jobs.containers import kept_to_containers
from reconciler.model.job_groups import NewJob
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Plan, Verdict, Waits
from solver.policy.policy import PriorityClass
from solver.round.solve import solve

JOBS_MAX = 100
"""Of one submission: what a round says of the hundredth element of an array it says of the others too."""


def plan_with(services: Services, snapshot: Snapshot, jobs: Iterable[NewJob], user: str) -> Plan:
    """A round about the snapshot and these jobs.

    Without the optimiser, which belongs to the loop: quick, and the same every time; a round may find better places.
    """
    _, policy = services.policy()
    asked = (_asked(job, snapshot, user) for job in _at_a_time(jobs))
    world = snapshot_of(snapshot.time, snapshot.nodes, (*snapshot.jobs, *asked), snapshot.in_flight, snapshot.node_sets)
    return solve(world, policy, None)


def asks_for_prompt_starts(services: Services) -> bool:
    """Whether any class of the policy in force has its jobs refused where they would wait."""
    try:
        _, policy = services.policy()
    except NoPolicyError:
        return False
    return any(known.start_within is not None for known in policy.priority_classes)


def require_prompt_starts(
    services: Services, name: JobName, jobs: Sequence[NewJob], user: str, idempotency_key: str
) -> None:
    """Raise RequestRefusedError where a job would wait for longer than its class allows (`startWithin`).

    What depends on other jobs is not judged, nor the elements of an array that have to wait for their turn, nor what was
    submitted under this name and key before: that is what the answer is about.
    """
    if not asks_for_prompt_starts(services):
        return
    (_, policy), now = services.policy(), services.clock.now()
    some = [job for job in jobs[:JOBS_MAX] if not job.spec.depends_on]
    known = [policy.priority_class(Job(job.name, now, job.spec, user)) for job in some]
    if not any(each and each.start_within is not None for each in known) or services.jobs.was_submitted(
        name, idempotency_key
    ):
        return
    snapshot = services.snapshot()
    verdicts = {verdict.job: verdict for verdict in plan_with(services, snapshot, some, user).verdicts}
    for priority_class, job in zip(known, some, strict=True):
        verdict = verdicts.get(job.name)
        if verdict and isinstance(verdict, Waits) and (told := late_start(priority_class, verdict, snapshot.time)):
            raise _not_now(job, verdict, told)


def late_start(priority_class: PriorityClass | None, verdict: Verdict | None, now: Instant) -> str:
    """`class shell takes only what starts within 10m`; "" where the class takes a job with this verdict."""
    within = priority_class.start_within if priority_class else None
    if priority_class is None or within is None or not isinstance(verdict, Waits):
        return ""
    if isinstance(verdict.estimate, EarliestStart) and verdict.estimate.at <= now.after(within):
        return ""
    return f"class {priority_class.name} takes only what starts {f'within {within}' if within else 'at once'}"


def _asked(job: NewJob, snapshot: Snapshot, user: str) -> Job:
    return Job(job.name, snapshot.time, kept_to_containers(bare_spec(job.spec), snapshot.node_sets), user)


def _at_a_time(jobs: Iterable[NewJob]) -> Iterator[NewJob]:
    """Those that a round would be asked about: of an array no more than may run at a time."""
    begun: Counter[str] = Counter()
    for job in jobs:
        array = job.array
        if array is None or array.max_running is None or begun[array.id] < array.max_running:
            yield job
        if array is not None:
            begun[array.id] += 1


def _not_now(job: NewJob, verdict: Waits, told: str) -> RequestRefusedError:
    why = "; ".join(verdict_words(verdict)) or "until when is not known"
    when = f"at {verdict.estimate.to_the_second}" if isinstance(verdict.estimate, EarliestStart) else "later"
    fix = f"Submit it again {when}, ask for less, or choose a class whose jobs wait."
    return RequestRefusedError(
        409, "not-now", f"Not now: {job.name} would wait ({why}), and {told}.", fix, verdict.reasons
    )
