"""What people ask of a job: that it ends, waits, goes on or begins anew. Put on record with who asked, and told to the loop."""

from __future__ import annotations

from typing import Literal

from reconciler.api.payloads import JobView
from reconciler.api.services import Services
from reconciler.api.views import job_view
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import Event
from solver.model.workload import JobName

JobVerb = Literal["cancel", "suspend", "resume", "requeue"]


class JobRequests:
    """Of one server. Any thread may ask; each request is harmless to repeat. Raises UnknownJobError, JobsAreElsewhereError."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def ask(self, verb: JobVerb, name: JobName, user: str) -> JobView:
        """Where the job stands once that is on record."""
        record = self._asked(verb, name, user)
        if verb == "cancel":
            self._services.cancelled([name])
        view, now = job_view(self._services, record), self._services.clock.now()
        self._services.history.record_event(
            Event(now, f"{verb}-asked", record.name, f"{verb} was asked for", user, view.state)
        )
        self._services.wake()
        return view

    def _asked(self, verb: JobVerb, name: JobName, user: str) -> JobRecord:
        jobs = self._services.jobs
        match verb:
            case "cancel":
                return jobs.request_cancel(name, user)
            case "suspend":
                return jobs.request_suspend(name, user)
            case "resume":
                return jobs.resume(name)
            case "requeue":
                held = self._services.ledger.of([name]).claims.get(name)
                return jobs.request_requeue(name, held.attempt if held else 0, user)
