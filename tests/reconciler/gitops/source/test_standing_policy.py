"""The policy in force changes only to a good revision that was made from it, and survives everything else."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.control.control import NoPolicyError
from reconciler.gitops.source.mirror import APPLIED, GitMirror
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.model.git_status import PolicyStatus
from tests.reconciler.gitops.source.origin import INVALID, QUEUE, Origin


@pytest.fixture
def standing(origin: Origin, tmp_path: Path) -> StandingPolicy:
    return StandingPolicy(GitMirror(tmp_path / "mirror", str(origin.folder)), "main")


def true_condition(status: PolicyStatus) -> tuple[str, str]:
    """The type and reason of the one condition that holds."""
    (condition,) = [condition for condition in status.conditions if condition.status]
    return condition.type, condition.reason


def weight(standing: StandingPolicy) -> int:
    return standing.current().policy.queues[0].weight


def test_before_the_first_fetch_there_is_no_policy(standing: StandingPolicy) -> None:
    assert true_condition(standing.status()) == ("Reconciling", "NotFetchedYet")
    with pytest.raises(NoPolicyError, match="no revision has been fetched yet"):
        standing.current()


def test_a_good_revision_is_in_force(origin: Origin, standing: StandingPolicy) -> None:
    status = standing.reconcile()

    assert true_condition(status) == ("Ready", "Applied")
    assert status.last_applied_revision == status.last_attempted_revision == origin.git("rev-parse", "main")
    assert standing.current().revision == status.last_applied_revision
    assert weight(standing) == 1


def test_an_invalid_head_leaves_the_last_good_one_until_it_is_fixed(origin: Origin, standing: StandingPolicy) -> None:
    good = standing.reconcile().last_applied_revision
    bad = origin.commit({"policies/team.yaml": INVALID})

    status = standing.reconcile()

    assert true_condition(status) == ("Stalled", "InvalidPolicy")
    assert (status.last_applied_revision, status.last_attempted_revision) == (good, bad)
    assert "policies/team.yaml:4:8" in status.condition("Ready").message
    assert "Did you mean weight?" in status.condition("Stalled").message
    assert weight(standing) == 1

    origin.commit({"policies/team.yaml": QUEUE % 3})
    assert true_condition(standing.reconcile()) == ("Ready", "Applied")
    assert weight(standing) == 3


def test_a_revision_without_any_policy_takes_nothing_away(origin: Origin, standing: StandingPolicy) -> None:
    """Somebody moved the folders, or it is the wrong branch."""
    good = standing.reconcile().last_applied_revision
    (origin.folder / "infra").mkdir()
    origin.git("mv", "policies", "infra/policies")
    origin.commit({"policies/README.md": "moved to infra/"})

    status = standing.reconcile()

    assert true_condition(status) == ("Stalled", "InvalidPolicy")
    assert "there is no document of a policy here" in status.condition("Stalled").message
    assert (status.last_applied_revision, weight(standing)) == (good, 1)


def test_nothing_new_changes_nothing(origin: Origin, standing: StandingPolicy) -> None:
    status, policy = standing.reconcile(), standing.current()
    assert standing.reconcile() == status
    assert standing.current() is policy


def test_a_revert_restores_the_policy_exactly(origin: Origin, standing: StandingPolicy) -> None:
    standing.reconcile()
    before = standing.current().policy.digest
    origin.commit({"policies/team.yaml": QUEUE % 9})
    standing.reconcile()
    assert standing.current().policy.digest != before

    origin.git("revert", "--no-edit", "HEAD")
    standing.reconcile()

    assert standing.current().policy.digest == before


def test_rewritten_history_is_refused_until_the_branch_is_restored(origin: Origin, standing: StandingPolicy) -> None:
    origin.commit({"policies/team.yaml": QUEUE % 2})
    applied = standing.reconcile().last_applied_revision
    origin.git("reset", "--quiet", "--hard", "HEAD~1")
    origin.commit({"policies/team.yaml": QUEUE % 7})

    status = standing.reconcile()

    assert true_condition(status) == ("Stalled", "HistoryRewritten")
    assert status.last_applied_revision == applied
    assert weight(standing) == 2

    origin.git("reset", "--quiet", "--hard", applied)
    assert true_condition(standing.reconcile()) == ("Ready", "Applied")


def test_a_person_can_accept_rewritten_history(origin: Origin, standing: StandingPolicy, tmp_path: Path) -> None:
    standing.reconcile()
    origin.git("commit", "--quiet", "--amend", "--message=again")
    assert true_condition(standing.reconcile()) == ("Stalled", "HistoryRewritten")

    origin.git("-C", str(tmp_path / "mirror"), "update-ref", "-d", APPLIED)

    assert true_condition(standing.reconcile()) == ("Ready", "Applied")


def test_a_restart_finds_the_last_good_revision_without_the_repository(
    origin: Origin, standing: StandingPolicy, tmp_path: Path
) -> None:
    good = standing.reconcile().last_applied_revision
    bad = origin.commit({"policies/team.yaml": INVALID})
    standing.reconcile()
    mirror = GitMirror(tmp_path / "mirror", str(origin.folder))
    shutil.move(origin.folder, tmp_path / "elsewhere")

    restarted = StandingPolicy(mirror, "main")

    assert (restarted.current().revision, weight(restarted)) == (good, 1)
    assert restarted.status().last_attempted_revision == bad
    assert true_condition(restarted.reconcile()) == ("Reconciling", "FetchFailed")
    assert weight(restarted) == 1
    (tmp_path / "elsewhere").rename(origin.folder)
    assert true_condition(restarted.reconcile()) == ("Stalled", "InvalidPolicy")


def test_kill_9_forgets_nothing(origin: Origin, tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal, sys\n"
        "from reconciler.gitops.source.mirror import GitMirror\n"
        "from reconciler.gitops.source.standing_policy import StandingPolicy\n"
        "StandingPolicy(GitMirror(pathlib.Path(sys.argv[1]), sys.argv[2]), 'main').reconcile()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "mirror"), str(origin.folder)])
    assert killed.returncode == -signal.SIGKILL
    origin.commit({"policies/team.yaml": INVALID})

    restarted = StandingPolicy(GitMirror(tmp_path / "mirror", str(origin.folder)), "main")

    assert weight(restarted) == 1
    assert true_condition(restarted.reconcile()) == ("Stalled", "InvalidPolicy")
    assert weight(restarted) == 1


def test_a_deleted_branch_stops_nothing(origin: Origin, standing: StandingPolicy) -> None:
    standing.reconcile()
    origin.git("branch", "--move", "main", "other")

    status = standing.reconcile()

    assert true_condition(status) == ("Stalled", "BranchMissing")
    assert "has no branch main" in status.condition("Ready").message
    assert weight(standing) == 1


def test_a_repository_without_its_past_is_not_followed(
    origin: Origin, standing: StandingPolicy, tmp_path: Path
) -> None:
    good = standing.reconcile().last_applied_revision
    for changed in (2, 3):
        origin.commit({"policies/team.yaml": QUEUE % changed})
    shallow = tmp_path / "shallow"
    origin.git("clone", "--quiet", "--depth=1", origin.folder.as_uri(), str(shallow))
    followed = StandingPolicy(GitMirror(tmp_path / "mirror", str(shallow)), "main")

    status = followed.reconcile()

    assert true_condition(status) == ("Stalled", "SourceUnusable")
    assert (status.last_applied_revision, weight(followed)) == (good, 1)


def test_moving_back_is_a_rewrite(origin: Origin, standing: StandingPolicy) -> None:
    origin.commit({"policies/team.yaml": QUEUE % 2})
    standing.reconcile()
    origin.git("reset", "--quiet", "--hard", "HEAD~1")

    assert true_condition(standing.reconcile()) == ("Stalled", "HistoryRewritten")
    assert weight(standing) == 2


def test_locks_of_a_killed_git_are_cleared(origin: Origin, standing: StandingPolicy, tmp_path: Path) -> None:
    standing.reconcile()
    origin.commit({"policies/team.yaml": QUEUE % 4})
    for lock in ("refs/quorate/fetched.lock", "refs/quorate/applied.lock", "packed-refs.lock"):
        (tmp_path / "mirror" / lock).touch()

    assert true_condition(standing.reconcile()) == ("Ready", "Applied")
    assert weight(standing) == 4


def test_a_damaged_mirror_is_a_condition_and_not_a_crash(
    origin: Origin, standing: StandingPolicy, tmp_path: Path
) -> None:
    standing.reconcile()
    for stored in (tmp_path / "mirror" / "objects").rglob("*"):
        if stored.is_file():
            stored.chmod(0o600)
            stored.write_bytes(b"damaged")

    restarted = StandingPolicy(GitMirror(tmp_path / "mirror", str(origin.folder)), "main")

    assert true_condition(restarted.status()) == ("Stalled", "SourceUnusable")
    assert true_condition(restarted.reconcile())[0] in ("Stalled", "Reconciling")
    shutil.rmtree(tmp_path / "mirror")
    assert true_condition(restarted.reconcile()) == ("Ready", "Applied")


def test_of_several_clusters_one_is_followed(origin: Origin, tmp_path: Path) -> None:
    """Who is started for none keeps what was in force; documents of another cluster change nothing."""
    anonymous, eu = (
        StandingPolicy(GitMirror(tmp_path / f"mirror-{cluster}", str(origin.folder)), "main", cluster=cluster)
        for cluster in (None, "eu")
    )
    anonymous.reconcile()
    origin.commit({f"clusters/{cluster}/policies/team.yaml": QUEUE % w for cluster, w in (("eu", 7), ("us", 8))})

    assert true_condition(eu.reconcile()) == ("Ready", "Applied")
    assert weight(eu) == 7
    assert true_condition(anonymous.reconcile()) == ("Stalled", "InvalidPolicy")
    assert "Say which with --cluster: eu, us." in anonymous.status().condition("Stalled").message
    assert weight(anonymous) == 1
