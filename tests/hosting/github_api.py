"""As much of GitHub's REST API as the workflows of `quorate init` speak to, and the one request of the GitLab job."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

REPOSITORY = "lab/policy"
REPOSITORY_ID = 77
TOKEN = "the-job's-token"
BOT = "github-actions[bot]"
_PREFIX = f"/repos/{REPOSITORY}"
PROJECT = "5"
"""As GitLab numbers it."""

Answer = tuple[int, bytes]


class Request(NamedTuple):
    """What was asked: the parts of the path that vary, the query, the body."""

    parts: tuple[str, ...]
    query: dict[str, str]
    body: bytes


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

    def release(self, _: Request) -> Answer:
        named = [{"name": name, "url": f"{self.url}{_PREFIX}/releases/assets/{name}"} for name in self.assets]
        return _json({"assets": named}) if named else (404, b"{}")

    def asset(self, request: Request) -> Answer:
        return 200, self.assets[request.parts[0]]

    def run_artifacts(self, request: Request) -> Answer:
        run, name = int(request.parts[0]), request.query["name"]
        found = [
            {"id": number, "name": known.name, "size_in_bytes": len(known.archive)}
            for number, known in enumerate(self.artifacts)
            if known.run == run and known.name == name
        ]
        return _json({"artifacts": found})

    def artifact(self, request: Request) -> Answer:
        return 200, self.artifacts[int(request.parts[0])].archive

    def pull_request(self, request: Request) -> Answer:
        sha = self.heads.get(int(request.parts[0]))
        return _json({"state": "open" if sha else "closed", "head": {"sha": sha}})

    def listed(self, request: Request) -> Answer:
        size, page = int(request.query["per_page"]), int(request.query["page"])
        return _json(self.comments.get(int(request.parts[0]), [])[size * (page - 1) : size * page])

    def commented(self, request: Request) -> Answer:
        number = int(request.parts[0])
        self.wrote.append(f"new comment on {number}")
        self.comment(number, BOT, json.loads(request.body)["body"])
        return 201, b"{}"

    def edited(self, request: Request) -> Answer:
        wanted = int(request.parts[0])
        self.wrote.append(f"comment {wanted}")
        found = next(known for all_of_it in self.comments.values() for known in all_of_it if known["id"] == wanted)
        found["body"] = json.loads(request.body)["body"]
        return _json({})


class Served:
    """The API on a port of loopback, while it is entered."""

    def __init__(self, github: GitHub) -> None:
        routes: list[tuple[str, str, Callable[[Request], Answer]]] = [
            ("GET", r"/releases/tags/quorate-snapshot", github.release),
            ("GET", r"/releases/assets/([\w.]+)", github.asset),
            ("GET", rf"/projects/{PROJECT}/packages/generic/quorate-snapshot/1\.0\.0/([\w.]+)", github.asset),
            ("GET", r"/actions/runs/(\d+)/artifacts", github.run_artifacts),
            ("GET", r"/actions/artifacts/(\d+)/zip", github.artifact),
            ("GET", r"/pulls/(\d+)", github.pull_request),
            ("GET", r"/issues/(\d+)/comments", github.listed),
            ("POST", r"/issues/(\d+)/comments", github.commented),
            ("PATCH", r"/issues/comments/(\d+)", github.edited),
        ]

        class Handler(BaseHTTPRequestHandler):
            """Finds the route; whoever comes without the job's token is refused."""

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def do_PATCH(self) -> None:
                self._answer()

            def _answer(self) -> None:
                asked = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                query = {name: values[0] for name, values in parse_qs(asked.query).items()}
                status, said = 404, b"{}"
                for method, pattern, answer in routes:
                    found = re.fullmatch(pattern, asked.path.removeprefix(_PREFIX))
                    if found and method == self.command:
                        status, said = answer(Request(found.groups(), query, body))
                if TOKEN not in (
                    self.headers.get("authorization", "").removeprefix("Bearer "),
                    self.headers.get("job-token"),
                ):
                    status, said = 401, b"{}"
                self.send_response(status)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                """Say nothing: pytest would print it among its own."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        github.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _json(said: object) -> Answer:
    return 200, json.dumps(said).encode()
