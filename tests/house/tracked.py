"""The files of this repository, as Git knows them: tracked, or new and not ignored."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[Path]:
    """Files that match a Git pathspec, sorted; skips the test that asks where this is no Git checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the house rules look at the files that Git knows, and this is no Git checkout")
    found = [path for name in sorted(set(listed.stdout.split("\0"))) if (path := ROOT / name).is_file()]
    assert found, patterns
    return found


def objections(paths: Iterable[Path], rule: Callable[[Path], object]) -> dict[str, object]:
    """What a rule has to say against files, by their names; {} where all keep it."""
    return {path.relative_to(ROOT).as_posix(): said for path in paths if (said := rule(path))}
