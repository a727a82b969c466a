"""Only commits that a listed key has signed are followed: made with real keys, judged by git, gpg and ssh-keygen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.documents.problem import START, problem_at
from reconciler.documents.repository import Reading
from reconciler.gitsource.mirror import Mirror
from reconciler.gitsource.requirements import FastForward, Valid
from reconciler.gitsource.signatures import NOT_ASKED, Signed, judge
from reconciler.gitsource.standing import StandingPolicy
from tests.gitsource.origin import INVALID, QUEUE, Origin
from tests.gitsource.signing import GpgKey, SshKey, commit, needs_gpg, needs_ssh, replaced, stripped

pytestmark = [needs_ssh, needs_gpg]

SPOILED = problem_at("policies/team.yaml", START, "malformed", "spoiled")
OTHER = {"policies/team.yaml": QUEUE % 2}


def indented(key: str) -> str:
    return "".join(f"          {line}\n" for line in key.splitlines())


class People:
    """Who signs, and who is listed: all but bob and the stranger."""

    def __init__(self, folder: Path) -> None:
        self.ada, self.bob, self.forge = (SshKey(folder, name) for name in ("ada", "bob", "forge"))
        self.eve, self.stranger = GpgKey(folder, "eve"), GpgKey(folder, "stranger")
        self.expired = GpgKey(folder, "expired", expires="2020-02-01", faked="20200101T000000")
        self.revoked = GpgKey(folder, "revoked")
        listed = {"eve": self.eve.public, "expired": self.expired.public, "revoked": self.revoked.revoked(folder)}
        signers = [f"      - name: {name}\n        openpgp: |\n{indented(key)}" for name, key in listed.items()]
        self.commits = (
            f"    signers:\n      - {{name: ada, ssh: {self.ada.public}}}\n{''.join(signers)}"
            f"    forgeKeys:\n      - {{name: forge, ssh: {self.forge.public}}}\n"
        )


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    # A short path: gpg's agent listens on a socket there.
    made = People(tmp_path_factory.mktemp("k"))
    yield made
    for key in (made.eve, made.stranger, made.expired, made.revoked):
        key.close()


class Site:
    """A repository, who signs, and a control plane that follows."""

    def __init__(self, folder: Path, origin: Origin, people: People) -> None:
        self.folder, self.origin, self.people = folder, origin, people
        self.ada, self.bob, self.forge = people.ada, people.bob, people.forge
        self.eve, self.stranger = people.eve, people.stranger

    def policy(self, signatures: str = "required") -> str:
        return (
            "apiVersion: quorate.dev/v1\nkind: AccessPolicy\nmetadata: {name: access}\nspec:\n  commits:\n"
            f"    signatures: {signatures}\n{self.people.commits}"
        )

    def follow(self, allowed: Path | None = None) -> StandingPolicy:
        mirror = Mirror(self.folder / "mirror", str(self.origin.folder))
        signed = Signed(mirror, "main", SystemClock(), allowed)
        return StandingPolicy(mirror, "main", (FastForward(mirror, "main"), signed, Valid()))

    def required(self) -> StandingPolicy:
        """Following, with signatures required by the revision in force."""
        self.origin.commit({"policies/access.yaml": self.policy()})
        standing = self.follow()
        assert standing.reconcile().truth.reason == "Applied", standing.status().truth.message
        return standing

    def raw(self) -> str:
        return self.origin.git("cat-file", "commit", "HEAD") + "\n"

    def strip(self) -> None:
        commit(self.origin, OTHER, *self.ada.signing())
        replaced(self.origin, stripped(self.raw()))

    def graft(self) -> None:
        """A good signature, over another commit."""
        commit(self.origin, OTHER, *self.ada.signing())
        replaced(self.origin, self.raw().replace("\nchange", "\nanother change"))

    def graft_openpgp(self) -> None:
        commit(self.origin, OTHER, *self.eve.signing())
        replaced(self.origin, self.raw().replace("\nchange", "\nanother change"))

    def hide(self) -> None:
        """An unsigned commit below a signed one."""
        commit(self.origin, {"policies/team.yaml": QUEUE % 9})
        commit(self.origin, OTHER, *self.ada.signing())

    def add_own_key(self) -> None:
        """The change that would let its author in is signed by nobody who is in."""
        files = {"policies/access.yaml": self.policy().replace(self.ada.public, self.bob.public)}
        commit(self.origin, {**files, **OTHER}, *self.bob.signing())

    def merge(self, *signing: str) -> None:
        """A branch of unsigned commits, merged."""
        self.origin.git("checkout", "--quiet", "-b", "side")
        commit(self.origin, OTHER)
        self.origin.git("checkout", "--quiet", "main")
        self.origin.git(*signing, "merge", "--quiet", "--no-ff", "--message=merge", "side")

    def fast_forward_to_a_merge_into_the_branch(self) -> None:
        """The forge merged main into a branch, and somebody pushed that to main: its first parent is the branch."""
        self.origin.git("checkout", "--quiet", "-b", "side")
        commit(self.origin, OTHER)
        self.origin.git("checkout", "--quiet", "main")
        commit(self.origin, {"policies/other.yaml": QUEUE.replace("team", "other") % 1}, *self.ada.signing())
        self.origin.git("checkout", "--quiet", "side")
        self.origin.git(*self.forge.signing(), "merge", "--quiet", "--no-ff", "--message=merge", "main")
        self.origin.git("branch", "--force", "main", "side")
        self.origin.git("checkout", "--quiet", "main")


@pytest.fixture
def site(tmp_path: Path, origin: Origin, people: People) -> Site:
    return Site(tmp_path, origin, people)


ACCEPTED: dict[str, Callable[[Site], object]] = {
    "ssh": lambda site: commit(site.origin, OTHER, *site.ada.signing()),
    "gpg": lambda site: commit(site.origin, OTHER, *site.eve.signing()),
    "merge by a signer": lambda site: site.merge(*site.ada.signing()),
    "merge by the forge": lambda site: site.merge(*site.forge.signing()),
}
REFUSED: dict[str, tuple[Callable[[Site], object], str]] = {
    "unsigned": (lambda site: commit(site.origin, OTHER), "it is not signed"),
    "unknown ssh": (lambda site: commit(site.origin, OTHER, *site.bob.signing()), "of no key that is listed"),
    "unknown gpg": (lambda site: commit(site.origin, OTHER, *site.stranger.signing()), "none of those listed"),
    "expired": (lambda site: commit(site.origin, OTHER, *site.people.expired.signing()), "has expired"),
    "revoked": (lambda site: commit(site.origin, OTHER, *site.people.revoked.signing()), "was revoked"),
    "stripped": (Site.strip, "it is not signed"),
    "of another commit, ssh": (Site.graft, "not of this commit"),
    "of another commit, gpg": (Site.graft_openpgp, "not of this commit"),
    "below a signed one": (Site.hide, "it is not signed"),
    "admits itself": (Site.add_own_key, "of no key that is listed"),
    "unsigned merge": (Site.merge, "it is not signed"),
    "forge, no merge": (lambda site: commit(site.origin, OTHER, *site.forge.signing()), "of no key that is listed"),
    "forge merge the wrong way round": (Site.fast_forward_to_a_merge_into_the_branch, "it is not signed"),
    "merge by a forge not listed": (lambda site: site.merge(*site.bob.signing()), "of no key that is listed"),
}


@pytest.mark.parametrize("how", ACCEPTED)
def test_signed_by_who_is_listed(site: Site, how: str) -> None:
    standing = site.required()
    ACCEPTED[how](site)
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
    mirror = Mirror(site.folder / "mirror", str(site.origin.folder))
    site.origin.git("reset", "--quiet", "--hard", unsigned)
    assert standing.reconcile().truth.reason == "HistoryRewritten"
    accepting = StandingPolicy(mirror, "main", (Signed(mirror, "main", SystemClock()), Valid()))
    assert accepting.reconcile().truth.reason == "SignatureRefused"


def test_if_who_may_sign_can_not_be_known_a_person_decides(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.required()
    commit(site.origin, OTHER)
    # A later version finds the revision in force invalid.
    monkeypatch.setattr("reconciler.gitsource.standing.read_repository", lambda *_: Reading((SPOILED,), None))
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
