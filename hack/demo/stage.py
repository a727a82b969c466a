"""What the demo plays on: a temporary folder, a real policy repository, and a real `quorate run`, all gone at the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from hack.demo.processes import processes_that_mention
from reconciler.access.token_file import read_token
from reconciler.client import Client
from reconciler.documents.schemas import data_folder

QUORATE = Path(sysconfig.get_path("scripts")) / "quorate"
PATIENCE_S = 180
LOG_LINES_SHOWN = 30


class DemoFailedError(Exception):
    """Something did not go as the story says."""


class Stage:
    """Use it as a context manager. Commands run in `folder`, and what they print is shown as they ran."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="quorate-demo-")).resolve()
        self.policy = self.folder / "policy"
        self._log = self.folder / "server.log"
        self._server: subprocess.Popen[bytes] | None = None
        self._environment = _environment(self.folder / "state")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._log.exists():
            click.echo(f"\nThe server's log ends with:\n{self._log_tail()}", err=True)
        self._stop_server()
        left = self.left_running()
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.folder)
        if left and error is None:
            raise DemoFailedError(f"{len(left)} processes were left running and had to be killed")

    def set_up(self) -> None:
        """The policy repository, from this project's own example, and the job files."""
        for name in ("policies", "cluster-state"):
            shutil.copytree(data_folder(name), self.policy / name)
        shutil.copytree(Path(__file__).parent / "jobs", self.folder / "jobs")

    def start_server(self, *arguments: str) -> None:
        """`quorate run` in the background; returns when it listens."""
        self._show("quorate", *arguments, "&")
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(
                [QUORATE, *arguments], cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
        self.until("the server listens", lambda: "QUORATE_SERVER" in self._environment or self._find_url())

    def run(self, *command: str, expect: str = "", exit_code: int = 0) -> str:
        """Run `quorate ...` or `git ...` as a user would, and show it. What it prints must have `expect` in it."""
        self._show(*command)
        arguments = [str(QUORATE) if command[0] == "quorate" else command[0], *command[1:]]
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        printed = (done.stdout + done.stderr).rstrip()
        if printed:
            click.echo("\n".join(f"  {line}".rstrip() for line in printed.splitlines()))
        click.echo()
        if done.returncode != exit_code:
            raise DemoFailedError(f"it ended with exit code {done.returncode} and not {exit_code}")
        if expect not in printed:
            raise DemoFailedError(f"it should have said {expect!r}")
        return printed

    def commit_in_force(self) -> str:
        """Wait until the server follows what the branch main says now; returns that commit."""
        commit = subprocess.run(
            ["git", "rev-parse", "main"],
            cwd=self.policy,
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        with self.client() as client:
            self.until("the commit is in force", lambda: client.status().last_applied_revision == commit)
        return commit

    def client(self) -> Client:
        """For what the story checks without showing it."""
        return Client(self._environment["QUORATE_SERVER"], read_token(self.folder / "state" / "token"))

    def until(self, what: str, reached: Callable[[], object]) -> None:
        """Wait for something that comes in a moment."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if self._server is not None and self._server.poll() is not None:
                raise DemoFailedError(f"the server ended with exit code {self._server.returncode}")
            if time.monotonic() > deadline:
                raise DemoFailedError(f"waited {PATIENCE_S} s in vain until {what}")
            time.sleep(0.05)

    def stop_server(self) -> None:
        """As Ctrl-C does."""
        self._stop_server(signal.SIGINT)

    def left_running(self) -> list[int]:
        """Every process that has to do with the demo's folder, other than this one."""
        return processes_that_mention(str(self.folder))

    def _show(self, *command: str) -> None:
        click.secho(f"$ {' '.join(_as_typed(part) for part in command)}", bold=True)

    def _find_url(self) -> bool:
        for line in self._log_lines():
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("event") == "listening":
                self._environment["QUORATE_SERVER"] = entry["url"]
                self._show("export", f"QUORATE_SERVER={entry['url']}", "QUORATE_STATE=state")
                said = f"# The console: {entry['url']}/ (sign in with what is in {self.folder / 'state' / 'token'})"
                click.secho(f"{said}\n", fg="cyan")
        return "QUORATE_SERVER" in self._environment

    def _log_lines(self) -> Iterator[str]:
        with self._log.open(errors="replace") as log:
            yield from (line for line in log if line.endswith("\n"))

    def _log_tail(self) -> str:
        return "".join(list(self._log_lines())[-LOG_LINES_SHOWN:])

    def _stop_server(self, number: signal.Signals = signal.SIGTERM) -> None:
        server, self._server = self._server, None
        if server is None or server.poll() is not None:
            return
        server.send_signal(number)
        try:
            code = server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
            raise DemoFailedError("the server did not stop when asked") from None
        if code:
            raise DemoFailedError(f"the server stopped with exit code {code}")


def _environment(state: Path) -> dict[str, str]:
    """The user's own, but for settings that would lead elsewhere; Git knows an author whatever the machine's settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "QUORATE_"))}
    author = {"NAME": "Ada", "EMAIL": "ada@example.com"}
    return {
        **own,
        **{f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in author.items()},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "QUORATE_STATE": str(state),
    }


def _as_typed(part: str) -> str:
    return f"'{part}'" if " " in part else part
