"""The files of this repository, as Git knows them: tracked, or new and not ignored."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("solver", "reconciler", "hack")


def tracked(*patterns: str) -> list[Path]:
    """Files that match a Git pathspec, sorted; skips the tests that ask where this is no Git checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(
            "the house rules look at the files that Git knows, and this is no Git checkout", allow_module_level=True
        )
    return [path for name in sorted(set(listed.stdout.split("\0")) - {""}) if (path := ROOT / name).is_file()]


def name_of(path: Path) -> str:
    """A path as a test's id."""
    return path.relative_to(ROOT).as_posix()
