"""The file of allowed signers that a server is started with: keys of which signatures are asked for whatever Git says.

OpenSSH's format (`ssh-keygen(1)`, ALLOWED SIGNERS), and armored public keys of OpenPGP below or between its lines.
"""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from reconciler.access.signing_keys import UnfitKeyError, openpgp_public_key, ssh_public_key
from reconciler.gitops.source.errors import GitSourceError
from reconciler.gitops.source.keyring import Keys
from solver.model.quantities import Instant

_ARMORED: Final = re.compile(r"-----BEGIN PGP.*?-----END PGP [A-Z ]+-----[^\n]*\n?", re.DOTALL)
_ONE: Final = r'[a-z-]+(?:="[^"]*")?'
_OPTION: Final = re.compile(r'([a-z-]+)(?:="([^"]*)")?')
_LINE: Final = re.compile(rf'(?:"[^"]*"|[^\s"]+)\s+(?:({_ONE}(?:,{_ONE})*)\s+)?((?:ssh-|ecdsa-|sk-)\S+\s+\S.*)')
_TIMES: Final = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_FIX: Final = 'Write lines such as: ada@example.com namespaces="git" ssh-ed25519 AAAA...'


class AllowedSignersError(GitSourceError):
    """The file can't be read, can be written by others, or says something that is not understood. A person must mend it."""


def read_allowed_signers(path: Path, now: Instant) -> Keys:
    """The keys of the file that are valid now, for Git; there may be none left. Raises AllowedSignersError."""
    text = _read(path)
    armored = tuple(_fit(path, block) for block in _ARMORED.findall(text))
    # Blank lines in place of the blocks keep the numbers of the others.
    rest = _ARMORED.sub(lambda block: "\n" * block[0].count("\n"), text)
    ssh = []
    for number, line in enumerate(rest.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            key = _key_of(line, now, f"{path}:{number}")
            ssh += [key] if key else []
    return Keys(tuple(ssh), armored)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            if stat.S_IMODE(found.st_mode) & 0o022 or found.st_uid not in (0, os.geteuid()):
                fix = "A user who can write it decides which users change the policy: chown it, and chmod 644."
                raise AllowedSignersError(f"{path}: others can write or own this file", fix)
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise AllowedSignersError(f"{path}: can't be read: {why}", "Name a file that the server may read.") from error


def _fit(path: Path, block: str) -> str:
    try:
        return openpgp_public_key(block)
    except UnfitKeyError as error:
        raise AllowedSignersError(f"{path}: {error}", error.fix) from error


def _key_of(line: str, now: Instant, at: str) -> str:
    """The key of a line; "" where it is not for Git, or not now.

    Git would take the time that the commit states, which the holder of an old key can choose; so the time here is now.
    """
    parts = _LINE.fullmatch(line.strip())
    if parts is None:
        raise AllowedSignersError(f"{at}: this is no line of allowed signers", _FIX)
    options = dict(_OPTION.findall(parts[1] or ""))
    unknown = options.keys() - {"namespaces", "valid-after", "valid-before"}
    if unknown:
        # Above all cert-authority: certificates have times of their own, which Git would compare with the commit's.
        raise AllowedSignersError(f"{at}: the option {min(unknown)} is not supported", "List the keys themselves.")
    try:
        key = ssh_public_key(parts[2])
    except UnfitKeyError as error:
        raise AllowedSignersError(f"{at}: {error}", _FIX) from error
    after, before = (_time(options[name], at) if name in options else None for name in ("valid-after", "valid-before"))
    timely = (after is None or now >= after) and (before is None or now < before)
    return key if timely and _is_for_git(options.get("namespaces", "git")) else ""


def _is_for_git(namespaces: str) -> bool:
    return any(each.strip() in ("git", "*") for each in namespaces.split(","))


def _time(written: str, at: str) -> Instant:
    digits = written.removesuffix("Z")
    try:
        parsed = datetime.strptime(digits, _TIMES[len(digits)])
    except (KeyError, ValueError):
        fix = "Write YYYYMMDD or YYYYMMDDHHMMSS, with Z for UTC."
        raise AllowedSignersError(f"{at}: {written!r} is no time", fix) from None
    aware = parsed.replace(tzinfo=UTC) if written.endswith("Z") else parsed.astimezone()
    return Instant(round(aware.timestamp() * 1000))
