"""A real Git repository to fetch policy from, written with Git's own commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

QUEUE = "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: team}\nspec: {weight: %d}\n"
INVALID = "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: team}\nspec: {wieght: 1}\n"


class Origin:
    """A repository with a work tree, on the branch main."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, committer: str = "Ada") -> str:
        """What Git prints; by Ada, without the configuration of the machine."""
        environment = {
            **os.environ,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.com",
            "GIT_COMMITTER_NAME": committer,
            "GIT_COMMITTER_EMAIL": f"{committer}@example.com",
        }
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def write(self, files: Mapping[str, str]) -> None:
        """Content by path, in the work tree."""
        for path, content in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(content)

    def commit(self, files: Mapping[str, str] | None = None) -> str:
        """The id of the next commit of what is there and of these files."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=change")
        return self.git("rev-parse", "HEAD")

    def commit_entry(self, mode: str, path: str, object_id: str) -> str:
        """Commit an entry of any mode without a file in the work tree."""
        self.git("update-index", "--add", "--cacheinfo", f"{mode},{object_id},{path}")
        self.git("commit", "--quiet", "--message=entry")
        return self.git("rev-parse", "HEAD")
