"""Real keys of ssh-keygen and gpg, and commits that are signed with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hack.hostile.origin import Origin


def ran(*command: str, said: str = "", **environment: str) -> str:
    """What a program prints; raises `CalledProcessError` where it fails."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, input=said, check=True, capture_output=True, text=True
    )
    return done.stdout


class SshKey:
    """A pair of keys in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / name
        ran("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@example.com", "-f", str(self.file))

    @property
    def public(self) -> str:
        """The line of it that others list."""
        return self.file.with_suffix(".pub").read_text().strip()

    def signing(self) -> tuple[str, ...]:
        """The options of git under which a commit is signed with it."""
        settings = (f"user.signingKey={self.file}", "gpg.format=ssh", "commit.gpgSign=true")
        return tuple(part for setting in settings for part in ("-c", setting))


class GpgKey:
    """A pair of keys in a home of its own.

    `expires`: as `gpg --quick-gen-key` takes it; `faked`: the time it believes in; `called`: whose it says it is.
    """

    def __init__(self, folder: Path, name: str, expires: str = "never", faked: str = "", called: str = "") -> None:
        self.home = folder / f"gnupg-{name}"
        self.home.mkdir(mode=0o700)
        self.faked = faked
        (self.home / "gpg.conf").write_text("batch\npinentry-mode loopback\npassphrase ''\n")
        self.gpg("--quick-gen-key", called or f"{name}@example.com", "ed25519", "sign", expires)
        listed = self.gpg("--with-colons", "--list-keys")
        self.fingerprint = next(line for line in listed.splitlines() if line.startswith("fpr")).split(":")[9]

    def gpg(self, *arguments: str, said: str = "") -> str:
        """What gpg prints in this home, at the time that it believes in."""
        time = ("--faked-system-time", self.faked) if self.faked else ()
        return ran("gpg", "--passphrase", "", *time, *arguments, said=said, GNUPGHOME=str(self.home))

    @property
    def public(self) -> str:
        """The armored key that others list."""
        return self.gpg("--armor", "--export", self.fingerprint)

    def revoked(self, folder: Path) -> str:
        """The public key as its owner publishes it when it is revoked; who has a copy can still sign with it."""
        home = str(folder / "gnupg-publishes")
        Path(home).mkdir(mode=0o700)
        ran("gpg", "--import", said=self.public, GNUPGHOME=home)
        kept = (self.home / "openpgp-revocs.d" / f"{self.fingerprint}.rev").read_text()
        ran("gpg", "--import", said=kept[kept.index(":---") :].replace(":---", "---", 1), GNUPGHOME=home)
        published = ran("gpg", "--armor", "--export", self.fingerprint, GNUPGHOME=home)
        ran("gpgconf", "--kill", "gpg-agent", GNUPGHOME=home)
        return published

    def close(self) -> None:
        """End the agent that holds the secret key."""
        ran("gpgconf", "--kill", "gpg-agent", GNUPGHOME=str(self.home))

    def signing(self) -> tuple[str, ...]:
        """The options of git under which a commit is signed with it."""
        program = self.home / "program"
        time = f" --faked-system-time {self.faked}" if self.faked else ""
        program.write_text(f"#!/bin/sh\nGNUPGHOME='{self.home}' exec gpg --passphrase ''{time} \"$@\"\n")
        program.chmod(0o700)
        settings = (f"user.signingKey={self.fingerprint}", f"gpg.program={program}", "commit.gpgSign=true")
        return tuple(part for setting in settings for part in ("-c", setting))


def commit(origin: Origin, files: dict[str, str], *signing: str) -> str:
    """The next commit of main, signed or not."""
    origin.write(files)
    origin.git("add", "--all")
    origin.git(*signing, "commit", "--quiet", "--allow-empty", "--message=change")
    return origin.git("rev-parse", "HEAD")


def replaced(origin: Origin, raw: str) -> str:
    """Main is now this commit, given as the text of the object."""
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=origin.folder, input=raw, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    origin.git("reset", "--quiet", "--hard", made)
    return made


def stripped(raw: str) -> str:
    """A commit's text without its signature."""
    head, _, message = raw.partition("\n\n")
    kept, inside = [], False
    for line in head.splitlines():
        inside = line.startswith("gpgsig ") or (inside and line.startswith(" "))
        kept += [] if inside else [line]
    return "\n".join(kept) + "\n\n" + message
