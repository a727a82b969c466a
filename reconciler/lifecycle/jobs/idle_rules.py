"""Finds jobs that hold GPUs and do nothing: they are warned first, and after a grace an IdlePolicy says what follows.

The idle limit of an interactive job is such a rule, too, without a grace, and it ends the job: its evidence is what its GPUs do,
or, where that is not known, what its tasks do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.lifecycle.jobs.idle_gpus import GpuStill
from reconciler.lifecycle.jobs.idleness import NEWS_MAX, activity_of, is_idle
from reconciler.lifecycle.jobs.settlements import AskToStop, RecordMarks, Settlement, SuspendIdle
from reconciler.model.idle_policy import GpuActivityBelow, IdleEvidence, IdleExemption, IdlePolicy, idle_policy_of
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import AttemptKey
from reconciler.protocols.ledger import Claim, IdleMark
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName, TaskPlacement
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree

BELOW_OF_LIMITS: Final = 1.0
"""Percent: a GPU that is less active does nothing, by idle limits. An IdlePolicy says its own bound."""


class IdleFacts(NamedTuple):
    """The IdlePolicies in force, what they need to know of queues and classes, and since when the GPUs of attempts are still."""

    policies: tuple[IdlePolicy, ...]
    paths: Mapping[QueueName, tuple[QueueName, ...]]
    default_class: str
    gpus: Mapping[AttemptKey, GpuStill]

    def policy_of(self, record: JobRecord) -> IdlePolicy | None:
        """The one for a job; None: none is."""
        spec = record.spec
        return idle_policy_of(
            self.policies, self.path(spec.queue), spec.priority_class or self.default_class, spec.type
        )

    def exemption_of(self, record: JobRecord, now: Instant) -> IdleExemption | None:
        """What exempts a job from its policy now."""
        policy = self.policy_of(record)
        return policy.exemption(record.name, record.user, self.path(record.spec.queue), now) if policy else None

    def path(self, queue: QueueName) -> tuple[QueueName, ...]:
        """A queue and those above it."""
        return self.paths.get(queue, (queue,))


def idle_facts_of(policies: tuple[IdlePolicy, ...], policy: Policy) -> IdleFacts:
    """Without anything that is known of GPUs."""
    tree = QueueTree.of(policy)
    paths = {queue.name: tree.path(queue.name) for queue in policy.queues}
    return IdleFacts(policies, paths, policy.scheduling.default_priority_class, {})


class RunningTasks(NamedTuple):
    """What is judged: a gang that runs since `since`, with what the backend reports of the tasks that stay."""

    record: JobRecord
    claim: Claim
    staying: tuple[TaskPlacement, ...]
    known: AttemptReport
    since: Instant
    now: Instant


class Idle(NamedTuple):
    """It has done nothing since then; `is_so`: for as long as the evidence asks."""

    since: Instant
    is_so: bool


def limit_is_over(running: RunningTasks, gpus: GpuStill | None) -> bool:
    """Whether an interactive job has done nothing for its idle limit. `gpus`: what its GPUs do; None: it is not known."""
    limit = running.claim.idle_limit
    if limit is None:
        return False
    activity = activity_of(running.known, running.staying, running.since, gpus)
    return activity is not None and is_idle(activity, limit, running.now, gpus)


def bound_of_limit(claim: Claim) -> GpuActivityBelow | None:
    """What GPUs must not have done for an interactive job to be idle by its limit; None: it has none."""
    return None if claim.idle_limit is None else GpuActivityBelow(BELOW_OF_LIMITS, claim.idle_limit)


def idle_by(evidence: IdleEvidence, running: RunningTasks, gpus: GpuStill | None) -> Idle | None:
    """Whether all evidence that is asked for holds; None: of some it is not known."""
    parts = list(_parts(evidence, running, gpus))
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    return Idle(max(part.since for part in known), all(part.is_so for part in known))


def _parts(evidence: IdleEvidence, running: RunningTasks, gpus: GpuStill | None) -> Iterator[Idle | None]:
    if evidence.gpu_activity is not None:
        yield None if gpus is None else Idle(gpus.since, gpus.lasts >= evidence.gpu_activity.lasts)
    if evidence.no_progress_for is not None:
        yield _without_progress(running, evidence.no_progress_for)
    if evidence.no_task_activity_for is not None:
        limit = evidence.no_task_activity_for
        activity = activity_of(running.known, running.staying, running.since)
        if activity is None or running.now - activity.seen_at > NEWS_MAX:
            yield None
        else:
            yield Idle(activity.active_at, is_idle(activity, limit, running.now))


def _without_progress(running: RunningTasks, limit: Duration) -> Idle | None:
    """A report is a heartbeat, whatever step it says. Of tasks of which nothing is heard it is not known."""
    if not running.known.knows_all(running.staying):
        return None
    reported = (task.progress.at for task in running.known.tasks if task.progress is not None)
    since = max(running.since, *reported, Instant(0))
    return Idle(since, running.now - since >= limit)


def settle_idle(running: RunningTasks, facts: IdleFacts) -> tuple[Settlement, ...]:
    """What follows for a gang that runs and is not asked to stop."""
    policy, mark = facts.policy_of(running.record), running.claim.marks.idle
    if policy is None:
        return _over(running, mark, "no IdlePolicy is for it any more")
    exemption = facts.exemption_of(running.record, running.now)
    if exemption is not None:
        return _over(
            running, mark, f"IdlePolicy {policy.name} leaves it alone until {exemption.until}: {exemption.reason}"
        )
    found = idle_by(policy.idle_when, running, facts.gpus.get((running.claim.job, running.claim.attempt)))
    if found is None:
        return _over(running, mark, "it is not known any more what it does")
    if not found.is_so:
        return _over(running, mark, "it does something again")
    if mark is None or mark.policy != policy.name:
        return (_warned(running, policy, found),)
    return _follow(running, policy, mark)


def _warned(running: RunningTasks, policy: IdlePolicy, found: Idle) -> RecordMarks:
    mark = _mark_of(policy, found.since, running.now)
    cause = f"{_seen(policy, found.since)}{_what_follows(mark)} (IdlePolicy {policy.name}, {policy.origin})"
    return _marked(running, mark, "idle", cause)


def _follow(running: RunningTasks, policy: IdlePolicy, mark: IdleMark) -> tuple[Settlement, ...]:
    """A policy that says something else by now holds from the warning that was given."""
    said = _mark_of(policy, mark.since, mark.warned_at)
    if said != msgspec.structs.replace(mark, lent_at=None):
        return (_marked(running, said),)
    if running.now < mark.acts_at:
        return ()
    cause = (
        f"{_seen(policy, mark.since)}, though warned at {mark.warned_at} (IdlePolicy {policy.name}, {policy.origin})"
    )
    match policy.action:
        case "lend" if mark.lent_at is None:
            lent = msgspec.structs.replace(mark, lent_at=running.now)
            return (_marked(running, lent, "lent", f"{cause}: what it holds counts as borrowed"),)
        case "suspend":
            return (SuspendIdle(running.claim.job, running.claim.attempt, by_policy(policy.name), cause),)
        case "end":
            return (AskToStop(running.claim.job, running.claim.attempt, cause, "cull"),)
        case _:
            return ()


def by_policy(name: str) -> str:
    """As the actor of what an IdlePolicy does."""
    return f"IdlePolicy {name}"


def exempt_words(facts: IdleFacts, record: JobRecord, now: Instant) -> str:
    """That a policy leaves a job alone, until when and why; "": none does."""
    policy, exemption = facts.policy_of(record), facts.exemption_of(record, now)
    if policy is None or exemption is None:
        return ""
    return f"IdlePolicy {policy.name} ({policy.origin}) leaves it alone until {exemption.until}: {exemption.reason}"


def _mark_of(policy: IdlePolicy, since: Instant, warned_at: Instant) -> IdleMark:
    return IdleMark(policy.name, policy.origin, policy.action, since, warned_at, warned_at.after(policy.grace))


def _marked(running: RunningTasks, mark: IdleMark | None, kind: str = "", cause: str = "") -> RecordMarks:
    marks = msgspec.structs.replace(running.claim.marks, idle=mark)
    return RecordMarks(running.claim.job, running.claim.attempt, marks, kind, cause)


def _over(running: RunningTasks, mark: IdleMark | None, why: str) -> tuple[Settlement, ...]:
    if mark is None:
        return ()
    lent = "; what it holds is its queue's own again" if mark.lent_at is not None else ""
    return (_marked(running, None, "idle-over", f"{why}{lent}"),)


def _seen(policy: IdlePolicy, since: Instant) -> str:
    evidence, found = policy.idle_when, []
    if evidence.gpu_activity is not None:
        found.append(f"all its GPUs were below {evidence.gpu_activity.below:g} % active")
    if evidence.no_progress_for is not None:
        found.append("no task reported progress")
    if evidence.no_task_activity_for is not None:
        found.append("no task did anything")
    return f"{' and '.join(found)} since {since}"


def _what_follows(mark: IdleMark) -> str:
    does: dict[str, str] = {
        "lend": "its GPUs count as borrowed",
        "suspend": "it is suspended",
        "end": "it is ended",
    }
    return f"; unless it does something, {does[mark.action]} at {mark.acts_at}" if mark.action in does else ""


def idle_words(mark: IdleMark) -> Iterator[str]:
    """What is said of a job that was warned."""
    by = f"by IdlePolicy {mark.policy} ({mark.origin})"
    told = f"it has done nothing since {mark.since}, {by}, and was warned at {mark.warned_at}"
    if mark.lent_at is not None:
        yield f"{told}; since {mark.lent_at} what it holds counts as borrowed"
    else:
        yield f"{told}{_what_follows(mark)}"


def culled_words(claim: Claim) -> str:
    """Why a job that was asked to end for being idle has ended."""
    mark = claim.marks.idle
    if mark is not None and mark.action == "end":
        return f"it did nothing since {mark.since}: IdlePolicy {mark.policy} ends such jobs"
    return f"it was idle for longer than its idle limit of {claim.idle_limit}"
