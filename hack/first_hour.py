"""The first hour of a new user, with times: `python -m hack.first_hour`.

A copy of this checkout's commit in an empty HOME, a new virtual environment, then the first five lines of README.md, or every
console block of docs/quickstart.md, as they stand and in their order, as a person would type them: each page in a HOME of its
own. Prints how long each section took, and how many words there were to read for it. Exits with 1 at the first line that fails.
Downloads what `make install` downloads, twice.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.ports import HOST, free_ports
from hack.prose import reading

ROOT: Final = Path(__file__).resolve().parent.parent
QUICKSTART: Final = "docs/quickstart.md"
PATIENCE_S: Final = 600
WORDS_A_MINUTE: Final = 200
"""How fast a page with commands is assumed to be read. Assumed, not measured: the table names it."""

_SECTION: Final = re.compile(r"^## (?=\d)", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KEPT: Final = (
    "PATH",
    "LANG",
    "TERM",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CONFIG_FILE",
    "PIP_CERT",
    "PIP_FIND_LINKS",
)
"""Of the caller's environment: where programs are, and where packages come from on this machine."""


@dataclass(frozen=True)
class Section:
    """One numbered section of the page."""

    title: str
    words: int
    blocks: tuple[str, ...]


class Newcomer:
    """A person at two terminals in a new HOME."""

    def __init__(self, home: Path) -> None:
        (port,) = free_ports(1)
        who = {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "New User"), ("EMAIL", "new@example.com"))
        }
        self.checkout = home / "quorate"
        self._folder = self.checkout
        self._environment = {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            **who,
            "HOME": str(home),
            "QUORATE_LISTEN": f"{HOST}:{port}",
            "QUORATE_SERVER": f"http://{HOST}:{port}",
        }
        self._server: subprocess.Popen[bytes] | None = None
        self._log = home / "second-terminal.log"

    def follow(self, block: str) -> None:
        """Run a block: in the first terminal, or in the second one where it goes on running."""
        if block.startswith("quorate run"):
            self._serve(block.strip())
        else:
            self._type(block)

    def end(self) -> None:
        """End what runs in the second terminal, as Ctrl-C there does (which a caller in the background would have it ignore)."""
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            self._server.wait(PATIENCE_S)

    def _type(self, block: str) -> None:
        """Each terminal goes on where it stood: the folder and the activated environment stay from block to block."""
        activate = "[ ! -e .venv/bin/activate ] || . .venv/bin/activate"
        script = f"cd {self.checkout}; {activate}; cd {self._folder}\n{block}\npwd >{self.checkout.parent}/folder"
        print("".join(f"  $ {line}\n" for line in block.splitlines()), end="", flush=True)
        ran = subprocess.run(
            ["bash", "-e", "-c", script],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        print("".join(f"    {line}\n" for line in (ran.stdout + ran.stderr).splitlines()), flush=True)
        if ran.returncode:
            raise SystemExit(f"it ended with {ran.returncode}")
        self._folder = Path((self.checkout.parent / "folder").read_text().strip())

    def _serve(self, command: str) -> None:
        print(f"  second terminal $ {command}", flush=True)
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(
                ["bash", "-c", f". .venv/bin/activate; exec {command}"],
                cwd=self.checkout, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while '"leading"' not in self._log.read_text():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"it does not lead:\n{self._log.read_text()}")
            time.sleep(0.05)


def quickstart() -> Iterator[Section]:
    """The numbered sections of the quickstart, each with what has to be read for it."""
    for part in _SECTION.split((ROOT / QUICKSTART).read_text("utf-8"))[1:]:
        title, _, text = part.partition("\n")
        yield Section(title, reading(text.split("\n## ")[0]).words, tuple(_BLOCK.findall(text)))


def readme() -> Iterator[Section]:
    """The first lines of the README, one by one; what stands above them is read for the first."""
    page = (ROOT / "README.md").read_text("utf-8")
    block = _BLOCK.search(page)
    assert block is not None
    words = reading(page[: block.start()]).words
    for line in block[1].splitlines():
        command = line.partition(" #")[0].strip()
        yield Section(command, words, (f"{command}\n",))
        words = 0


def walk(listed: Iterable[Section]) -> list[tuple[Section, float]]:
    """Follow the sections in a new HOME; how many seconds the commands of each took."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="quorate-first-hour-") as folder:
        person = Newcomer(Path(folder).resolve())
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(person.checkout)], check=True)
        try:
            for section in listed:
                print(section.title, flush=True)
                began = time.monotonic()
                for block in section.blocks:
                    person.follow(block)
                rows.append((section, time.monotonic() - began))
        finally:
            person.end()
    return rows


def main() -> None:
    """Walk both pages and print their tables."""
    walked = {"README.md": walk(readme()), QUICKSTART: walk(quickstart())}
    for page, rows in walked.items():
        print(f"\n{page}")
        _table(rows)
    print(f"Reading is assumed to take a minute for {WORDS_A_MINUTE} words; typing is not counted.")


def _table(rows: list[tuple[Section, float]]) -> None:
    print(f"{'Section':<48} {'Lines':>5} {'Words':>6} {'Commands took':>14} {'With reading, since the start':>30}")
    took = 0.0
    for section, seconds in rows:
        took += seconds + section.words / WORDS_A_MINUTE * 60
        lines = sum(len(block.splitlines()) for block in section.blocks)
        since = f"{int(took // 60)} min {int(took % 60):02} s"
        print(f"{section.title:<48} {lines:>5} {section.words:>6} {seconds:>12.1f} s {since:>30}")


if __name__ == "__main__":
    main()
