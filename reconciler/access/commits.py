"""The signatures that count on commits of the policy: the part `commits` of the AccessPolicy."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document


class Signer(Document, frozen=True):
    """A person or a forge with one public key: of SSH, or armored of OpenPGP. Exactly one of the two is set."""

    name: str
    ssh: str = ""
    openpgp: str = ""


class Commits(Document, frozen=True):
    """`signatures` required: every commit on the way to the next revision is signed by one of `signers`.

    `forge_keys` count on merge commits alone.
    """

    signatures: Literal["required", "optional"] = "optional"
    signers: tuple[Signer, ...] = ()
    forge_keys: tuple[Signer, ...] = ()
