"""Whether what a job names in the policy exists, before the job is accepted."""

from __future__ import annotations

from reconciler.api.problems import RequestRefusedError
from reconciler.documents.operations import Operations
from reconciler.lifecycle.checkpoints.turns import unknown_storage
from reconciler.model.problem import did_you_mean
from solver.model.workload import JobSpec


def require_named_policies(spec: JobSpec, operations: Operations) -> None:
    """Raises RequestRefusedError where the job names a RetryPolicy or a CheckpointPolicy that there is not."""
    known = [policy.name for policy in operations.retry]
    if spec.retry_policy and spec.retry_policy not in known:
        fix = did_you_mean(spec.retry_policy, known) or "Commit it to policies/, or name none."
        message = f"There is no RetryPolicy {spec.retry_policy}."
        raise RequestRefusedError(422, "unknown-retry-policy", message, fix)
    unknown = unknown_storage(spec, operations.checkpoints)
    if unknown:
        raise RequestRefusedError(422, "unknown-checkpoint-policy", *unknown)


def require_allowed_image(spec: JobSpec, operations: Operations) -> None:
    """Raises RequestRefusedError where policy does not allow the image that the job names."""
    refusal = operations.images.refusal(spec.container.image) if spec.container else None
    if refusal:
        message, fix = refusal
        raise RequestRefusedError(422, "image-not-allowed", f"{message[0].upper()}{message[1:]}.", fix)
