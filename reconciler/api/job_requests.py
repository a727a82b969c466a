"""What people ask of a job: that it ends, waits, goes on or begins anew. Put on record with who asked, and told to the loop."""

from __future__ import annotations

from typing import Literal

from reconciler.api.payloads import JobView
from reconciler.api.services import Services
from reconciler.api.views import job_view
from reconciler.lifecycle.jobs.states import state_of
from reconciler.model.job_record import JobRecord, JobState
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import JobHoldings
from solver.model.workload import JobName

JobVerb = Literal["cancel", "suspend", "resume", "requeue"]


class JobRequests:
    """Of one server. Any thread may ask; each request is harmless to repeat. Raises UnknownJobError, JobsAreElsewhereError."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def ask(self, verb: JobVerb, name: JobName, user: str) -> JobView:
        """Where the job stands once that is on record, which it is in one write with the event that says so."""
        held, now = self._services.ledger.of([name]), self._services.clock.now()
        with self._services.together():
            record = self._asked(verb, name, user, held)
            self._services.history.record_event(
                Event(now, f"{verb}-asked", name, f"{verb} was asked for", user, _state(record, held))
            )
        if verb == "cancel":
            self._services.cancelled([name])
        self._services.wake()
        return job_view(self._services, record)

    def _asked(self, verb: JobVerb, name: JobName, user: str, held: JobHoldings) -> JobRecord:
        jobs = self._services.jobs
        match verb:
            case "cancel":
                return jobs.request_cancel(name, user)
            case "suspend":
                return jobs.request_suspend(name, user)
            case "resume":
                return jobs.resume(name)
            case "requeue":
                claim = held.claims.get(name)
                return jobs.request_requeue(name, claim.attempt if claim else 0, user)


def _state(record: JobRecord, held: JobHoldings) -> JobState:
    """By what it held a moment before."""
    claim, attempt = held.claims.get(record.name), held.attempts.get(record.name, 0)
    return state_of(record, claim, held.intents, held.reservations, attempt)
