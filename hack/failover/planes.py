"""Control planes as real processes: `quorate run` on one store and one folder of tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reconciler.access.token_file import read_token
from reconciler.client import Client

_POLICY: Final = {
    "policies/team.yaml": "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: team}\nspec: {}\n",
    "cluster-state/pool.yaml": (
        "apiVersion: quorate.dev/v1\nkind: NodePool\nmetadata: {name: pool}\n"
        "spec: {gpuType: H100, gpusPerNode: 4, cpu: 64, memory: 64Gi, nodes: {prefix: n, count: 2}}\n"
    ),
}
_STRAY_MARK: Final = "QUORATE_TASK_FOLDER"


def make_policy(folder: Path) -> Path:
    """A repository with two nodes of four GPUs and one queue."""
    for name, content in _POLICY.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    identity = ("-c", "user.name=failover", "-c", "user.email=failover@example.com")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "The cluster"]):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)
    return folder


@dataclass
class Plane:
    """One `quorate run`. `name` is what the database knows it by; `program` what Python runs."""

    name: str
    folder: Path
    policy: Path
    url: str
    passwords: Path
    program: tuple[str, ...] = ("-m", "reconciler.cli.main")
    _process: subprocess.Popen[bytes] | None = field(default=None)
    _beyond: int = 0

    def start(self) -> None:
        """Start it, again after it was killed."""
        command = [
            *(sys.executable, *self.program, "run", "--policies-repo", str(self.policy), "--poll", "500ms"),
            *(
                "--listen",
                "127.0.0.1:0",
                "--state",
                str(self.folder / self.name),
                "--tasks",
                str(self.folder / "tasks"),
            ),
            *("--store", f"{self.url}?application_name={self.name}"),
        ]
        listened = self._listened()
        with self.log.open("ab") as log:
            environment = os.environ | {"PGPASSFILE": str(self.passwords)}
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

        self._beyond = listened

    def client(self) -> Client:
        """Speaks to it; to be closed."""
        said = [line for line in self.log.read_text().splitlines() if '"listening"' in line]
        return Client(json.loads(said[-1])["url"], read_token(self.folder / self.name / "token"))

    def is_up(self) -> bool:
        """Whether it serves since it was started last, and so leads or stands by."""
        return self._listened() > self._beyond

    def _listened(self) -> int:
        return self.log.read_bytes().count(b'"listening"') if self.log.exists() else 0

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def ended(self) -> int | None:
        """Its exit code; None while it lives."""
        return None if self._process is None else self._process.poll()

    def wait(self) -> None:
        """Until it has ended."""
        if self._process is not None:
            self._process.wait()

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / f"{self.name}.log"


def kill_tasks(tasks: Path) -> None:
    """End what is left below a folder of tasks: supervisors and tasks outlive every control plane."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if str(tasks).encode() in said and (_STRAY_MARK.encode() in said or b"shim" in said):
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            continue  # it has ended, or is somebody else's
