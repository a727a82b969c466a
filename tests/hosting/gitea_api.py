"""As much of the REST API of Gitea and Forgejo as `quorate comment` and the workflows of `quorate init` speak to.

Where the two differ is in the runs of Actions: Gitea says `head_sha`, wraps lists of artifacts in an object and sends downloads
elsewhere; Forgejo says `commit_sha`, answers the list and the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.hosting.github_api import archive
from tests.hosting.host_server import HostServer, Reply, Request, Route, a_page, in_json

REPOSITORY, REPOSITORY_ID, FORK_ID = "lab/policy", 77, 78
TOKEN = "0123456789abcdef0123456789abcdef01234567"
BOT, BOT_ID = "gitea-actions", -2
_AT = f"/api/v1/repos/{REPOSITORY}"


@dataclass
class Gitea:
    """What the host knows of one repository."""

    forgejo: bool = False
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    artifacts: dict[int, tuple[int, str, bytes]] = field(default_factory=dict)
    """By id: the run, the name, the archive."""
    expired: set[int] = field(default_factory=set)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    assets: dict[str, bytes] = field(default_factory=dict)
    """Of the release quorate-snapshot."""
    wrote: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    on_artifact: Callable[[], None] = lambda: None
    old: bool = False
    """Of a version whose API knows nothing of runs."""
    storage: str = ""
    url: str = ""
    """Where its API is, once it is served."""
    server_url: str = ""
    token: str = TOKEN

    def opens(self, number: int, head: str, *, fork: bool = False) -> None:
        base = {"sha": "b" * 40, "repo": {"id": REPOSITORY_ID}}
        of = {"sha": head, "repo": {"id": FORK_ID if fork else REPOSITORY_ID}}
        self.pulls[number] = {"number": number, "state": "open", "title": "A change", "head": of, "base": base}

    def moves(self, number: int, head: str) -> None:
        self.pulls[number]["head"]["sha"] = head

    def closes(self, number: int) -> None:
        self.pulls[number]["state"] = "closed"

    def leaves(
        self, number: int, head: str, plan: bytes | None, page: bytes | None = None, *, name: str = "quorate-comment",
        status: str = "success",
    ) -> None:  # fmt: skip
        """A run of Actions on a pull request's commit has left these."""
        run = 100 + len(self.runs)
        self.runs[run] = {
            "id": run, "event": "pull_request", "status": status, "commit_sha" if self.forgejo else "head_sha": head,
            "html_url": f"https://gitea.example.com/lab/policy/actions/runs/{run}",
        }  # fmt: skip
        if plan is not None:
            self.uploads(run, name, archive({"plan.md": plan}))
        if page is not None:
            self.uploads(run, "quorate-page", archive({"plan.html": page}))

    def uploads(self, run: int, name: str, packed: bytes) -> int:
        made = 1 + len(self.artifacts)
        self.artifacts[made] = (run, name, packed)
        return made

    def says(self, number: int, user: str, body: str) -> int:
        known = self.comments.setdefault(number, [])
        made = 1000 * number + len(known)
        known.append({"id": made, "body": body, "user": {"id": BOT_ID if user == BOT else 3, "login": user}})
        return made

    def bodies(self, number: int) -> list[str]:
        return [each["body"] for each in self.comments.get(number, []) if each["user"]["id"] == BOT_ID]

    def user(self, _: Request) -> Reply:
        return in_json({"id": BOT_ID, "login": BOT})

    def listed(self, request: Request) -> Reply:
        assert request.query["state"] == "open"
        return a_page([each for each in self.pulls.values() if each["state"] == "open"], request, "limit")

    def one(self, request: Request) -> Reply:
        return in_json(self.pulls[int(request.parts[0])])

    def its_runs(self, request: Request) -> Reply:
        if self.old:
            return Reply(404)
        wanted = request.query["head_sha"]
        found = [run for run in self.runs.values() if wanted in (run.get("head_sha"), run.get("commit_sha"))]
        return in_json({"workflow_runs": found[::-1][: int(request.query["limit"])], "total_count": len(found)})

    def its_artifacts(self, request: Request) -> Reply:
        found = [
            {"id": known, "name": name, "size_in_bytes": len(packed), "expired": known in self.expired}
            for known, (run, name, packed) in self.artifacts.items()
            if run == int(request.parts[0])
        ]
        return in_json(found if self.forgejo else {"artifacts": found, "total_count": len(found)})

    def zipped(self, request: Request) -> Reply:
        self.on_artifact()
        known = request.parts[0]
        if self.forgejo:
            return Reply(200, self.artifacts[int(known)][2])
        return Reply(302, b"", {"Location": f"{self.storage}/{known}?sig=0a1b"})

    def its_comments(self, request: Request) -> Reply:
        return in_json(self.comments.get(int(request.parts[0]), []))

    def commented(self, request: Request) -> Reply:
        number = int(request.parts[0])
        self.wrote.append(f"new comment on {number}")
        return in_json({"id": self.says(number, BOT, json.loads(request.body)["body"])}, 201)

    def edited(self, request: Request) -> Reply:
        wanted = int(request.parts[0])
        self.wrote.append(f"comment {wanted}")
        found = next(each for all_of_it in self.comments.values() for each in all_of_it if each["id"] == wanted)
        found["body"] = json.loads(request.body)["body"]
        return in_json(found)

    def release(self, _: Request) -> Reply:
        assets = [{"id": number, "name": name, "uuid": f"0a{number}-b"} for number, name in enumerate(self.assets)]
        return in_json({"id": 1, "assets": assets}) if assets else Reply(404)

    def attachment(self, request: Request) -> Reply:
        return Reply(200, list(self.assets.values())[int(request.parts[0])])


class Storage(HostServer):
    """Where artifacts lie, beside the host. As object storage does, it refuses a request with another signature in its header."""

    def __init__(self, gitea: Gitea) -> None:
        def alone(headers: Mapping[str, str]) -> bool:
            return "authorization" not in headers

        super().__init__(
            [Route("GET", r"/(\d+)", lambda asked: Reply(200, gitea.artifacts[int(asked.parts[0])][2]))], alone
        )
        gitea.storage = self.url


class ServedGitea(HostServer):
    """The API on a port of loopback, while it is entered."""

    def __init__(self, gitea: Gitea) -> None:
        super().__init__(
            [
                Route("GET", r"/api/v1/user", gitea.user),
                Route("GET", rf"{_AT}/pulls", gitea.listed),
                Route("GET", rf"{_AT}/pulls/(\d+)", gitea.one),
                Route("GET", rf"{_AT}/actions/runs", gitea.its_runs),
                Route("GET", rf"{_AT}/actions/runs/(\d+)/artifacts", gitea.its_artifacts),
                Route("GET", rf"{_AT}/actions/artifacts/(\d+)/zip", gitea.zipped),
                Route("GET", rf"{_AT}/issues/(\d+)/comments", gitea.its_comments),
                Route("POST", rf"{_AT}/issues/(\d+)/comments", gitea.commented),
                Route("PATCH", rf"{_AT}/issues/comments/(\d+)", gitea.edited),
                Route("GET", rf"{_AT}/releases/tags/quorate-snapshot", gitea.release),
                Route("GET", r"/attachments/0a(\d+)-b", gitea.attachment),
            ],
            lambda headers: headers.get("authorization") == f"Bearer {TOKEN}",
        )
        gitea.server_url, gitea.url = self.url, f"{self.url}/api/v1"
