"""Only commits that a listed key has signed are followed: made with real keys, judged by git, gpg and ssh-keygen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.hostile.signed import FOLLOWED, OTHER, REFUSED, People, Site
from reconciler.documents.repository import Reading
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.requirements import Valid
from reconciler.gitops.source.signatures import NOT_ASKED, Signed, judge
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.model.clock import SystemClock
from reconciler.model.problem import START, problem_at
from tests.reconciler.gitops.source.origin import INVALID, QUEUE, Origin
from tests.reconciler.gitops.source.signing import commit, needs_gpg, needs_ssh

pytestmark = [needs_ssh, needs_gpg]

SPOILED = problem_at("policies/team.yaml", START, "malformed", "spoiled")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    # A short path: gpg's agent listens on a socket there.
    made = People(tmp_path_factory.mktemp("k"))
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path, origin: Origin, people: People) -> Site:
    return Site(tmp_path, origin, people)


@pytest.mark.parametrize("how", FOLLOWED)
def test_signed_by_who_is_listed(site: Site, how: str) -> None:
    standing = site.required()
    FOLLOWED[how](site)
    status = standing.reconcile()
    assert (status.truth.type, status.truth.reason) == ("Ready", "Applied"), status.truth.message
    assert standing.current().policy.queues[0].weight == 2


@pytest.mark.parametrize("how", REFUSED)
def test_not_signed_by_who_is_listed(site: Site, how: str) -> None:
    standing = site.required()
    before = standing.current()
    make, why = REFUSED[how]
    make(site)
    status = standing.reconcile()
    assert (status.truth.type, status.truth.reason) == ("Stalled", "SignatureRefused")
    assert why in status.truth.message
    assert standing.current() == before
    assert not status.acceptable


def test_the_first_revision_is_taken_as_it_is_unless_the_server_says_who_signs(site: Site) -> None:
    allowed = site.folder / "allowed"
    allowed.write_text(f"# people\nada@example.com {site.ada.public}\n{site.eve.public}")
    with_floor = site.follow(allowed)
    assert with_floor.reconcile().truth.reason == "SignatureRefused"
    assert NOT_ASKED in site.follow().reconcile().truth.message


def test_what_the_server_asks_for_git_can_not_lower(site: Site) -> None:
    allowed = site.folder / "allowed"
    allowed.write_text(f'ada@example.com namespaces="git" {site.ada.public}\n')
    commit(site.origin, {"policies/access.yaml": site.policy("optional")}, *site.ada.signing())
    standing = site.follow(allowed)
    assert standing.reconcile().truth.reason == "Applied"
    commit(site.origin, OTHER, *site.eve.signing())  # whom the policy in force lists
    assert standing.reconcile().truth.reason == "Applied"
    commit(site.origin, {"policies/team.yaml": QUEUE % 3})
    assert standing.reconcile().truth.reason == "SignatureRefused"


def test_the_server_must_be_able_to_read_who_signs(site: Site) -> None:
    allowed = site.folder / "allowed"
    allowed.write_text(f"ada@example.com {site.ada.public}\n")
    allowed.chmod(0o666)
    status = site.follow(allowed).reconcile()
    assert (status.truth.reason, "others can write" in status.truth.message) == ("SourceUnusable", True)


def test_an_unsigned_branch_is_mended_from_where_it_was_good(site: Site) -> None:
    standing = site.required()
    good = site.origin.git("rev-parse", "HEAD")
    commit(site.origin, OTHER)
    assert standing.reconcile().truth.reason == "SignatureRefused"
    site.origin.git("reset", "--quiet", "--hard", good)
    commit(site.origin, OTHER, *site.ada.signing())
    assert standing.reconcile().truth.reason == "Applied"


def test_nothing_of_an_unsigned_revision_is_parsed(site: Site) -> None:
    standing = site.required()
    commit(site.origin, {"policies/team.yaml": INVALID})
    assert standing.reconcile().truth.reason == "SignatureRefused"


def test_an_empty_list_lets_nobody_in(site: Site) -> None:
    allowed = site.folder / "allowed"
    allowed.write_text("# nobody\n")
    commit(site.origin, OTHER, *site.ada.signing())
    assert site.follow(allowed).reconcile().truth.reason == "SignatureRefused"


def test_back_to_an_unsigned_commit_is_no_way_around(site: Site) -> None:
    """Who accepts that the branch moved back has not accepted what nobody signed."""
    unsigned = site.origin.git("rev-parse", "HEAD")
    standing = site.required()
    mirror = GitMirror(site.folder / "mirror", str(site.origin.folder))
    site.origin.git("reset", "--quiet", "--hard", unsigned)
    assert standing.reconcile().truth.reason == "HistoryRewritten"
    accepting = StandingPolicy(mirror, "main", (Signed(mirror, "main", SystemClock()), Valid()))
    assert accepting.reconcile().truth.reason == "SignatureRefused"


def test_if_who_may_sign_can_not_be_known_a_person_decides(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.required()
    commit(site.origin, OTHER)
    # A later version finds the revision in force invalid.
    monkeypatch.setattr(
        "reconciler.gitops.source.standing_policy.read_repository", lambda *_: Reading((SPOILED,), None)
    )
    standing = site.follow()
    assert standing.status().truth.reason == "AppliedPolicyInvalid"
    status = standing.reconcile()
    assert (status.truth.reason, status.acceptable) == ("SignersUnknown", True)


GOOD = "[GNUPG:] NEWSIG\n[GNUPG:] GOODSIG AA ada\n[GNUPG:] VALIDSIG BB 2026-01-01\n[GNUPG:] TRUST_FULLY 0 always"
SSH = 'Good "git" signature for trusted with ED25519 key SHA256:abc'


@pytest.mark.parametrize(
    ("status", "said", "good"),
    [
        (0, GOOD, True),
        (0, SSH, True),
        (1, GOOD, False),
        (1, SSH, False),
        (0, "", False),
        (0, GOOD.replace("[GNUPG:] GOODSIG AA ada\n", ""), False),
        (0, GOOD.replace("GOODSIG", "EXPKEYSIG"), False),
        (0, GOOD.replace("GOODSIG", "REVKEYSIG"), False),
        (0, GOOD.replace("GOODSIG", "EXPSIG"), False),
        (0, GOOD + "\n[GNUPG:] BADSIG AA ada", False),
        (0, GOOD + "\n" + GOOD, False),
        (0, GOOD + "\n" + SSH, False),
        (0, SSH + "\n" + SSH, False),
        (0, SSH.replace("trusted", "somebody"), False),
        (0, "gpg: Good signature from ada", False),
    ],
)
def test_a_verdict_needs_the_exit_status_and_what_the_program_says(status: int, said: str, good: bool) -> None:
    assert (judge(status, said) == "") is good
