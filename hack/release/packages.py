"""The wheel, the sdist, the chart's archive and kubectl's plugin: the same commit gives the same bytes."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hack import krew
from hack.image_lock import BUILD
from hack.release.source import Source
from hack.supply_chain.problem import ProblemError

CHART: Final = "deploy/helm/quorate"


def build_tools(folder: Path) -> Path:
    """Python with what makes a wheel, in the versions and hashes of the lock: other versions write other bytes."""
    _pip([sys.executable, "-m", "venv", str(folder)])
    python = folder / "bin" / "python"
    options = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--require-hashes"]
    _pip([str(python), "-m", "pip", "install", *options, "--requirement", str(BUILD)])
    return python


def wheel_and_sdist(source: Source, python: Path, target: Path) -> tuple[Path, Path]:
    """Made by hatchling of `python`, whatever else is installed."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(source.epoch_s)}
    command = [str(python), "-m", "hatchling", "build", "--directory", str(target)]
    _pip(command, cwd=source.root, env=environment)
    return target / f"quorate-{source.version}-py3-none-any.whl", target / f"quorate-{source.version}.tar.gz"


def chart(source: Source, target: Path) -> Path:
    """What `helm install` takes, as `helm package` would make it: but that has the clock's time in it."""
    file = target / f"quorate-chart-{source.version}.tgz"
    file.write_bytes(_packed(_chart_files(source.root / CHART), source.epoch_s))
    return file


def plugin(source: Source, wheel: Path, target: Path) -> Path:
    """The archive that krew installs; its manifest needs to know where it will lie: `python -m hack.krew`."""
    file = target / f"{krew.PROGRAM}-{source.version}.tar.gz"
    file.write_bytes(krew.packed(wheel))
    return file


def _chart_files(chart: Path) -> Iterator[tuple[str, Path]]:
    """Links are followed, and what .helmignore names, by whole paths, is left out. Chart.yaml comes first, as helm has it."""
    ignored = {".helmignore", *(chart / ".helmignore").read_text().split()}
    found = [
        (str((Path(folder) / name).relative_to(chart)), Path(folder) / name)
        for folder, _, names in os.walk(chart, followlinks=True)
        for name in names
    ]
    kept = [(name, path) for name, path in found if name not in ignored]
    yield from (
        (f"quorate/{name}", path) for name, path in sorted(kept, key=lambda each: (each[0] != "Chart.yaml", each))
    )


def _packed(files: Iterator[tuple[str, Path]], epoch_s: int) -> bytes:
    content, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, path in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = path.stat().st_size, 0o644, epoch_s
            with path.open("rb") as opened:
                archive.addfile(member, opened)
    with gzip.GzipFile(fileobj=zipped, mode="wb", mtime=0, filename="") as writer:
        writer.write(content.getvalue())
    return zipped.getvalue()


def _pip(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    ran = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        fix = "See whether the package index that pip is set up to ask can be reached."
        raise ProblemError(" ".join(command[1:4]), ran.stderr.strip()[-500:] or "it failed", fix)
