"""Which jobs may write to a storage now, so that a burst of requests to save does not drown it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from reconciler.model.checkpoint_policy import DEFAULT, CheckpointPolicy
from reconciler.model.problem import did_you_mean
from solver.model.workload import JobName, JobSpec


def storage_of(spec: JobSpec, policies: Mapping[str, CheckpointPolicy]) -> CheckpointPolicy | None:
    """The policy by which a job's checkpoints are kept; None: it saves nothing, or not under the control plane's eyes."""
    return policies.get(spec.checkpoint.storage or DEFAULT) if spec.checkpoint is not None else None


def unknown_storage(spec: JobSpec, policies: Iterable[CheckpointPolicy]) -> tuple[str, str] | None:
    """Problem and fix, where a job names a CheckpointPolicy that there is not."""
    named, known = spec.checkpoint.storage if spec.checkpoint else "", [policy.name for policy in policies]
    if not named or named in known:
        return None
    return f"There is no CheckpointPolicy {named}.", did_you_mean(named, known) or "Leave checkpoint.storage out."


def turns(
    wanting: Iterable[tuple[JobName, str]], writing: Iterable[str], policies: Mapping[str, CheckpointPolicy]
) -> tuple[JobName, ...]:
    """The jobs that may be asked to save their work now, in the order given; the others wait until a turn is free.

    `wanting`: jobs to be asked, each with the name of its storage; `writing`: the storages of those that were asked and are at it.
    A storage that no policy names has no limit.
    """
    used = Counter(writing)
    chosen = []
    for job, storage in wanting:
        policy = policies.get(storage)
        if policy is None or used[storage] < policy.max_concurrent_checkpoints:
            used[storage] += 1
            chosen.append(job)
    return tuple(chosen)
