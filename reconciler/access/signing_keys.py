"""Public keys that sign commits, as people paste them: checked without any program, and in one form."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

_SSH_TYPES: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)
_ARMOR: Final = re.compile(
    r"\s*-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[A-Za-z]+: [^\n]*\n)*\n?"
    r"([A-Za-z0-9+/=\n]+)-----END PGP PUBLIC KEY BLOCK-----\s*"
)
_PUBLIC_KEY_PACKET: Final = 6
"""RFC 9580, section 5."""


class UnfitKeyError(ValueError):
    """It is no public key. `fix` says what to write."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


def ssh_public_key(written: str) -> str:
    """`TYPE BASE64` of a key as `ssh-keygen` writes it, without its comment. Raises UnfitKeyError."""
    fix = "Paste the one line of the .pub file, such as ssh-ed25519 AAAA... ada@laptop."
    if "PRIVATE KEY" in written:
        raise UnfitKeyError("this is a private key", f"Make a new pair: this one is known now. {fix}")
    parts = written.split()
    if written.strip().count("\n") or len(parts) < 2 or parts[0] not in _SSH_TYPES:
        raise UnfitKeyError("this is no public key of SSH", f"{fix} Types: {', '.join(_SSH_TYPES)}.")
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except binascii.Error:
        raise UnfitKeyError("the key is not base64", fix) from None
    kind = parts[0].encode()
    if not blob.startswith(len(kind).to_bytes(4, "big") + kind):
        raise UnfitKeyError(f"the key is none of type {parts[0]}", fix)
    return f"{parts[0]} {parts[1]}"


def openpgp_public_key(written: str) -> str:
    """An armored key as `gpg --armor --export` writes it. Raises UnfitKeyError."""
    fix = "Paste what `gpg --armor --export KEY` writes, as a block (openpgp: |)."
    if "PRIVATE KEY" in written:
        raise UnfitKeyError("this is a private key", f"Revoke it: it is known now. {fix}")
    armor = _ARMOR.fullmatch(written.replace("\r\n", "\n"))
    if armor is None:
        raise UnfitKeyError("this is no armored public key of OpenPGP", fix)
    lines = [line for line in armor[1].splitlines() if line and not line.startswith("=")]
    try:
        packets = base64.b64decode("".join(lines), validate=True)
    except binascii.Error:
        raise UnfitKeyError("the key is not base64", fix) from None
    if not packets or _tag(packets[0]) != _PUBLIC_KEY_PACKET:
        raise UnfitKeyError("it does not begin with a public key", fix)
    return armor[0].strip() + "\n"


def _tag(first: int) -> int:
    """The kind of a packet, in either of the two formats of its first byte."""
    return first & 0x3F if first & 0x40 else (first >> 2) & 0x0F
