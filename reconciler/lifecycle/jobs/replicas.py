"""What follows for the replicas of a service, one by one: those that end are started again, and the others go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.settlements import AskToLeave, AskToStop, ConfirmRunning, Restart, Settlement
from reconciler.model.causes import names_of
from reconciler.protocols.backend import TaskState
from reconciler.protocols.ledger import Claim
from solver.model.inflight import IntentKind
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobSpec, TaskPlacement
from solver.plan.reason import count

RESTART_AFTER = Duration(10_000)
"""Between the end of a replica and its next beginning, so that one that fails at once does not keep the control plane busy."""

RESTARTS_AT_ONCE = 5
RESTART_EVERY = Duration(300_000)
"""So often may an attempt begin tasks again at once; and once more for each such span that it has run."""

RESTART_DEADLINE = Duration(300_000)
"""How long a replica that begins again has until it runs: as long as the default of a policy's startDeadline."""

_BEGUN: frozenset[TaskState] = frozenset({"running", "succeeded", "failed"})
_ENDED: frozenset[TaskState] = frozenset({"succeeded", "failed"})


def settle_replicas(holding: ClaimContext) -> tuple[Settlement, ...]:
    """What follows for a service that is not ended; () where nothing does that would not follow for any gang."""
    claim = holding.claim
    # One request to leave at a time: what the next one has to say is true then as well.
    if holding.leaving:
        return ()
    if claim.running_since is None:
        return _start_without_the_late(holding) if _is_overdue(holding, "start") else ()
    if _is_overdue(holding, "grow"):
        late = _late(holding, holding.joining)
        if late:
            return (_go_on_without(holding, late, "they did not become ready in time"),)
    lost = tuple(task for task in holding.staying if _states(holding).get(_key(task)) == "lost")
    if lost:
        return (_go_on_without(holding, lost, "it is not known what became of them"),)
    return _restarts(holding, claim.running_since) if holding.asked("grow") is None else ()


def degradation(spec: JobSpec, claim: Claim, known: AttemptReport, now: Instant) -> str:
    """In what a running service falls short of what it should be; "" where it does not, and of every other job.

    `known`: what the backend reports of its tasks. Replicas that began again count for as long as it takes until another
    beginning is allowed for: one that crashes every few seconds runs in between, and is no better for it.
    """
    if spec.type != "service" or claim.running_since is None:
        return ""
    return "; ".join(_shortcomings(spec, claim, known, now))


def _shortcomings(spec: JobSpec, claim: Claim, known: AttemptReport, now: Instant) -> Iterator[str]:
    (group,) = spec.task_groups
    if len(claim.tasks) < (group.min_replicas or 1):
        yield f"it has {len(claim.tasks)} of at least {count(group.min_replicas or 1, 'replica')}"
    ended = {(status.group, status.index): status for status in known.tasks if status.state in _ENDED}
    resting = tuple(task for task in claim.tasks if _key(task) in ended)
    if resting:
        codes = sorted({code for task in resting if (code := ended[_key(task)].exit_code) is not None})
        told = f" with exit code {', '.join(map(str, codes))}" if codes else ""
        yield f"{names_of(resting)} ended{told} and will begin again"
    restarted_at = claim.marks.restarted_at
    if restarted_at is not None and now < restarted_at.after(RESTART_EVERY):
        yield f"replicas that had ended began again at {restarted_at}"


def _start_without_the_late(holding: ClaimContext) -> tuple[Settlement, ...]:
    """Those that are ready in time are the service; where none is, the round gives the attempt up as it does with any gang."""
    claim = holding.claim
    late = _late(holding, holding.staying)
    if not late or len(late) == len(holding.staying):
        return ()
    begun = max(holding.when(status.at) for status in holding.stays.tasks if status.state in _BEGUN)
    return (
        _go_on_without(holding, late, "they did not become ready in time"),
        ConfirmRunning(claim.job, claim.attempt, begun),
    )


def _restarts(holding: ClaimContext, running_since: Instant) -> tuple[Settlement, ...]:
    claim, now = holding.claim, holding.now
    if claim.growth >= RESTARTS_AT_ONCE + (now - running_since) // RESTART_EVERY:
        return ()
    rested = {
        (status.group, status.index)
        for status in holding.stays.tasks
        if status.state in _ENDED and status.at.after(RESTART_AFTER) <= now
    }
    due = tuple(task for task in holding.staying if _key(task) in rested)
    return (Restart(claim.job, claim.attempt, due),) if due else ()


def _go_on_without(holding: ClaimContext, gone: tuple[TaskPlacement, ...], cause: str) -> Settlement:
    claim = holding.claim
    if len(gone) == len(holding.staying):
        return AskToStop(claim.job, claim.attempt, f"none of its replicas runs: {cause}")
    return AskToLeave(claim.job, claim.attempt, gone, cause)


def _is_overdue(holding: ClaimContext, kind: IntentKind) -> bool:
    intent = holding.asked(kind)
    return intent is not None and intent.deadline <= holding.now


def _late(holding: ClaimContext, tasks: Iterable[TaskPlacement]) -> tuple[TaskPlacement, ...]:
    states = _states(holding)
    return tuple(task for task in tasks if states.get(_key(task)) not in _BEGUN)


def _states(holding: ClaimContext) -> dict[tuple[str, int], TaskState]:
    return {(status.group, status.index): status.state for status in holding.stays.tasks}


def _key(task: TaskPlacement) -> tuple[str, int]:
    return task.group, task.index
