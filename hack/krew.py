"""`python -m hack.krew --url URL`: what krew installs as `kubectl quorate`, and the manifest that names it by checksum."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
KREW = ROOT / "deploy" / "krew"
PROGRAM = "kubectl-quorate"
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
ARCHIVE = f"{PROGRAM}-{VERSION}.tar.gz"


def a_wheel(folder: Path) -> Path:
    """The project's wheel, made in this folder. Raises CalledProcessError."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("quorate-*.whl")
    return wheel


def packed(wheel: Path) -> bytes:
    """The archive: the launcher, the wheel, and the licence that krew wants there. The same files give the same bytes."""
    content, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file, mode in ((ROOT / "LICENSE", 0o644), (KREW / PROGRAM, 0o755), (wheel, 0o644)):
            member = tarfile.TarInfo(file.name)
            member.size, member.mode = file.stat().st_size, mode
            with file.open("rb") as opened:
                archive.addfile(member, opened)
    with gzip.GzipFile(fileobj=zipped, mode="wb", mtime=0, filename="") as writer:
        writer.write(content.getvalue())
    return zipped.getvalue()


def manifest(uri: str, archive: bytes) -> str:
    """The plugin's manifest: deploy/krew/quorate.yaml with the version, where the archive lies, and its checksum."""
    text = (KREW / "quorate.yaml").read_text()
    for name, value in {"VERSION": VERSION, "URI": uri, "SHA256": hashlib.sha256(archive).hexdigest()}.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@click.command()
@click.option("--url", required=True, help="The folder on the web where the archive will lie.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / "build" / "krew",
    help="Where both are written.",
)
def main(url: str, out: Path) -> None:
    """Write the archive and quorate.yaml, and say where."""
    with tempfile.TemporaryDirectory() as folder:
        archive = packed(a_wheel(Path(folder)))
    out.mkdir(parents=True, exist_ok=True)
    (out / ARCHIVE).write_bytes(archive)
    (out / "quorate.yaml").write_text(manifest(f"{url.rstrip('/')}/{ARCHIVE}", archive))
    for name in (ARCHIVE, "quorate.yaml"):
        click.echo(os.path.relpath(out / name))


if __name__ == "__main__":
    main()
