"""Commits that are signed, forged, stripped and grafted in every way that the corpus knows, and who may sign."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hack.hostile.keys import GpgKey, SshKey, commit, ran, replaced, stripped
from hack.hostile.origin import QUEUE, Origin
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.requirements import FastForward, Valid
from reconciler.gitops.source.signatures import Signed
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.model.clock import SystemClock

OTHER = {"policies/team.yaml": QUEUE % 2}
"""What is in force where a commit was followed that should not have been."""
_GOOD_SSH = 'Good "git" signature for trusted with ED25519 key SHA256:abc'
_GOOD_OPENPGP = "[GNUPG:] GOODSIG AA ada"


def _indented(key: str) -> str:
    return "".join(f"          {line}\n" for line in key.splitlines())


class People:
    """Who signs, and who is listed: all but bob, the stranger and the liar.

    `folder`: with a short path, since gpg's agent listens on a socket there.
    """

    def __init__(self, folder: Path) -> None:
        self.ada, self.bob, self.forge = (SshKey(folder, name) for name in ("ada", "bob", "forge"))
        self.eve, self.stranger = GpgKey(folder, "eve"), GpgKey(folder, "stranger")
        self.liar = GpgKey(folder, "liar", called=f"{_GOOD_SSH} {_GOOD_OPENPGP}")
        self.expired = GpgKey(folder, "expired", expires="2020-02-01", faked="20200101T000000")
        self.revoked = GpgKey(folder, "revoked")
        listed = {"eve": self.eve.public, "expired": self.expired.public, "revoked": self.revoked.revoked(folder)}
        signers = [f"      - name: {name}\n        openpgp: |\n{_indented(key)}" for name, key in listed.items()]
        self.commits = (
            f"    signers:\n      - {{name: ada, ssh: {self.ada.public}}}\n{''.join(signers)}"
            f"    forgeKeys:\n      - {{name: forge, ssh: {self.forge.public}}}\n"
        )

    def close(self) -> None:
        """End the agents that hold secret keys."""
        for key in (self.eve, self.stranger, self.liar, self.expired, self.revoked):
            key.close()


class Site:
    """A repository, who signs, and a control plane that follows."""

    def __init__(self, folder: Path, origin: Origin, people: People) -> None:
        self.folder, self.origin, self.people = folder, origin, people
        self.ada, self.bob, self.forge = people.ada, people.bob, people.forge
        self.eve, self.stranger = people.eve, people.stranger

    def policy(self, signatures: str = "required") -> str:
        """The AccessPolicy that says who signs."""
        return (
            "apiVersion: quorate.dev/v1\nkind: AccessPolicy\nmetadata: {name: access}\nspec:\n  commits:\n"
            f"    signatures: {signatures}\n{self.people.commits}"
        )

    def follow(self, allowed: Path | None = None) -> StandingPolicy:
        """A control plane that was just started. `allowed`: the file of its --allowed-signers."""
        mirror = GitMirror(self.folder / "mirror", str(self.origin.folder))
        signed = Signed(mirror, "main", SystemClock(), allowed)
        return StandingPolicy(mirror, "main", (FastForward(mirror, "main"), signed, Valid()))

    def required(self) -> StandingPolicy:
        """Following, with signatures required by the revision in force."""
        self.origin.commit({"policies/access.yaml": self.policy()})
        standing = self.follow()
        status = standing.reconcile()
        if status.truth.reason != "Applied":
            raise ValueError(f"the first revision is not in force: {status.truth.message}")
        return standing

    def raw(self) -> str:
        """The newest commit as Git stores it."""
        return self.origin.git("cat-file", "commit", "HEAD") + "\n"

    def sign(self, *signing: str) -> None:
        """The next commit; with no options it is unsigned."""
        commit(self.origin, OTHER, *signing)

    def strip(self) -> None:
        """Signed, and its signature taken away."""
        self.sign(*self.ada.signing())
        replaced(self.origin, stripped(self.raw()))

    def graft(self, key: SshKey | GpgKey) -> None:
        """A good signature, over another commit."""
        self.sign(*key.signing())
        replaced(self.origin, self.raw().replace("\nchange", "\nanother change"))

    def resign(self, of: Callable[[str], str]) -> None:
        """A commit in the place of whose signature there is what `of` makes of a good one."""
        self.sign(*self.ada.signing())
        raw = self.raw()
        header, _, message = stripped(raw).partition("\n\n")
        signature = of(_signature(raw)).strip("\n").replace("\n", "\n ")
        replaced(self.origin, f"{header}\ngpgsig {signature}\n\n{message}")

    def borrow(self) -> None:
        """The signature of the commit before."""
        commit(self.origin, {}, *self.ada.signing())
        before = _signature(self.raw())
        self.resign(lambda _: before)

    def elsewhere(self) -> None:
        """Signed by a key that counts, as a file and not as a commit."""
        self.sign()
        unsigned = self.raw()
        made = ran("ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", str(self.ada.file), said=unsigned)
        header, _, message = unsigned.partition("\n\n")
        signature = made.strip().replace("\n", "\n ")
        replaced(self.origin, f"{header}\ngpgsig {signature}\n\n{message}")

    def substitute(self) -> None:
        """An unsigned commit for which Git shows a signed one, where it looks at refs/replace."""
        self.sign(*self.ada.signing())
        signed = self.origin.git("rev-parse", "HEAD")
        unsigned = replaced(self.origin, stripped(self.raw()))
        self.origin.git("replace", unsigned, signed)

    def hide(self) -> None:
        """An unsigned commit below a signed one."""
        commit(self.origin, {"policies/team.yaml": QUEUE % 9})
        self.sign(*self.ada.signing())

    def add_own_key(self) -> None:
        """The change that would let its author in is signed by nobody who is in."""
        files = {"policies/access.yaml": self.policy().replace(self.ada.public, self.bob.public)}
        commit(self.origin, {**files, **OTHER}, *self.bob.signing())

    def ask_for_nothing(self) -> None:
        """The change after which no signature is needed has none."""
        commit(self.origin, {"policies/access.yaml": self.policy("optional"), **OTHER})

    def merge(self, *signing: str) -> None:
        """A branch of unsigned commits, merged."""
        self.origin.git("checkout", "--quiet", "-b", "side")
        self.sign()
        self.origin.git("checkout", "--quiet", "main")
        self.origin.git(*signing, "merge", "--quiet", "--no-ff", "--message=merge", "side")

    def fast_forward_to_a_merge_into_the_branch(self) -> None:
        """The forge merged main into a branch, and somebody pushed that to main: its first parent is the branch."""
        self.origin.git("checkout", "--quiet", "-b", "side")
        self.sign()
        self.origin.git("checkout", "--quiet", "main")
        commit(self.origin, {"policies/other.yaml": QUEUE.replace("team", "other") % 1}, *self.ada.signing())
        self.origin.git("checkout", "--quiet", "side")
        self.origin.git(*self.forge.signing(), "merge", "--quiet", "--no-ff", "--message=merge", "main")
        self.origin.git("branch", "--force", "main", "side")
        self.origin.git("checkout", "--quiet", "main")


def _signature(raw: str) -> str:
    """What a commit is signed with."""
    header = raw.partition("\n\n")[0].partition("\ngpgsig ")[2]
    lines = header.split("\n")
    last = next((number for number, line in enumerate(lines[1:], 1) if not line.startswith(" ")), len(lines))
    return "\n".join([lines[0], *(line.removeprefix(" ") for line in lines[1:last])])


FOLLOWED: dict[str, Callable[[Site], object]] = {
    "ssh": lambda site: site.sign(*site.ada.signing()),
    "gpg": lambda site: site.sign(*site.eve.signing()),
    "merge by a signer": lambda site: site.merge(*site.ada.signing()),
    "merge by the forge": lambda site: site.merge(*site.forge.signing()),
}
"""Ways that count."""

_NOT_THIS = "of no key that is listed"
REFUSED: dict[str, tuple[Callable[[Site], object], str]] = {
    "unsigned": (Site.sign, "it is not signed"),
    "unknown ssh": (lambda site: site.sign(*site.bob.signing()), _NOT_THIS),
    "unknown gpg": (lambda site: site.sign(*site.stranger.signing()), "none of those listed"),
    "unknown, with a name that looks like a verdict": (
        lambda site: site.sign(*site.people.liar.signing()), "none of those listed",
    ),
    "expired": (lambda site: site.sign(*site.people.expired.signing()), "has expired"),
    "revoked": (lambda site: site.sign(*site.people.revoked.signing()), "was revoked"),
    "stripped": (Site.strip, "it is not signed"),
    "of another commit, ssh": (lambda site: site.graft(site.ada), "not of this commit"),
    "of another commit, gpg": (lambda site: site.graft(site.eve), "not of this commit"),
    "of the commit before": (Site.borrow, "not of this commit"),
    "of a file": (Site.elsewhere, "not of this commit"),
    "cut short": (lambda site: site.resign(lambda good: good[: len(good) // 2]), ""),
    "nothing but its frame": (lambda site: site.resign(lambda good: f"{good[:29]}\n{good[-27:]}"), ""),
    "a verdict in place of a signature": (lambda site: site.resign(lambda _: f"{_GOOD_SSH}\n{_GOOD_OPENPGP}"), ""),
    "replaced by a signed one": (Site.substitute, "it is not signed"),
    "below a signed one": (Site.hide, "it is not signed"),
    "admits itself": (Site.add_own_key, _NOT_THIS),
    "asks for no signature any more": (Site.ask_for_nothing, "it is not signed"),
    "unsigned merge": (Site.merge, "it is not signed"),
    "forge, no merge": (lambda site: site.sign(*site.forge.signing()), _NOT_THIS),
    "forge merge the wrong way round": (Site.fast_forward_to_a_merge_into_the_branch, "it is not signed"),
    "merge by a forge not listed": (lambda site: site.merge(*site.bob.signing()), _NOT_THIS),
}  # fmt: skip
"""Ways that do not, and what is said of the commit."""
