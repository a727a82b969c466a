"""The policy: what is in force and since when, its documents with their lines, what earlier revisions did, and what is held."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.responses import RedirectResponse

from reconciler.access.policy import AccessPolicy
from reconciler.access.rights import Rights
from reconciler.analysis.reports.paths import paths_of
from reconciler.api.policy_requests import PolicyRequests
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.documents.repository import Compiled
from reconciler.gitops.source.errors import GitSourceError
from reconciler.model.git_record import WHY_MAX
from reconciler.web.forms import FormFields
from reconciler.web.origins import document_link
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page, require_origin
from reconciler.web.plan_page import plan_values
from reconciler.web.policy_history import PolicyHistory
from solver.policy.guardrails import Guardrails

LINES_MAX: Final = 20_000
"""Of a document on its page."""
DIFF_LINES_MAX: Final = 2_000
"""Of a document, of which it is said line by line what changed."""
_CONTEXT: Final = 2

_REVISION: Final = r"^[0-9a-f]{1,64}$"
Commit = Annotated[str, Path(pattern=_REVISION)]

ADMINS_ALONE: Final = re.compile(r"\b(AccessPolicy|AlertPolicy|CheckpointPolicy)\b")
"""Documents that mention these kinds are for users who may decide on the policy: `GET /v1/policy` does not show them either."""


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """A document in a list. `hidden`: this user may not read it."""

    path: str
    lines: int
    hidden: bool


@dataclass(frozen=True, slots=True)
class DocumentDiff:
    """What a revision changed of a document. `lines` begin with `+`, `-` or a space, or say where they are (`@@`).

    () where they are too many, or not for this user.
    """

    path: str
    change: str
    lines: tuple[str, ...]


class PolicyPages:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services, self._following = services, services.following
        self._requests, self._history = PolicyRequests(services), PolicyHistory(services)
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/policy", self.policy)
        self.router.add_api_route("/policy/plan", self.plan)
        self.router.add_api_route("/policy/revisions/{revision}", self.revision)
        self.router.add_api_route("/policy/documents/{path:path}", self.document)
        self.router.add_api_route("/policy/approve", self.approve, methods=["POST"])

    def policy(self, request: Request, before: Annotated[str, Query(pattern=_REVISION)] = "") -> Response:
        """The revision in force, what is held, and the revisions before."""
        revision, policy = self._services.policy()
        rights: Rights = request.state.rights
        known = None if before else self._history.revision(revision)
        documents, lost = self._listed(revision, rights)
        return page(
            request,
            "policy.html",
            revision=revision,
            known=known,
            documents=documents,
            lost=lost,
            history=self._history.page(before or revision),
            is_first=not before,
            guardrails=tuple(_guardrails(policy.scheduling.guardrails)),
            guardrails_link=document_link(policy.scheduling.origin),
            suspension=self._following.decisions.suspension(self._services.clock.now()),
            **self._held(rights),
        )

    def revision(self, revision: Commit, request: Request) -> Response:
        """One revision: what it changed, and what the rounds around it say."""
        self._require_known(revision)
        rights: Rights = request.state.rights
        known = self._history.revision(revision)
        documents, lost = self._listed(revision, rights)
        earlier = self._history.previous(revision)
        return page(
            request,
            "revision.html",
            revision=revision,
            known=known,
            facts=known.facts if known else self._history.facts(revision),
            given_up=self._history.given_up(known.effect) if known else None,
            documents=documents,
            lost=lost,
            earlier=earlier,
            diffs=tuple(self._diffs(earlier, revision, rights)) if earlier else (),
            is_in_force=revision == self._services.policy()[0],
        )

    def document(
        self, path: str, request: Request, revision: Annotated[str, Query(pattern=_REVISION)] = ""
    ) -> Response:
        """A document as a revision has it, line by line."""
        in_force = self._services.policy()[0]
        asked = revision or in_force
        self._require_known(asked)
        text = self._documents(asked).get(path)
        if text is None:
            raise RequestRefusedError(404, "unknown-document", f"Revision {asked[:12]} has no document {path}.")
        rights: Rights = request.state.rights
        if _is_hidden(text, rights):
            fix = "Ask the owner of the AccessPolicy for the role admin."
            raise RequestRefusedError(403, "not-allowed", f"{path} is for admins of the policy.", fix)
        lines = text.splitlines()
        shown = {"lines": lines[:LINES_MAX], "line_count": len(lines), "document": path}
        return page(request, "document.html", revision=asked, is_in_force=asked == in_force, **shown)

    def plan(self, request: Request) -> Response:
        """What the revision that is held would do, as the server planned it."""
        found = self._requests.planned()
        if found is None:
            raise RequestRefusedError(404, "not-planned", "No revision is held of which there is a plan.")
        in_force = Compiled(*self._following.planning.in_force()[1:])
        return page(request, "plan.html", **plan_values(found, paths_of(in_force, in_force)))

    def approve(self, request: Request, given: FormFields) -> Response:
        """Accept the revision that is held, and go back to see what comes of it."""
        require_origin(request)
        self._requests.approve(given.get("revision", ""), given.get("reason", ""), request.state.user)
        return RedirectResponse("/policy", HTTPStatus.SEE_OTHER, dict(HEADERS))

    def _held(self, rights: Rights) -> dict[str, Any]:
        """What is said of a revision that is not in force, and which users may accept it."""
        status = self._following.status()
        held = status.truth if status.truth.type != "Ready" else None
        waits = status.last_attempted_revision if held and held.type == "Stalled" else ""
        approval = self._following.decisions.approval(waits, held.reason if held else "", status.last_applied_revision)
        return {
            "status": status,
            "held": held,
            "attempted": waits,
            "attempted_facts": self._history.facts(waits),
            "approval": approval if waits else None,
            "may_accept": bool(waits) and status.acceptable and rights.may("steer-policy", None),
            "acceptors": acceptors(self._services.access()) if status.acceptable else (),
            "is_planned": self._requests.planned() is not None,
            "problems": [
                (problem, document_link(f"{problem.file}:{problem.line}", waits)) for problem in status.problems
            ],
            "why_max": WHY_MAX,
        }

    def _listed(self, revision: str, rights: Rights) -> tuple[tuple[DocumentLine, ...], str]:
        """The documents of a revision, or why they can't be read."""
        try:
            texts = self._following.archive.documents(revision)
        except GitSourceError as error:
            return (), str(error)
        return tuple(
            DocumentLine(path, len(text.splitlines()), _is_hidden(text, rights)) for path, text in texts.items()
        ), ""

    def _documents(self, revision: str) -> Mapping[str, str]:
        try:
            return self._following.archive.documents(revision)
        except GitSourceError as error:
            raise RequestRefusedError(404, "unknown-revision", f"{error}.", error.fix) from error

    def _diffs(self, before: str, after: str, rights: Rights) -> Iterator[DocumentDiff]:
        """Documents that say something else, as text."""
        try:
            old, new = self._following.archive.documents(before), self._following.archive.documents(after)
        except GitSourceError:
            return
        for path in sorted(old.keys() | new.keys()):
            was, now = old.get(path), new.get(path)
            if was != now:
                change = "added" if was is None else "removed" if now is None else "changed"
                hidden = any(text is not None and _is_hidden(text, rights) for text in (was, now))
                yield DocumentDiff(path, change, () if hidden else diff_lines(was or "", now or ""))

    def _require_known(self, revision: str) -> None:
        if not self._history.is_known(revision):
            raise RequestRefusedError(
                404, "unknown-revision", f"Revision {revision[:12]} was never to be in force here."
            )


def acceptors(access: AccessPolicy | None) -> tuple[str, ...]:
    """Which users may accept a revision that is held."""
    admins = [
        subject
        for binding in (access.roles if access else ())
        if binding.role == "admin" and binding.queues is None
        for subject in binding.subjects
    ]
    return (*dict.fromkeys(admins), "the holder of the server's own token")


def diff_lines(before: str, after: str) -> tuple[str, ...]:
    """Lines that differ with a few around them; () where a text is too long for it."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > DIFF_LINES_MAX:
        return ()
    told = difflib.unified_diff(old, new, n=_CONTEXT, lineterm="")
    return tuple(line for number, line in enumerate(told) if number >= 2)


def _guardrails(said: Guardrails) -> Iterator[str]:
    """In words, those that hold anything."""
    if said.max_evicted_jobs is not None:
        yield f"A change evicts at most {said.max_evicted_jobs:,} jobs (maxEvictedJobs)."
    if said.max_evicted_gpu_hours is not None:
        yield f"A change loses at most {said.max_evicted_gpu_hours:,.1f} GPU-hours of work (maxEvictedGpuHours)."
    if said.max_quota_cut_percent is not None:
        yield f"A change cuts no quota by more than {said.max_quota_cut_percent} % (maxQuotaCutPercent)."
    if said.guaranteed_within_capacity:
        yield "No more is guaranteed than there is (guaranteedWithinCapacity)."
    if said.min_convergence is not None:
        yield f"Where a max is set below what is held, jobs have at least {said.min_convergence} (minConvergence)."
    if said.four_eyes:
        yield f"No user changes these alone: {', '.join(said.four_eyes)} (fourEyes)."
    if said.require_plan != "never":
        which = "every change" if said.require_plan == "always" else "a change that evicts jobs or breaks limits"
        yield f"A plan has to be accepted of {which} (requirePlan: {said.require_plan})."


def _is_hidden(text: str, rights: Rights) -> bool:
    return bool(ADMINS_ALONE.search(text)) and not rights.may("steer-policy", None)
