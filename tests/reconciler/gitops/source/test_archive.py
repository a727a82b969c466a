"""What the mirror has of past revisions is read by full ids, once, and past a fetch that is under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.gitops.source.archive import RevisionArchive
from reconciler.gitops.source.errors import UnknownRevisionError
from reconciler.gitops.source.mirror import GitMirror
from tests.reconciler.gitops.source.origin import QUEUE, Origin

FILE = "policies/team.yaml"


def test_documents_and_commits_are_read_while_the_mirror_is_locked(tmp_path: Path) -> None:
    origin, folder = Origin(tmp_path / "origin"), tmp_path / "mirror"
    mirror, archive = GitMirror(folder, str(origin.folder)), RevisionArchive(folder)
    first = origin.commit({FILE: QUEUE % 1, "cluster-state/snapshot.json": "{}"})
    with pytest.raises(UnknownRevisionError, match="nothing has been fetched yet"):
        archive.documents(first)
    mirror.fetch("main")
    origin.git("config", "user.name", "Eve")
    origin.write({FILE: QUEUE % 2})
    origin.git("commit", "--quiet", "--all", "--message=more\x1f for team\n\nand why", committer="Bo\u202e")
    second = mirror.fetch("main")
    with mirror._locked():  # As a fetch holds it, which may take minutes.
        assert archive.documents(first) == {FILE: QUEUE % 1}
        assert archive.documents(second) == {FILE: QUEUE % 2}
        newest, oldest = archive.line(second, 10)
        assert [each.commit for each in archive.line(second, 1)] == [second]
    assert (newest.commit, newest.author, newest.committer, newest.subject) == (
        second, "Ada", "Bo\u202e", "more\x1f for team"
    )  # fmt: skip
    assert (oldest.commit, oldest.subject) == (first, "change")
    assert newest.at >= oldest.at > 0
    assert archive.documents(first) is archive.documents(first)
    for unknown in ("c" * 40, "--all"):
        with pytest.raises(UnknownRevisionError):
            archive.line(unknown, 10)
