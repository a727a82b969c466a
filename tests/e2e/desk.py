"""Who changes the policy: at the command line, with a running control plane and its repository at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.api.payloads import Status
from reconciler.cli.main import run
from reconciler.client import Client
from reconciler.model.broken_limit import BrokenLimit
from reconciler.protocols.history import Event
from solver.model.document import decode, encode
from solver.model.workload import JobName
from tests.e2e.control_plane import POLICY, ControlPlane, sh, submit, until
from tests.reconciler.gitops.source.origin import Origin

QUEUE = """\
apiVersion: quorate.dev/v1
kind: Queue
metadata: {name: team}
spec:
  quota:
    - {gpuType: H100, max: %d}
"""
SCHEDULING = """\
apiVersion: quorate.dev/v1
kind: SchedulingPolicy
metadata: {name: default}
spec:
  convergence: {within: %s}
  guardrails: %s
"""
QUEUE_FILE, SCHEDULING_FILE = "policies/queue.yaml", "policies/scheduling.yaml"


def policy(most: int, within: str = "1h", guardrails: str = "{}") -> dict[str, str]:
    """Eight GPUs and one queue, which may hold so many of them."""
    return POLICY | {QUEUE_FILE: QUEUE % most, SCHEDULING_FILE: SCHEDULING % (within, guardrails)}


class Desk:
    """Runs `quorate` in this process, and commits on `main` or on branches."""

    def __init__(
        self, plane: ControlPlane, origin: Origin, patch: pytest.MonkeyPatch, printed: pytest.CaptureFixture[str]
    ) -> None:
        self.plane, self.origin, self._patch, self._printed = plane, origin, patch, printed

    def start(self) -> None:
        """Have the control plane run, or run again, until it decides rounds."""
        self.plane.start().until_ready()
        with self.client() as client:
            self._patch.setenv("QUORATE_SERVER", client.server)
        self._patch.setenv("QUORATE_TOKEN_FILE", str(self.plane.folder.token))

    def client(self) -> Client:
        return self.plane.client()

    def quorate(self, *arguments: str, exits: int = 0) -> str:
        """What a command prints, on both streams."""
        self._printed.readouterr()
        exit_code = run(arguments)
        out, err = self._printed.readouterr()
        assert exit_code == exits, out + err
        return out + err

    def plan(self, head: str, *options: str, exits: int = 0) -> str:
        """`quorate plan` of a branch against main, on the server's snapshot."""
        return self.quorate("plan", "--repo", str(self.origin.folder), "--head", head, *options, exits=exits)

    def propose(self, branch: str, files: dict[str, str]) -> None:
        """Commit on a branch from main, and go back."""
        self.origin.git("switch", "--quiet", "--create", branch)
        self.origin.commit(files)
        self.origin.git("switch", "--quiet", "main")

    def merge(self, branch: str, exits: int = 0) -> str:
        """Merge it, and wait for what comes of it; returns the commit."""
        self.origin.git("merge", "--quiet", "--no-ff", "--message=Merge", branch)
        return self.followed(exits)

    def revert(self) -> str:
        """Take the newest merge back, and wait until that is in force; returns the commit."""
        self.origin.git("revert", "--mainline=1", "--no-edit", "HEAD")
        return self.followed()

    def followed(self, exits: int = 0) -> str:
        """Wait for what comes of the newest commit, which this returns."""
        self.quorate("reconcile", "--wait", exits=exits)
        return self.origin.git("rev-parse", "HEAD")

    def status(self) -> Status:
        with self.client() as client:
            return client.status()

    def truth(self) -> tuple[str, str]:
        """The revision in force, and why the newest is or is not."""
        status = self.status()
        return status.last_applied_revision, next(each.reason for each in status.conditions if each.status)

    def compiled(self) -> bytes:
        """The policy in force as the solver is given it."""
        with self.client() as client:
            return encode(client.policy().policy)

    def limits(self) -> tuple[BrokenLimit, ...]:
        """Those that `quorate status -o json` shows as broken."""
        return decode(self.quorate("status", "-o", "json"), Status).broken_limits

    def runs(self, name: str, gpus: int, mark: Path, release: Path) -> None:
        """Submit a job that notes its process and ends well once it is released, and wait until it runs."""
        script = f"echo $$ >> {mark}; until test -e {release}; do sleep 0.05; done"
        with self.client() as client:
            submit(client, [name], sh(script, gpus=gpus))
        self.reaches(name, "running")
        until("it has noted its process", lambda: mark.exists() and mark.read_text().endswith("\n"))

    def reaches(self, name: str, state: str) -> None:
        with self.client() as client:
            until(f"{name} is {state}", lambda: client.job(JobName(name)).state == state)

    def attempt(self, name: str) -> tuple[str, int]:
        """How a job stands, and how often it was begun."""
        with self.client() as client:
            view = client.job(JobName(name))
        return view.state, view.attempt

    def kinds(self, subject: str) -> list[str]:
        return [event.kind for event in self.plane.events(subject)]

    def event(self, subject: str, kind: str) -> Event:
        """The last of a kind."""
        return next(event for event in reversed(self.plane.events(subject)) if event.kind == kind)


def row(table: str, first: str) -> list[str]:
    """The cells of the line of a printed table that begins with this."""
    line = next(line.strip() for line in table.splitlines() if line.strip().startswith(first))
    return re.split(r"\s{2,}", line)
