"""As much of GitLab's REST API as `quorate comment` and the jobs of `quorate init` speak to, as docs.gitlab.com describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.hosting.host_server import HostServer, Reply, Request, Route, a_page, in_json

PROJECT, PROJECT_ID, FORK_ID = "lab/policy", 5, 6
TOKEN, JOB_TOKEN = "glpat-0123456789abcdefghij", "the-job's-token"
BOT, BOT_ID = "project_5_bot", 71
_AT = rf"/api/v4/projects/(?:{PROJECT.replace('/', '%2F')}|{PROJECT_ID})"
_QUICK_ACTION = re.compile(r"^/(?:close|merge|approve|assign|label)\b.*$", re.MULTILINE)


@dataclass
class GitLab:
    """What the host knows of one project."""

    merge_requests: dict[int, dict[str, Any]] = field(default_factory=dict)
    pipelines: dict[int, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    files: dict[tuple[int, str], bytes] = field(default_factory=dict)
    """What a job left, by its id and the file's path."""
    notes: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    parents: dict[str, list[str]] = field(default_factory=dict)
    wrote: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    """Quick actions: lines of a note that begin with a slash are orders of the user who writes it."""
    on_artifact: Callable[[], None] = lambda: None
    """Called as an artifact is fetched."""
    old: bool = False

    def opens(self, number: int, head: str, *, fork: bool = False) -> None:
        source = FORK_ID if fork else PROJECT_ID
        self.merge_requests[number] = {
            "iid": number, "state": "opened", "sha": head, "title": "A change", "description": "",
            "source_project_id": source, "target_project_id": PROJECT_ID,
        }  # fmt: skip

    def moves(self, number: int, head: str) -> None:
        self.merge_requests[number]["sha"] = head

    def closes(self, number: int) -> None:
        self.merge_requests[number]["state"] = "closed"

    def leaves(
        self, number: int, head: str, plan: bytes | None, page: bytes | None = None, *, name: str = "plan",
        status: str = "success", kind: str = "head",
    ) -> None:  # fmt: skip
        """A pipeline of a merge request has run on a commit."""
        pipeline, job = 100 + len(self.pipelines), 1000 + len(self.jobs)
        ref = f"refs/merge-requests/{number}/{kind}"
        self.pipelines[pipeline] = {"id": pipeline, "sha": head, "ref": ref, "merge_request": number}
        self.jobs[job] = {
            "id": job, "name": name, "status": status, "pipeline": pipeline,
            "web_url": f"https://gitlab.example.com/lab/policy/-/jobs/{job}",
        }  # fmt: skip
        for file, content in (("plan.md", plan), ("plan.html", page)):
            if content is not None:
                self.files[job, file] = content

    def says(self, number: int, user: str, body: str) -> int:
        known = self.notes.setdefault(number, [])
        made = 1000 * number + len(known)
        author = {"id": BOT_ID if user == BOT else 72, "username": user}
        known.append({"id": made, "body": body, "author": author, "system": False})
        return made

    def bodies(self, number: int) -> list[str]:
        return [note["body"] for note in self.notes.get(number, []) if note["author"]["id"] == BOT_ID]

    def user(self, _: Request) -> Reply:
        return in_json({"id": BOT_ID, "username": BOT})

    def listed(self, request: Request) -> Reply:
        assert request.query["state"] == "opened"
        found = [each for each in self.merge_requests.values() if each["state"] == "opened"]
        return a_page(found, request, "per_page")

    def one(self, request: Request) -> Reply:
        return in_json(self.merge_requests[int(request.parts[0])])

    def its_pipelines(self, request: Request) -> Reply:
        number = int(request.parts[0])
        found = [each for each in self.pipelines.values() if each["merge_request"] == number]
        return a_page(found[::-1], request, "per_page")

    def its_jobs(self, request: Request) -> Reply:
        pipeline = int(request.parts[0])
        return a_page([job for job in self.jobs.values() if job["pipeline"] == pipeline], request, "per_page")

    def commit(self, request: Request) -> Reply:
        return in_json({"id": request.parts[0], "parent_ids": self.parents.get(request.parts[0], [])})

    def file(self, request: Request) -> Reply:
        self.on_artifact()
        found = self.files.get((int(request.parts[0]), request.parts[1]))
        return Reply(404) if found is None else Reply(200, found)

    def its_notes(self, request: Request) -> Reply:
        return a_page(self.notes.get(int(request.parts[0]), []), request, "per_page")

    def commented(self, request: Request) -> Reply:
        number = int(request.parts[0])
        self.wrote.append(f"new comment on {number}")
        return in_json({"id": self.says(number, BOT, self._executed(request))}, 201)

    def edited(self, request: Request) -> Reply:
        number, wanted = map(int, request.parts)
        self.wrote.append(f"comment {wanted}")
        found = next(note for note in self.notes[number] if note["id"] == wanted)
        found["body"] = self._executed(request)
        return in_json(found)

    def _executed(self, request: Request) -> str:
        body: str = json.loads(request.body)["body"]
        self.executed += _QUICK_ACTION.findall(body)
        return _QUICK_ACTION.sub("", body).strip()

    def package(self, request: Request) -> Reply:
        return Reply(200, self.packages[request.parts[0]])


class ServedGitLab(HostServer):
    """The API on a port of loopback, while it is entered."""

    def __init__(self, gitlab: GitLab) -> None:
        number = r"(\d+)"
        super().__init__(
            [
                Route("GET", r"/api/v4/user", gitlab.user),
                Route("GET", rf"{_AT}/merge_requests", gitlab.listed),
                Route("GET", rf"{_AT}/merge_requests/{number}", gitlab.one),
                Route("GET", rf"{_AT}/merge_requests/{number}/pipelines", gitlab.its_pipelines),
                Route("GET", rf"{_AT}/pipelines/{number}/jobs", gitlab.its_jobs),
                Route("GET", rf"{_AT}/repository/commits/([0-9a-f]+)", gitlab.commit),
                Route("GET", rf"{_AT}/jobs/{number}/artifacts/([\w.]+)", gitlab.file),
                Route("GET", rf"{_AT}/merge_requests/{number}/notes", gitlab.its_notes),
                Route("POST", rf"{_AT}/merge_requests/{number}/notes", gitlab.commented),
                Route("PUT", rf"{_AT}/merge_requests/{number}/notes/{number}", gitlab.edited),
                Route("GET", rf"{_AT}/packages/generic/quorate-snapshot/1\.0\.0/([\w.]+)", gitlab.package),
            ],
            lambda headers: headers.get("authorization") == f"Bearer {TOKEN}" or headers.get("job-token") == JOB_TOKEN,
        )
