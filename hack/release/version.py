"""The version: pyproject.toml says it, and `python -m hack.release.version 0.3.0` writes it wherever else it has to stand."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from packaging.version import InvalidVersion, Version

from hack.supply_chain.problem import ProblemError

ROOT: Final = Path(__file__).parents[2]
PYPROJECT: Final = "pyproject.toml"
PLACES: Final = {
    PYPROJECT: (r'(?m)^version = "(\S+)"$',),
    "deploy/helm/quorate/Chart.yaml": (r"(?m)^version: (\S+)$", r"(?m)^appVersion: (\S+)$"),
    "deploy/image/Containerfile": (r"(?m)^ARG VERSION=(\S+)$",),
    "deploy/kubernetes/deployment.yaml": (r"image: quorate:(\S+)",),
    "docs/kubernetes-install.md": (r"quorate:([0-9][\w.]*)", r"quorate-image-([0-9][\w.]*)-amd64"),
    "docs/kubernetes-status.md": (r"kubectl-quorate-([0-9][\w.]*)\.tar",),
    "docs/pull-requests.md": (r"rev: v([0-9][\w.]*)",),
    "docs/pull-requests-security.md": (r"quorate-([0-9][\w.]*)-py3", r"quorate==([0-9][\w.]*)"),
    "docs/install.md": (
        r"quorate-([0-9][\w.]*)-py3",
        r"quorate(?:-chart|-image)?-([0-9][\w.]*?)(?:-amd64)?\.(?:tgz|tar|cdx)",
    ),
    "reconciler/cli/init.py": (r"quorate-([0-9][\w.]*)-py3",),
}
"""Each file that states the version, with what surrounds it there."""


def version(root: Path = ROOT) -> str:
    """What pyproject.toml says."""
    return str(tomllib.loads((root / PYPROJECT).read_text())["project"]["version"])


def stated(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Every place, and the version that it states. Raises ProblemError where one of the patterns is nowhere in its file."""
    for name, patterns in PLACES.items():
        text = (root / name).read_text()
        for pattern in patterns:
            found = set(re.findall(pattern, text))
            if not found:
                fix = "Mend PLACES in hack/release/version.py."
                raise ProblemError(name, f"the version is not stated as {pattern}", fix)
            yield from ((name, each) for each in sorted(found))


def disagreements(root: Path = ROOT) -> list[str]:
    """Files that state another version than pyproject.toml."""
    said = version(root)
    return sorted({name for name, each in stated(root) if each != said})


def state(new: str, root: Path = ROOT) -> list[str]:
    """Write the version everywhere; returns the files that changed."""
    changed = []
    for name, patterns in PLACES.items():
        file = root / name
        before = text = file.read_text()
        for pattern in patterns:
            text = re.sub(pattern, lambda match: match[0].replace(match[1], new), text)
        if text != before:
            file.write_text(text)
            changed.append(name)
    return changed


@click.command()
@click.argument("new")
def main(new: str) -> None:
    """Write the version NEW into every file that states it."""
    try:
        known = Version(new)
    except InvalidVersion:
        known = None
    if known is None or str(known) != new or len(known.release) != 3:
        sys.exit(f"error: {new}: not a version. Name one such as 0.3.0 or 0.3.0rc1")
    for name in state(new):
        click.echo(name)


if __name__ == "__main__":
    main()
