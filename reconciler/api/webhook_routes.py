"""What forges tell of pushes. A delivery proves itself by the shared secret, and does nothing but have Git looked at."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from typing import Annotated, Final
from urllib.parse import parse_qs

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from reconciler.api.answers import Responses, answer, refuses
from reconciler.api.git_services import GitServices
from reconciler.api.job_routes import bounded_body
from reconciler.api.policy_payloads import WebhookHeard
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services

Body = Annotated[bytes, Depends(bounded_body)]

_HEARD: Final[Responses] = {
    202: {
        "description": "The delivery is genuine.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/WebhookHeard"}}},
    },
    **refuses(404, 413),
}
_OPEN: Final[dict[str, object]] = {"security": []}
"""For OpenAPI: no bearer token is asked for."""


class _Push(msgspec.Struct):
    """The one thing that is read of a delivery."""

    ref: str = ""


class WebhookRoutes:
    """The endpoints; `router` has them all. The guard lets every request through to them."""

    def __init__(self, services: Services) -> None:
        self._following: GitServices = services.following
        self.router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])
        for path, heard in (("/github", self.github), ("/gitea", self.gitea), ("/gitlab", self.gitlab)):
            self.router.add_api_route(
                path,
                heard,
                methods=["POST"],
                status_code=202,
                responses=_HEARD,
                openapi_extra=_OPEN,
                # Before the body: what is sent is kept only where a forge is expected.
                dependencies=[Depends(self._require_secret)],
            )

    def github(self, request: Request, body: Body) -> Response:
        """A delivery of GitHub, signed with HMAC-SHA256 in X-Hub-Signature-256."""
        given = request.headers.get("x-hub-signature-256", "").removeprefix("sha256=")
        self._require(given, self._signatures(body))
        return self._heard(request.headers.get("x-github-event") == "push", request, body)

    def gitea(self, request: Request, body: Body) -> Response:
        """A delivery of Gitea or Forgejo, signed with HMAC-SHA256 in X-Gitea-Signature."""
        self._require(request.headers.get("x-gitea-signature", ""), self._signatures(body))
        return self._heard(request.headers.get("x-gitea-event") == "push", request, body)

    def gitlab(self, request: Request, body: Body) -> Response:
        """A delivery of GitLab, with the secret itself in X-Gitlab-Token."""
        self._require(request.headers.get("x-gitlab-token", ""), self._following.webhook_secrets())
        return self._heard(request.headers.get("x-gitlab-event") == "Push Hook", request, body)

    def _signatures(self, body: bytes) -> list[bytes]:
        known = self._following.webhook_secrets()
        return [hmac.new(secret, body, hashlib.sha256).hexdigest().encode() for secret in known]

    async def _require_secret(self) -> None:
        """Raises RequestRefusedError."""
        if not self._following.webhook_secrets():
            fix = "Start the server with --webhook-secret FILE."
            raise RequestRefusedError(404, "no-webhooks", "This server hears no webhooks.", fix)

    def _require(self, given: str, wanted: Collection[bytes]) -> None:
        """Raises RequestRefusedError."""
        # Header values are latin-1; anything else than what is wanted is as wrong as any other.
        if not any(hmac.compare_digest(given.encode("latin-1", "replace"), one) for one in wanted):
            fix = "Give the forge the secret of the file that --webhook-secret names."
            raise RequestRefusedError(
                401, "not-authenticated", "The delivery is not signed with this server's secret.", fix
            )

    def _heard(self, is_push: bool, request: Request, body: bytes) -> Response:
        form = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        woken = is_push and _ref_of(body, form) == f"refs/heads/{self._following.branch}"
        if woken:
            self._following.look()
        return answer(WebhookHeard(woken=woken), 202)


def _ref_of(body: bytes, form: bool) -> str:
    """What was pushed to; "" where that can't be read. The branch is fetched from where it always is, whatever a delivery says."""
    try:
        text = parse_qs(body.decode()).get("payload", [""])[0].encode() if form else body
        return msgspec.json.decode(text, type=_Push).ref
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return ""
