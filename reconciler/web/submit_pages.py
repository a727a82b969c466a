"""Submits a job by form or as YAML: what is wrong with it stands where it was typed, and what would happen can be tried first."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import parse_qs, quote, urlencode

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from reconciler.access.rights import Rights
from reconciler.api.authorisation import Authorisation
from reconciler.api.group_payloads import Trial, TrialList
from reconciler.api.job_routes import bounded_body
from reconciler.api.payloads import ApiProblem
from reconciler.api.problems import NotReadyError, RequestRefusedError, problem_of
from reconciler.api.services import Services
from reconciler.api.submission import queues_of
from reconciler.api.submitter import JobSubmitter
from reconciler.api.trials import trials_of
from reconciler.documents.job import NamedJob
from reconciler.documents.pipeline import read_submission
from reconciler.model.pipelines import NamedPipeline
from reconciler.model.problem import InvalidDocumentsError
from reconciler.protocols.job_source import DuplicateJobError, JobsAreElsewhereError, UnknownJobError
from reconciler.web.job_form import FIELDS, FILE, KINDS, FormLine, JobForm, PlacedProblem, placed
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page, require_origin
from solver.model.workload import JobName, QueueName

_KEY_LENGTH_MAX: Final = 60
_FIELDS_MAX: Final = 30

NEW: Final = JobName("new")
"""Where the form is, a job of that name would have its page."""

EXAMPLE: Final = """apiVersion: quorate.dev/v1
kind: Job
metadata:
  name: training
spec:
  queue: {queue}
  taskGroups:
    - name: worker
      replicas: 2
      shape:
        gpus: 4
  command: [python, train.py]
"""

Way = Literal["form", "yaml"]


@dataclass(frozen=True)
class Typed:
    """What was sent: by which way, and what was asked for. `key` is the form's own, so that sending it twice is sending it once."""

    way: Way
    verb: str
    key: str
    form: JobForm
    text: str

    @property
    def document(self) -> str:
        """As YAML. Raises InvalidDocumentsError for a form that says too little."""
        if self.way == "yaml":
            return self.text
        return "\n".join(line.text for line in self.form.lines()) + "\n"

    @property
    def lines(self) -> list[FormLine]:
        """The document as far as there is one, line by line."""
        return [FormLine(line) for line in self.text.split("\n")] if self.way == "yaml" else self.form.draft

    def idempotency_key(self, document: str) -> str:
        """Another document under the same name is another job, however it was come by."""
        return f"{self.key}-{hashlib.sha256(document.encode()).hexdigest()[:24]}"


class SubmitPages:
    """The endpoints; `router` has them. Nothing is parsed for a user that may submit to no queue."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._authority = Authorisation(services)
        self._submitter = JobSubmitter(services, self._authority)
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/jobs/new", self.form)
        self.router.add_api_route("/jobs/new", self.ask, methods=["POST"])

    def form(self, request: Request, by: Way = "form", queue: str = "") -> Response:
        """Nothing typed yet."""
        queues = self._queues(request)
        chosen = queue if queue in queues else queues[0] if len(queues) == 1 else ""
        fields = JobForm({"queue": chosen, "tasks": "1", "gpus": "1"})
        return self._page(request, Typed(by, "", _new_key(), fields, EXAMPLE.format(queue=chosen or queues[0])))

    async def ask(self, request: Request) -> Response:
        """Try or submit what was typed, or show a form's as YAML."""
        require_origin(request)
        self._queues(request)
        body = await bounded_body(request)
        return await run_in_threadpool(self._asked, request, body)

    def _asked(self, request: Request, body: bytes) -> Response:
        typed = _typed(body)
        try:
            document = typed.document
            if typed.verb == "yaml":
                return self._page(request, Typed("yaml", "", typed.key, typed.form, document))
            if typed.way == "form":
                self._authority.require(request, "submit", QueueName(typed.form["queue"]))
            submitted = read_submission(document.encode(), FILE)
            if typed.verb == "try":
                return self._page(request, typed, trials=self._tried(request, submitted))
            return RedirectResponse(
                self._submitted(request, submitted, typed.idempotency_key(document)),
                HTTPStatus.SEE_OTHER,
                dict(HEADERS),
            )
        except InvalidDocumentsError as error:
            problems = placed(error, typed.lines)
            return self._page(request, typed, HTTPStatus.UNPROCESSABLE_ENTITY, problems=problems)
        except Exception as error:
            # What was typed comes back with whatever refuses it.
            told = problem_of(error)
            if told is None:
                raise
            status, refusal = told
            return self._page(request, typed, status, refusal=refusal)

    def _tried(self, request: Request, submitted: NamedJob | NamedPipeline) -> TrialList:
        for queue in queues_of(submitted):
            self._authority.require(request, "submit", queue)
        return trials_of(self._services, submitted, request.state.user)

    def _submitted(self, request: Request, submitted: NamedJob | NamedPipeline, key: str) -> str:
        """The page of the job, or the list of those that the document stands for."""
        if isinstance(submitted, NamedPipeline) or submitted.spec.array is not None:
            group, _ = self._submitter.take_in_group(request, submitted, key)
            return f"/jobs?{urlencode({'group': group.name})}"
        (became,) = self._submitter.take_in([self._submitter.judged(request, submitted, key)])
        if isinstance(became, DuplicateJobError):
            raise became
        self._authority.require(request, "see-job", became.record.spec.queue, became.record)
        # Its id is another than its name where a job was called so before.
        name = became.record.name
        self._submitter.tell((name,))
        return f"/jobs/{quote(name, safe='')}{'/' if name == NEW else ''}"

    def _queues(self, request: Request) -> tuple[QueueName, ...]:
        """Where the user may submit. Raises RequestRefusedError where that is nowhere, JobsAreElsewhereError."""
        self._services.jobs.accepts()
        queues = open_queues(self._services, request.state.rights)
        if not queues:
            message = f"{request.state.user} may submit to no queue."
            raise RequestRefusedError(403, "not-allowed", message, "Ask an admin of a queue for the role submitter.")
        return queues

    def _page(
        self,
        request: Request,
        typed: Typed,
        status: int = HTTPStatus.OK,
        problems: Sequence[PlacedProblem] = (),
        refusal: ApiProblem | None = None,
        trials: TrialList | None = None,
    ) -> Response:
        _, policy = self._services.policy()
        fields = {field: typed.form[field] for field in FIELDS}
        return page(
            request,
            "submit.html",
            status,
            typed=typed,
            fields=fields,
            wrong={field: [each for each in problems if each.field == field] for field in FIELDS},
            elsewhere=[each for each in problems if not each.field],
            is_wrong=bool(problems or refusal),
            refusal=refusal,
            trials=None if trials is None else [(trial, _fate(trial)) for trial in trials.items],
            tried_at=trials.time if trials else None,
            untried=trials.untried if trials else 0,
            queues=open_queues(self._services, request.state.rights),
            classes=[each.name for each in policy.priority_classes],
            default_class=policy.scheduling.default_priority_class,
            kinds=KINDS,
            gpu_types=gpu_types_of(self._services),
            has_new=self._has_new(),
        )

    def _has_new(self) -> bool:
        try:
            self._services.jobs.job(NEW)
        except UnknownJobError:
            return False
        return True


def gpu_types_of(services: Services) -> list[str]:
    """Those of the cluster, as far as it was looked at."""
    try:
        return sorted({node.gpu_type for node in services.snapshot().nodes if node.gpu_type})
    except NotReadyError:
        return []


def open_queues(services: Services, rights: Rights) -> tuple[QueueName, ...]:
    """Those that take jobs, and take them from this user; () where jobs are submitted elsewhere."""
    try:
        services.jobs.accepts()
    except JobsAreElsewhereError:
        return ()
    above = {queue.parent for queue in services.policy()[1].queues}
    return tuple(queue for queue in rights.queues_for("submit") if queue not in above)


def _typed(body: bytes) -> Typed:
    try:
        sent = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise RequestRefusedError(422, "invalid-parameter", "The form has too many fields.") from error
    # Browsers end lines as HTTP does.
    values = {name: texts[0].replace("\r\n", "\n") for name, texts in sent.items()}
    key = values.get("key", "")
    return Typed(
        "yaml" if values.get("way") == "yaml" else "form",
        values.get("verb", ""),
        key if 0 < len(key) <= _KEY_LENGTH_MAX and key.isascii() and key.isprintable() else _new_key(),
        JobForm({field: values.get(field, "") for field in FIELDS}),
        values.get("document", ""),
    )


def _new_key() -> str:
    return f"console-{secrets.token_urlsafe(16)}"


def _fate(trial: Trial) -> str:
    if not trial.admissible:
        return "could never run"
    if trial.waits_for:
        return f"would wait for {', '.join(trial.waits_for)}"
    return "would start now" if trial.tasks else "would wait"
