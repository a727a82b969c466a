"""A private keyring for one look at signatures: only the keys that are trusted, in a folder that is gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from reconciler.gitops.source.errors import GitSourceError
from reconciler.gitops.source.hardened_git import git_environment

_GPG_CONF: Final = "batch\nno-tty\nno-autostart\nno-auto-key-retrieve\ntrust-model always\nlock-never\n"
"""Nothing is fetched, asked or started: `always` since every key in there was listed by an admin."""

_GPG_LIMIT_S: Final = 60


class Keys(NamedTuple):
    """Trusted public keys: `TYPE BASE64` of SSH, armored ones of OpenPGP."""

    ssh: tuple[str, ...] = ()
    openpgp: tuple[str, ...] = ()

    def with_(self, others: Keys) -> Keys:
        """These and those."""
        return Keys((*self.ssh, *others.ssh), (*self.openpgp, *others.openpgp))


@contextmanager
def keyring(keys: Keys) -> Iterator[dict[str, str]]:
    """The environment in which `git verify-commit` trusts these keys and no others. Raises GitSourceError."""
    try:
        with TemporaryDirectory(prefix="quorate-keys-") as made:
            folder = Path(made)
            allowed = folder / "allowed_signers"
            # Rebuilt from type and key alone: no option or second line of what was pasted gets in here.
            allowed.write_text("".join(f'trusted namespaces="git" {key}\n' for key in keys.ssh), encoding="ascii")
            home = folder / "gnupg"
            home.mkdir(mode=0o700)
            (home / "gpg.conf").write_text(_GPG_CONF, encoding="ascii")
            environment = _environment(allowed, home)
            for key in keys.openpgp:
                _import(key, environment)
            yield environment
    except OSError as error:
        fix = "Make room in the folder for temporary files."
        raise GitSourceError(f"signatures can't be verified: {error.strerror}", fix) from error


def _environment(allowed: Path, home: Path) -> dict[str, str]:
    programs = {"gpg.program": "gpg", "gpg.ssh.program": "ssh-keygen", "gpg.x509.program": os.devnull}
    return {"GNUPGHOME": str(home), **git_environment({"gpg.ssh.allowedSignersFile": str(allowed), **programs})}


def _import(key: str, environment: dict[str, str]) -> None:
    gpg = shutil.which("gpg")
    if gpg is None:
        fix = "Install GnuPG, or list keys of SSH in place of those of OpenPGP."
        raise GitSourceError("keys of OpenPGP are listed, and gpg is not installed", fix)
    try:
        done = subprocess.run(
            [gpg, "--import"],
            input=key.encode(),
            env={**os.environ, **environment},
            capture_output=True,
            timeout=_GPG_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitSourceError("gpg does not end", "Find out what it waits for; it is tried again.") from error
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        fix = "Export it again: gpg --armor --export KEY."
        raise GitSourceError(f"gpg can't import a key that is listed: {''.join(last)}", fix)
