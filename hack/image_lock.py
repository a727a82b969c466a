"""`python -m hack.image_lock`: pins what the container image is made of, by hash: wheels and Debian's packages.

pip resolves what pyproject.toml asks for, for each platform of the image, and reports which wheels it would take; apt does so for
Debian's packages. Nothing is installed. They ask the index and the mirror that they are set up to ask.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click

from hack import image_debs

ROOT = Path(__file__).parents[1]
IMAGE = ROOT / "deploy" / "image"
RUN, BUILD = IMAGE / "requirements.txt", IMAGE / "build-requirements.txt"
PYTHON = "3.11"
"""As the base image has it, and as the tests run on."""
MACHINES = ("x86_64", "aarch64")
LIBC = ("2_28", "2_17")
"""Of which wheels are made; the base image's is newer."""
HEAD = "# Made by `python -m hack.image_lock`. Wheels for Linux on x86-64 and arm64, Python 3.11.\n"


NOT_IN_ALL = {"otel", "parquet"}
"""Extras that few want, and that are large."""


def wishes() -> tuple[str, ...]:
    """What Quorate needs with all that its extra `all` names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        wish for name, wished in project["optional-dependencies"].items() if name not in NOT_IN_ALL for wish in wished
    ]
    return (*project["dependencies"], *(wish for wish in extras if not wish.startswith(f"{project['name']}[")))


def build_wishes() -> tuple[str, ...]:
    """What makes a wheel of Quorate."""
    return tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"])


def locked(wishes: Iterable[str]) -> str:
    """A requirements file with exactly what is to be installed. Raises CalledProcessError where pip finds no answer."""
    hashes: dict[str, set[str]] = defaultdict(set)
    for machine in MACHINES:
        for pinned, digest in _chosen(wishes, machine):
            hashes[pinned].add(digest)
    lines = (
        f"{pinned}{''.join(f' --hash=sha256:{each}' for each in sorted(hashes[pinned]))}\n" for pinned in sorted(hashes)
    )
    return HEAD + "".join(lines)


def _chosen(wishes: Iterable[str], machine: str) -> Iterable[tuple[str, str]]:
    """NAME==VERSION and SHA-256 of each wheel."""
    platforms = [f"--platform=manylinux_{libc}_{machine}" for libc in LIBC]
    wanted = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}", *platforms]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
        where = ["--ignore-installed", f"--target={folder}", f"--report={report}"]
        subprocess.run([*pip, *where, *wanted, *wishes], check=True)
        for each in json.loads(report.read_text())["install"]:
            name = each["metadata"]["name"].lower().replace("_", "-").replace(".", "-")
            yield f"{name}=={each['metadata']['version']}", each["download_info"]["archive_info"]["hashes"]["sha256"]


@click.command()
@click.option("--debian/--no-debian", default=True, help="Lock Debian's packages, too: needs apt-get.")
def main(debian: bool) -> None:
    """Write the locks in deploy/image."""
    RUN.write_text(locked(wishes()))
    BUILD.write_text(locked(build_wishes()))
    if debian:
        image_debs.LOCK.write_text(image_debs.locked(f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"))


if __name__ == "__main__":
    main()
