"""Judges every request by the rule of its route, before the route sees it; routes ask it for what a rule can't know."""

from __future__ import annotations

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from reconciler.access.caller import Caller
from reconciler.access.rights import Action, Rights
from reconciler.api.problems import RequestRefusedError
from reconciler.api.rules import rule_of
from reconciler.api.services import Services
from reconciler.control.control import NoPolicyError
from reconciler.model.job_record import JobRecord
from reconciler.model.problem import did_you_mean
from reconciler.protocols.job_source import NoJobYetError, UnknownJobError
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Policy, policy_of

_SAID: Final[dict[Action, str]] = {
    "plan": "plan on this cluster",
    "look": "see this cluster",
    "see-job": "see the job",
    "read-job": "read the logs of the job",
    "submit": "submit",
    "steer-job": "change the job",
    "hold-job": "hold the job",
    "operate": "operate on the job",
}
_SAID_EVERYWHERE: Final[dict[Action, str]] = {
    "operate": "operate on nodes, or have Git looked at",
    "steer-policy": "decide how Git is followed",
    "admit-nodes": "decide which machines are nodes",
    "audit": "read what all users did",
}


class Authorisation:
    """A FastAPI dependency, to stand behind the guard. It leaves the caller's rights in the request's state."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: HTTPConnection) -> None:
        """Let the request pass if its rule does. Raises RequestRefusedError, NoPolicyError."""
        rule = rule_of(request)
        if rule is None:
            raise RequestRefusedError(
                403, "no-rule", "No caller may use this route.", "Report it: the server has no rule for it."
            )
        if rule == "signed" or rule == "open" or rule == "stranger":
            return
        rights = request.state.rights = self.rights(request.state.caller)
        if rule == "anybody" or (rule == "plan" and rights.may_plan()):
            return
        if "name" in request.path_params and rule != "look":
            # A name that does not exist is answered as such to every user who may look: names are no secret, since submitting
            # one that is taken is refused.
            self._require_look(rights, request.state.caller)
            # Only this asks the store, and so needs a thread.
            record = await run_in_threadpool(self.record, JobName(request.path_params["name"]))
            self.require(request, rule, record.spec.queue, record)
            request.state.record = record
        elif rule == "submit":
            self._require_submit(rights, request.state.caller)
        else:
            self._require_look(rights, request.state.caller)
            if rule in _SAID_EVERYWHERE:
                self._require_named(rights, request, rule)

    def rights(self, caller: Caller) -> Rights:
        """What a caller may do under the policy in force. Raises NoPolicyError."""
        return Rights(caller, self._policy(caller), self._services.access())

    def require(
        self, request: HTTPConnection, action: Action, queue: QueueName, record: JobRecord | None = None
    ) -> None:
        """Raises RequestRefusedError if the caller may not do this in the queue, or to this job of it."""
        rights: Rights = request.state.rights
        if rights.may(action, queue, record.user if record else ""):
            return
        caller: Caller = request.state.caller
        what = f"{_SAID[action]} {record.name} of" if record else f"{_SAID[action]} to"
        may = ", ".join(rights.queues_for(action))
        fix = (
            f"{caller.user} may in: {may}."
            if may and not record
            else "Ask an admin of the queue; roles are in the AccessPolicy."
        )
        raise RequestRefusedError(403, "not-allowed", f"{caller.user} may not {what} queue {queue}.", fix)

    def record(self, name: JobName) -> JobRecord:
        """A job. Raises RequestRefusedError where there is none of that name."""
        try:
            return self._services.jobs.job(name)
        except NoJobYetError as error:
            raise RequestRefusedError(404, "unknown-job", error.message, error.fix) from error
        except UnknownJobError as error:
            raise RequestRefusedError(
                404, "unknown-job", f"There is no job {name}.", _instead(name, self._services)
            ) from error

    def _policy(self, caller: Caller) -> Policy:
        try:
            return self._services.policy()[1]
        except NoPolicyError:
            if caller.owner:
                return policy_of(())
            raise

    @staticmethod
    def _require_named(rights: Rights, request: HTTPConnection, action: Action) -> None:
        """In the queue that the path names; in all of them where it names none: nodes and the policy belong to all queues."""
        named = request.path_params.get("queue")
        if not rights.may(action, None if named is None else QueueName(named)):
            caller: Caller = request.state.caller
            what = f"operate on queue {named}" if named else _SAID_EVERYWHERE[action]
            role = "operator" if action == "operate" else "admin"
            fix = f"Ask the owner of the AccessPolicy for the role {role}" + (" in all queues." if not named else ".")
            raise RequestRefusedError(403, "not-allowed", f"{caller.user} may not {what}.", fix)

    @staticmethod
    def _require_submit(rights: Rights, caller: Caller) -> None:
        """In which queue is known once the body is read: whoever may in none has none read."""
        if not rights.may_submit():
            fix = "Ask an admin of a queue for the role submitter; roles are in the AccessPolicy."
            raise RequestRefusedError(403, "not-allowed", f"{caller.user} may submit to no queue.", fix)

    @staticmethod
    def _require_look(rights: Rights, caller: Caller) -> None:
        if not rights.may_look():
            fix = "Ask the owner of the AccessPolicy for the role viewer."
            raise RequestRefusedError(403, "not-allowed", f"{caller.user} has no role here that sees the cluster.", fix)


def _instead(name: JobName, services: Services) -> str:
    """What to name where no job has that name."""
    jobs = services.jobs.jobs()
    for job in reversed(jobs):
        if name == job.pipeline or (job.array and name == job.array.id):
            return f"It is an array or a pipeline: name one of its jobs, such as {job.name}."
    return (
        did_you_mean(name, (job.name for job in jobs)) or "List the jobs to see their names; ended ones are among them."
    )
