"""What is lost when an attempt is over: the work since its last checkpoint, or all of it."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.checkpoint_record import CheckpointRecord
from reconciler.protocols.ledger import Claim
from solver.model.quantities import MILLI_PER_GPU, Instant


def lost_gpu_s(claim: Claim, saved: CheckpointRecord | None, now: Instant) -> float:
    """GPU-seconds since its last checkpoint, else since all its tasks ran; 0 for an attempt that never ran."""
    if claim.running_since is None:
        return 0.0
    since = max(claim.running_since, saved.at) if saved else claim.running_since
    return sum(task.gpus for task in claim.tasks) / MILLI_PER_GPU * max(0, now - since) / 1_000


def lost_words(claim: Claim, checkpoints: Iterable[CheckpointRecord], now: Instant) -> str:
    """The same as the end of a sentence; nothing of an attempt that never ran. `checkpoints`: of the job, newest first."""
    if claim.running_since is None:
        return ""
    saved = whole_of(claim, checkpoints)
    since = f"since its checkpoint of step {saved.step}" if saved else "of which nothing is saved"
    return f"; {lost_gpu_s(claim, saved, now):.1f} GPU-seconds of work {since} are lost"


def whole_of(claim: Claim, checkpoints: Iterable[CheckpointRecord]) -> CheckpointRecord | None:
    """The newest one of an attempt that it can go on from. `checkpoints`: of the job, newest first."""
    whole = (one for one in checkpoints if one.attempt == claim.attempt and one.state in ("published", "verified"))
    return next(whole, None)
