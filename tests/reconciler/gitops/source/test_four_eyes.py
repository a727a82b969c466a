"""Nobody changes alone what needs two people, whoever merges how."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.control.control import PolicyInForce
from reconciler.documents.repository import Reading
from reconciler.gitops.source.four_eyes import FilePatterns, FourEyes
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.requirements import RevisionCandidate, RevisionHold
from tests.reconciler.gitops.review.test_guardrails import compiled
from tests.reconciler.gitops.source.origin import QUEUE, Origin

WATCHED = "policies/queues/**"


@pytest.mark.parametrize(
    ("pattern", "path", "watched"),
    [
        ("policies/*.yaml", "policies/a.yaml", True),
        ("policies/*.yaml", "policies/deep/a.yaml", False),
        ("policies/**", "policies/deep/a.yaml", True),
        ("**/a.yaml", "a.yaml", True),
        ("**/a.yaml", "policies/deep/a.yaml", True),
        ("policies/a.yaml", "policies/aXyaml", False),
        ("policies/[a].yaml", "policies/a.yaml", False),
    ],
)
def test_patterns(pattern: str, path: str, watched: bool) -> None:
    assert (path in FilePatterns([pattern])) is watched


class Branch:
    """The policy branch of an origin, and what is asked of what lies on it since it was applied."""

    def __init__(self, origin: Origin, folder: Path) -> None:
        self.origin = origin
        self.mirror = GitMirror(folder / "mirror", str(origin.folder))
        self.applied = origin.git("rev-parse", "HEAD")

    def commit(self, path: str, author: str, committer: str) -> None:
        self.origin.write({path: QUEUE % 7})
        self.origin.git("add", "--all")
        written = f"--author={author} <{author}@example.com>"
        self.origin.git("commit", "--quiet", written, "--message=change", committer=committer)

    def held(self) -> RevisionHold | None:
        in_force = PolicyInForce(self.applied, *compiled(f"{{fourEyes: ['{WATCHED}']}}").parts)
        commit = self.mirror.fetch("main")
        return FourEyes(self.mirror).hold(RevisionCandidate(commit, self.applied, in_force, lambda: Reading((), None)))


@pytest.fixture
def branch(origin: Origin, tmp_path: Path) -> Branch:
    return Branch(origin, tmp_path)


def test_alone_it_is_held_and_by_two_it_is_not(branch: Branch) -> None:
    branch.commit("policies/queues/a.yaml", "bob", "ada")
    assert branch.held() is None
    branch.commit("policies/queues/b.yaml", "ada", "ada")
    held = branch.held()
    assert held is not None
    assert (held.reason, held.acceptable) == ("ChangedAlone", True)
    assert "policies/queues/b.yaml" in held.message


def test_what_is_not_watched_may_be_changed_alone(branch: Branch) -> None:
    branch.commit("policies/other.yaml", "ada", "ada")
    assert branch.held() is None


@pytest.mark.parametrize(("merger", "held"), [("bob", False), ("ada", True), ("Ada", True)])
def test_of_a_merge_it_counts_who_merges(branch: Branch, merger: str, held: bool) -> None:
    branch.origin.git("checkout", "--quiet", "-b", "change")
    branch.commit("policies/queues/a.yaml", "ada", "ada")
    branch.origin.git("checkout", "--quiet", "main")
    branch.origin.git("merge", "--quiet", "--no-ff", "-m", "merge", "change", committer=merger)
    assert (branch.held() is not None) is held


def test_who_takes_a_file_away_changes_it(branch: Branch) -> None:
    branch.commit("policies/queues/a.yaml", "bob", "ada")
    branch.applied = branch.origin.git("rev-parse", "HEAD")
    branch.origin.git("mv", "policies/queues/a.yaml", "policies/moved.yaml")
    branch.origin.git("commit", "--quiet", "--message=move")
    assert branch.held() is not None
