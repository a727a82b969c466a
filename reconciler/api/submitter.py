"""Takes in jobs, arrays and pipelines, whichever way they were asked for: judged, written, told of, and the loop woken."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from starlette.requests import Request

from reconciler.api.authorisation import Authorisation
from reconciler.api.problems import RequestRefusedError
from reconciler.api.prompt_starts import require_prompt_starts
from reconciler.api.services import Services
from reconciler.api.submission import (
    next_batch,
    queues_of,
    require_admissible,
    require_end_in_time,
    require_known_dependencies,
    require_startable,
    with_dependencies,
    with_whole_types,
)
from reconciler.documents.job import NamedJob
from reconciler.model.job_groups import Batch, GroupRecord, NewJob, Submission
from reconciler.model.pipelines import NamedPipeline
from reconciler.protocols.history import Event
from reconciler.protocols.job_source import AcceptedJob, DuplicateJobError, PassedNumberError
from solver.model.quantities import Instant
from solver.model.workload import JobName
from solver.plan.reason import count


class JobSubmitter:
    """Of one server. Any thread may ask."""

    def __init__(self, services: Services, authority: Authorisation) -> None:
        self._services, self._authority = services, authority

    def judged(self, request: Request, job: NamedJob, idempotency_key: str) -> Submission:
        """What is asked for, if nothing is against it. Raises RequestRefusedError."""
        self._authority.require(request, "submit", job.spec.queue)
        if job.spec.array is not None:
            message = f"{job.name} is an array: many jobs, and no single one."
            raise RequestRefusedError(422, "is-an-array", message, "Submit it to /v1/groups.")
        spec = with_whole_types(job.spec, self._services.gpu_types())
        (new,) = with_dependencies(self._services, [NewJob(job.name, spec)])
        require_admissible(self._services, [new])
        require_known_dependencies(self._services, [new])
        now, user = self._services.clock.now(), request.state.user
        require_startable(self._services, [new], user)
        require_end_in_time(self._services, new.name, [new], user, idempotency_key)
        require_prompt_starts(self._services, new.name, [new], user, idempotency_key)
        return Submission(new.name, new.spec, user, now, idempotency_key)

    def take_in(self, asked: Sequence[Submission]) -> list[AcceptedJob | DuplicateJobError]:
        """Accept jobs that were judged, with the events that say so of those that are new: one write. `tell` follows."""
        with self._services.together():
            became = self._services.jobs.submit_each(asked)
            new = [each.record for each in became if isinstance(each, AcceptedJob) and each.is_new]
            self._services.history.record_events(
                Event(job.submitted_at, "submitted", job.name, f"to {job.spec.queue}", job.user, "queued")
                for job in new
            )
        return became

    def take_in_group(
        self, request: Request, submitted: NamedJob | NamedPipeline, idempotency_key: str
    ) -> tuple[GroupRecord, tuple[NewJob, ...]]:
        """Judge and accept an array or a pipeline with all its jobs, or nothing of it; () for them where it was accepted before.

        Raises RequestRefusedError, DuplicateJobError.
        """
        for queue in queues_of(submitted):
            self._authority.require(request, "submit", queue)
        batch = next_batch(self._services, submitted)
        require_admissible(self._services, batch.jobs)
        require_known_dependencies(self._services, batch.jobs)
        now, user = self._services.clock.now(), request.state.user
        require_startable(self._services, batch.jobs, user)
        require_end_in_time(self._services, submitted.name, batch.jobs, user, idempotency_key)
        require_prompt_starts(self._services, submitted.name, batch.jobs, user, idempotency_key)
        try:
            group, is_new = self._kept(batch, user, now, idempotency_key)
        except PassedNumberError:
            # One of its names was used meanwhile, and what used it has ended. That twice in a row is worth an error.
            batch = next_batch(self._services, submitted)
            group, is_new = self._kept(batch, user, now, idempotency_key)
        if not is_new:
            self._services.wake()
            return group, ()
        self.tell([job.name for job in batch.jobs])
        return group, batch.jobs

    def _kept(self, batch: Batch, user: str, now: Instant, idempotency_key: str) -> tuple[GroupRecord, bool]:
        """A group with the event that says so, in one write; or the one that was accepted before, and False.

        Raises DuplicateJobError, PassedNumberError.
        """
        with self._services.together():
            group = self._services.jobs.submit_all(batch, user, now, idempotency_key)
            is_new = (group.name, group.submitted_at, group.user) == (batch.name, now, user)
            if is_new:
                cause = f"{group.kind} of {count(len(batch.jobs), 'job')}"
                self._services.history.record_event(Event(now, "submitted", group.name, cause, user))
        return group, is_new

    def tell(self, names: Collection[JobName]) -> None:
        """Jobs are on record that a round can serve now."""
        self._services.submitted(names)
        self._services.wake()
