"""The packages that Quorate runs on, as the image's lock names them and this environment has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement

from hack.image_lock import RUN
from hack.supply_chain.problem import ProblemError

_PINNED: Final = re.compile(r"(\S+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


class Package(NamedTuple):
    """`hashes`: SHA-256 of each wheel that the lock allows, one for each platform or one for all."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def stated(self) -> metadata.PackageMetadata:
        """What its own files say of it. Raises ProblemError where this very version is not installed here."""
        return self._installed().metadata

    def needs(self) -> frozenset[str]:
        """The names of what it asks for, whether an extra does or itself. Raises ProblemError as `stated` does."""
        return frozenset(normal(Requirement(text).name) for text in self._installed().requires or ())

    def _installed(self) -> metadata.Distribution:
        try:
            found = metadata.distribution(self.name)
        except metadata.PackageNotFoundError:
            found = None
        if found is None or found.version != self.version:
            has = f"version {found.version}" if found else "none"
            raise ProblemError(
                str(RUN), f"{self.name} {self.version} is locked, {has} is installed", "Run `make clean install`."
            )
        return found


def locked(file: Path = RUN) -> Iterator[Package]:
    """What the image installs, by name. Raises ProblemError for a line that names no version and hash."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            match = _PINNED.fullmatch(line)
            if not match:
                raise ProblemError(f"{file}:{number}", "no version with hashes", "Run `python -m hack.image_lock`.")
            yield Package(match[1], match[2], tuple(re.findall(r"sha256:(\w+)", match[3])))


def normal(name: str) -> str:
    """A package's name as the lock writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()
