"""From where a job goes on: its newest checkpoint that verifies, and which newer ones were passed over, and why."""

from __future__ import annotations

from reconciler.lifecycle.checkpoints.retention import counts
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.checkpoint_record import CheckpointRecord
from reconciler.protocols.checkpoints import CheckpointRegistry
from solver.model.document import Document
from solver.model.workload import JobName


class SkippedCheckpoint(Document, frozen=True):
    """A newer checkpoint that the job does not go on from."""

    attempt: int
    step: int
    why: str

    def __str__(self) -> str:
        return f"checkpoint of step {self.step} {self.why}"


class Resume(Document, frozen=True):
    """Where to go on. `str` says it as an event's cause."""

    job: JobName
    attempt: int
    step: int
    url: str
    passed_over: tuple[SkippedCheckpoint, ...] = ()

    def __str__(self) -> str:
        return "; ".join([*map(str, self.passed_over), f"going on from step {self.step}"])


def resume_point(registry: CheckpointRegistry, job: JobName, policy: CheckpointPolicy | None) -> Resume | None:
    """The newest checkpoint that counts; None: there is none, and the job begins anew.

    `policy` None, where Git does not name the storage any more: only what was verified counts.
    """
    judging = policy or CheckpointPolicy("", "")
    passed: list[SkippedCheckpoint] = []
    for checkpoint in registry.of(job):
        if counts(checkpoint, judging):
            return Resume(job, checkpoint.attempt, checkpoint.step, checkpoint.url, tuple(passed))
        if checkpoint.state != "deleted":
            passed.append(SkippedCheckpoint(checkpoint.attempt, checkpoint.step, _why(checkpoint)))
    return None


def begun_from(registry: CheckpointRegistry, job: JobName, attempt: int) -> Resume | None:
    """What an attempt was noted to begin from; None: it began anew."""
    noted = (one for one in registry.of(job) if one.resumed_by == attempt and one.state not in ("corrupt", "deleted"))
    found = next(noted, None)
    return Resume(job, found.attempt, found.step, found.url) if found else None


def checkpoint_environment(
    job: JobName, interval_ms: int, policy: CheckpointPolicy | None, resume: Resume | None
) -> dict[str, str]:
    """What a task of a job that saves its work is told beside everything else; quorate/checkpoint.py reads it."""
    told = {} if policy is None else {"QUORATE_CHECKPOINT_URL": policy.folder_of(job)}
    if policy is not None:
        told["QUORATE_CHECKPOINT_INTERVAL_S"] = f"{interval_ms / 1000:g}"
    if resume is not None:
        told |= {"QUORATE_RESUME_URL": resume.url, "QUORATE_RESUME_STEP": str(resume.step)}
    return told


def _why(checkpoint: CheckpointRecord) -> str:
    if checkpoint.state == "published":
        return "is not verified yet"
    first, *others = map(str, checkpoint.findings)
    return f"is corrupt: {first}{f', and {len(others)} more' if others else ''}"
