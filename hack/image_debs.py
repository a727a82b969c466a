"""Pins Debian's packages of the container image: which, of which version, by SHA-256, as of a day of Debian's snapshots.

apt resolves for each architecture in a folder of its own, and takes nothing that Debian's archive key has not signed; nothing is
installed. Called by `python -m hack.image_lock`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

LOCK: Final = Path(__file__).parents[1] / "deploy" / "image" / "debian.txt"
ARCHITECTURES: Final = ("amd64", "arm64")
SUITES: Final = (("debian", "bookworm"), ("debian", "bookworm-updates"), ("debian-security", "bookworm-security"))
MIRROR_VARIABLE: Final = "QUORATE_DEBIAN_MIRROR"
KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
WANTED: Final = (
    "base-files",
    "ca-certificates",
    "coreutils",
    "dash",
    "git",
    "gpg",
    "libstdc++6",
    "openssh-client",
    "python3.11",
    "tzdata",
)
"""Git fetches the policy, over ssh too; ssh-keygen and gpg verify signatures of commits. Git starts ssh with a shell.
Wheels of numpy and HiGHS bring all libraries but that of C++."""
LEFT_OUT: Final = frozenset(
    {
        *(
            "adduser",
            "debconf",
            "dpkg",
            "libaudit-common",
            "libaudit1",
            "libcap-ng0",
            "libpam-modules",
            "libpam-modules-bin",
        ),
        *("libpam0g", "libsemanage-common", "libsemanage2", "libsepol2", "passwd", "tar"),
        *("liberror-perl", "libperl5.36", "mawk", "perl", "perl-base", "perl-modules-5.36"),
    }
)
"""What installs software and makes accounts; and Perl, which commands of Git ask for that nothing here calls."""


class NoMirrorError(Exception):
    """Nobody has said where Debian's packages are."""


class Deb(NamedTuple):
    """`path`: below an archive's root, such as debian/pool/main/d/dash/dash_0.5.12-2_amd64.deb."""

    architecture: str
    name: str
    version: str
    sha256: str
    path: str


class DebianLock(NamedTuple):
    """`snapshot`: the moment of Debian's snapshots at which all of them are there, such as 20261129T000000Z."""

    snapshot: str
    debs: tuple[Deb, ...]

    def of(self, architecture: str) -> tuple[Deb, ...]:
        """What goes into the image of an architecture, by name."""
        return tuple(deb for deb in self.debs if deb.architecture == architecture)


def read(file: Path = LOCK) -> DebianLock:
    """The lock. Raises ValueError for a line that is none of it."""
    snapshot, debs = "", []
    for line in file.read_text().splitlines():
        if line.startswith("# Snapshot "):
            snapshot = line.split()[2]
        elif line and not line.startswith("#"):
            debs.append(Deb(*line.split()))
    return DebianLock(snapshot, tuple(debs))


def mirror() -> str:
    """The URL below which `debian` and `debian-security` lie: what the variable says, else what apt asks. Raises NoMirrorError."""
    if told := os.environ.get(MIRROR_VARIABLE):
        return told.rstrip("/")
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    known = _ran(asked).split() if shutil.which("apt-get") else []
    for uri in known:
        if uri.rstrip("/").endswith("/debian"):
            return uri.rstrip("/").removesuffix("/debian")
    raise NoMirrorError(f"no mirror of Debian is known here: set {MIRROR_VARIABLE}")


def locked(snapshot: str) -> str:
    """The lock of today's packages. Raises CalledProcessError where apt finds no answer, and NoMirrorError."""
    debs = sorted(deb for architecture in ARCHITECTURES for deb in _resolved(architecture))
    head = f"# Made by `python -m hack.image_lock`. Debian 12, what is wanted: {' '.join(WANTED)}.\n# Snapshot {snapshot}\n"
    return head + "".join(f"{' '.join(deb)}\n" for deb in debs)


def _resolved(architecture: str) -> Iterator[Deb]:
    with tempfile.TemporaryDirectory() as folder:
        options = _options(Path(folder), architecture)
        _ran(["apt-get", *options, "update"])
        listed = _ran(["apt-get", *options, "install", "--yes", "--print-uris", *WANTED])
        files = re.findall(r"^'(\S+)' (\S+) \d+ \S*$", listed, re.MULTILINE)
        names = [file.split("_")[0] for _, file in files]
        told = _ran(["apt-cache", *options, "show", "--no-all-versions", *names])
        # /debian/pool/... and /debian-security/pool/...: which archive a file is of is said by its address alone.
        paths = {
            path.partition("/")[2]: path for path in (unquote(uri).removeprefix(f"{mirror()}/") for uri, _ in files)
        }
        for paragraph in told.strip().split("\n\n"):
            fields = dict(re.findall(r"^(Package|Version|SHA256|Filename): (\S+)$", paragraph, re.MULTILINE))
            if fields["Package"] not in LEFT_OUT:
                path = paths[fields["Filename"]]
                yield Deb(architecture, fields["Package"], fields["Version"], fields["SHA256"], path)


def _options(folder: Path, architecture: str) -> list[str]:
    for each in ("state/lists/partial", "cache/archives/partial"):
        (folder / each).mkdir(parents=True)
    (folder / "status").touch()
    sources = "".join(f"deb [signed-by={KEYS}] {mirror()}/{root} {suite} main\n" for root, suite in SUITES)
    (folder / "sources.list").write_text(sources)
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "0",
        "Acquire::Languages": "none",
    }
    return [f"-o{key}={value}" for key, value in settings.items()]


def _ran(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
