"""Secrets in what was ever committed, as gitleaks finds them: no file that was deleted since is out of reach of who has a clone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from hack.kubernetes.components import USUAL_GO
from hack.supply_chain.problem import ProblemError

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = Path(__file__).parent / "gitleaks"
PACKAGE: Final = "github.com/zricethezav/gitleaks/v8"
CLEAN_UP_TO: Final = "c0b267e9712c0ee5c3808995eb0816bdeada7379"
"""All commits up to this one were looked at on 2026-11-29; `--history` looks at them again."""


def leaks(whole: bool, repository: Path = ROOT) -> tuple[str, ...]:
    """COMMIT:FILE:LINE: RULE of each secret that a commit brought, but for those that .gitleaksignore names.

    `whole`: of the whole history, else of what came after CLEAN_UP_TO, where it is there. Raises ProblemError without gitleaks.
    """
    program = gitleaks()
    since = [] if whole or not _has(repository, CLEAN_UP_TO) else [f"--log-opts={CLEAN_UP_TO}..HEAD"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = [
            "--no-banner",
            "--no-color",
            "--exit-code=0",
            "--redact",
            "--log-level=error",
            f"--report-path={report}",
        ]
        ran = subprocess.run(
            [program, "git", *options, *since, str(repository)], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise ProblemError(str(repository), ran.stderr.strip() or "gitleaks failed", "Mend it, and ask again.")
        found: list[dict[str, Any]] = json.loads(report.read_text())
    return tuple(f"{each['Commit'][:12]}:{each['File']}:{each['StartLine']}: {each['RuleID']}" for each in found)


def gitleaks() -> Path:
    """The program: on PATH, or from the cache, where Go builds it once (50 s of CPU time). Raises ProblemError without both."""
    if on_path := shutil.which("gitleaks"):
        return Path(on_path)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "quorate" / "gitleaks" / hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    if not (place / "gitleaks").exists():
        _build(place)
    return place / "gitleaks"


def _build(place: Path) -> None:
    go = shutil.which("go") or (str(USUAL_GO) if USUAL_GO.exists() else None)
    if go is None:
        raise ProblemError("gitleaks", "it is not installed, nor is Go, which builds it", "Install one of both.")
    place.mkdir(parents=True, exist_ok=True)
    # Made beside its place and moved there whole: two may build at once, and one that is interrupted leaves no half of it.
    with tempfile.TemporaryDirectory(dir=place) as made:
        command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", f"{made}/gitleaks", PACKAGE]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"}
        built = subprocess.run(command, cwd=MODULE, env=environment, capture_output=True, text=True, check=False)
        if built.returncode:
            raise ProblemError("gitleaks", f"Go can't build it: {built.stderr.strip()[-300:]}", "Install gitleaks.")
        (Path(made) / "gitleaks").replace(place / "gitleaks")


def _has(repository: Path, commit: str) -> bool:
    asked = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    return subprocess.run(asked, cwd=repository, capture_output=True, check=False).returncode == 0
