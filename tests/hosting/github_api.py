"""As much of GitHub's REST API as the workflows of `quorate init` speak to, and the one request of the GitLab job."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from typing import Any

from tests.hosting.host_server import HostServer, Reply, Request, Route, in_json

REPOSITORY = "lab/policy"
REPOSITORY_ID = 77
TOKEN = "the-job's-token"
BOT = "github-actions[bot]"
_PREFIX = f"/repos/{REPOSITORY}"
PROJECT = "5"
"""As GitLab numbers it."""


@dataclass
class Artifact:
    """What a run of a workflow left."""

    run: int
    name: str
    archive: bytes


def archive(files: dict[str, bytes]) -> bytes:
    """A zip file of these."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as into:
        for name, content in files.items():
            into.writestr(name, content)
    return packed.getvalue()


@dataclass
class GitHub:
    """What the host knows of one repository; `asked` are the requests that wrote."""

    heads: dict[int, str] = field(default_factory=dict)
    """The head commit of each open pull request, by number."""
    artifacts: list[Artifact] = field(default_factory=list)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """By pull request."""
    assets: dict[str, bytes] = field(default_factory=dict)
    """Of the release quorate-snapshot."""
    wrote: list[str] = field(default_factory=list)
    url: str = ""
    server_url: str = "https://github.example.com"
    token: str = TOKEN

    def uploads(self, run: int, name: str, packed: bytes) -> None:
        """A run leaves an artifact."""
        self.artifacts.append(Artifact(run, name, packed))

    def comment(self, number: int, user: str, body: str) -> int:
        """Somebody comments; returns the comment's id."""
        known = self.comments.setdefault(number, [])
        made = 1000 * number + len(known)
        known.append({"id": made, "user": {"login": user}, "body": body})
        return made

    def bodies(self, number: int) -> list[str]:
        """What the bot has said about a pull request."""
        return [comment["body"] for comment in self.comments.get(number, []) if comment["user"]["login"] == BOT]

    def event(self, run: int, number: int | None, sha: str) -> dict[str, Any]:
        """That a run has ended, as a workflow is told. None: of a fork's pull request GitHub says no number."""
        side = {"repo": {"id": REPOSITORY_ID}}
        known = [{"number": number, "head": side | {"sha": sha}, "base": side}] if number is not None else []
        return {
            "workflow_run": {
                "id": run,
                "event": "pull_request",
                "head_sha": sha,
                "repository": {"id": REPOSITORY_ID},
                "head_repository": {"full_name": REPOSITORY},
                "pull_requests": known,
            }
        }

    def release(self, _: Request) -> Reply:
        named = [{"name": name, "url": f"{self.url}{_PREFIX}/releases/assets/{name}"} for name in self.assets]
        return in_json({"assets": named}) if named else Reply(404)

    def asset(self, request: Request) -> Reply:
        return Reply(200, self.assets[request.parts[0]])

    def run_artifacts(self, request: Request) -> Reply:
        run, name = int(request.parts[0]), request.query["name"]
        found = [
            {"id": number, "name": known.name, "size_in_bytes": len(known.archive)}
            for number, known in enumerate(self.artifacts)
            if known.run == run and known.name == name
        ]
        return in_json({"artifacts": found})

    def artifact(self, request: Request) -> Reply:
        return Reply(200, self.artifacts[int(request.parts[0])].archive)

    def pull_request(self, request: Request) -> Reply:
        sha = self.heads.get(int(request.parts[0]))
        return in_json({"state": "open" if sha else "closed", "head": {"sha": sha}})

    def listed(self, request: Request) -> Reply:
        size, page = int(request.query["per_page"]), int(request.query["page"])
        return in_json(self.comments.get(int(request.parts[0]), [])[size * (page - 1) : size * page])

    def commented(self, request: Request) -> Reply:
        number = int(request.parts[0])
        self.wrote.append(f"new comment on {number}")
        self.comment(number, BOT, json.loads(request.body)["body"])
        return Reply(201)

    def edited(self, request: Request) -> Reply:
        wanted = int(request.parts[0])
        self.wrote.append(f"comment {wanted}")
        found = next(known for all_of_it in self.comments.values() for known in all_of_it if known["id"] == wanted)
        found["body"] = json.loads(request.body)["body"]
        return in_json({})


class Served(HostServer):
    """The API on a port of loopback, while it is entered. A request without the job's token is refused."""

    def __init__(self, github: GitHub) -> None:
        super().__init__(
            [
                Route("GET", r"/releases/tags/quorate-snapshot", github.release),
                Route("GET", r"/releases/assets/([\w.]+)", github.asset),
                Route("GET", rf"/projects/{PROJECT}/packages/generic/quorate-snapshot/1\.0\.0/([\w.]+)", github.asset),
                Route("GET", r"/actions/runs/(\d+)/artifacts", github.run_artifacts),
                Route("GET", r"/actions/artifacts/(\d+)/zip", github.artifact),
                Route("GET", r"/pulls/(\d+)", github.pull_request),
                Route("GET", r"/issues/(\d+)/comments", github.listed),
                Route("POST", r"/issues/(\d+)/comments", github.commented),
                Route("PATCH", r"/issues/comments/(\d+)", github.edited),
            ],
            lambda headers: (
                TOKEN in (headers.get("authorization", "").removeprefix("Bearer "), headers.get("job-token"))
            ),
            _PREFIX,
        )
        github.url = self.url
