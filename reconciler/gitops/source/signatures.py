"""Asks of a revision that every commit on the branch's own line since the applied one is signed by a key that counts.

The keys are those of the policy in force, never of the revision that is judged, and those that the server was started with.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.access.commits import Commits, Signer
from reconciler.access.signing_keys import openpgp_public_key, ssh_public_key
from reconciler.control.control import PolicyInForce
from reconciler.gitops.source.floor import read_allowed_signers
from reconciler.gitops.source.keyring import Keys, keyring
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.requirements import RevisionCandidate, RevisionHold, by_admin
from reconciler.model.clock import Clock

REASON: Final = "SignatureRefused"
NOT_ASKED: Final = "its signature was not asked for, since it is the first, and --allowed-signers names no signer"

_STATUS: Final = "[GNUPG:] "
_GOOD_OPENPGP: Final = frozenset({"GOODSIG", "VALIDSIG"})
_BAD_OPENPGP: Final = {
    "REVKEYSIG": "the key was revoked",
    "EXPKEYSIG": "the key has expired",
    "EXPSIG": "the signature has expired",
    "BADSIG": "the signature is not of this commit",
    "ERRSIG": "the key is none of those listed",
    "NO_PUBKEY": "the key is none of those listed",
    "KEYREVOKED": "the key was revoked",
}
"""What gpg may say beside or in place of a good signature, the most telling first. KEYEXPIRED is not among them: it comes for
expired subkeys that have signed nothing, too."""

_GOOD_SSH: Final = 'Good "git" signature for trusted with '


@dataclass(frozen=True, slots=True)
class Signed:
    """The requirement. `allowed` is the file of the server, if it was started with one."""

    mirror: GitMirror
    branch: str
    clock: Clock
    allowed: Path | None = None
    doing: str = "Verifying"

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        """SignatureRefused, or SignersUnknown where the policy that would name them can't be read. Raises GitSourceError."""
        if candidate.commit == candidate.applied:
            return None
        commits = _commits_of(candidate.in_force)
        if candidate.applied is not None and candidate.in_force is None and self.allowed is None:
            message = (
                f"the allowed signers can't be known: {candidate.applied[:12]}, which was applied, is unreadable now. "
                f"To accept {candidate.commit[:12]}, {by_admin(candidate.commit)}."
            )
            return RevisionHold("SignersUnknown", message, acceptable=True)
        if self.allowed is None and commits.signatures == "optional":
            if candidate.applied is None:
                candidate.notes.append(NOT_ASKED)
            return None
        return self._unsigned(candidate, commits)

    def _unsigned(self, candidate: RevisionCandidate, commits: Commits) -> RevisionHold | None:
        """The oldest commit that does not count ends it: a push of thousands costs one look."""
        floor = Keys() if self.allowed is None else read_allowed_signers(self.allowed, self.clock.now())
        people = floor.with_(_keys_of(commits.signers))
        trusted = {False: people, True: people.with_(_keys_of(commits.forge_keys))}
        with ExitStack() as opened:
            rings: dict[bool, dict[str, str]] = {}
            for step in self.mirror.line(candidate.commit, candidate.applied):
                is_merge = step.parents > 1
                if is_merge not in rings:
                    rings[is_merge] = opened.enter_context(keyring(trusted[is_merge]))
                why = judge(*self.mirror.verify(step.commit, rings[is_merge]))
                if why:
                    return RevisionHold(REASON, self._message(candidate, step.commit, why))
        return None

    def _message(self, candidate: RevisionCandidate, refused: str, why: str) -> str:
        since = f"Go back to {candidate.applied[:12]} and push" if candidate.applied else "Push"
        return (
            f"{refused[:12]} is refused: {why}. {since} commits to {self.branch} that are signed by a key of the "
            "AccessPolicy in force (commits) or of --allowed-signers."
        )


def judge(status: int, said: str) -> str:
    """Why `git verify-commit --raw` shows no good signature of a trusted key; "": it shows one."""
    words = [line.removeprefix(_STATUS).split(" ", 1)[0] for line in said.splitlines() if line.startswith(_STATUS)]
    bad = [why for word, why in _BAD_OPENPGP.items() if word in words]
    good_openpgp = not bad and sorted(word for word in words if word in _GOOD_OPENPGP) == sorted(_GOOD_OPENPGP)
    ssh = sum(line.startswith(_GOOD_SSH) for line in said.splitlines())
    if status == 0 and ((good_openpgp and ssh == 0) or (not words and ssh == 1)):
        return ""
    if bad:
        return bad[0]
    return "its signature is not of this commit, or of no key that is listed" if said.strip() else "it is not signed"


def _commits_of(in_force: PolicyInForce | None) -> Commits:
    access = in_force.operations.access if in_force else None
    return access.commits if access else Commits()


def _keys_of(signers: Iterable[Signer]) -> Keys:
    listed = tuple(signers)
    ssh = tuple(ssh_public_key(signer.ssh) for signer in listed if signer.ssh)
    return Keys(ssh, tuple(openpgp_public_key(signer.openpgp) for signer in listed if signer.openpgp))
