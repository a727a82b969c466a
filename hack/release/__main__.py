"""`python -m hack.release`: makes a release in dist/, or says what to do first; `make release`."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

import click

from hack.release.bill import bill
from hack.release.image import image, tried_image
from hack.release.notes import CHANGELOG, notes
from hack.release.packages import build_tools, chart, plugin, wheel_and_sdist
from hack.release.source import Source, checked
from hack.release.trial import tried
from hack.release.version import ROOT
from hack.supply_chain.licences import objections
from hack.supply_chain.packages import locked
from hack.supply_chain.problem import ProblemError
from reconciler.node.local.runtimes import NoContainersError

SUMS, NOTES = "SHA256SUMS", "RELEASE-NOTES.md"


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / "dist",
    help="Where it is written; what lies there is replaced.  [default: dist]",
)
@click.option("--try/--no-try", "tries", default=True, help="Install the wheel where nothing is, and run a first job.")
@click.option(
    "--image/--no-image", "with_image", default=True, help="Make the container image, where podman or buildah can."
)
def main(out: Path, tries: bool, with_image: bool) -> None:
    """Make everything that a release is given out as, but upload nothing."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            _release(Path(folder), out, tries, with_image)
        except ProblemError as error:
            sys.exit(f"error: {error}")


def _release(folder: Path, out: Path, tries: bool, with_image: bool) -> None:
    (made := folder / "made").mkdir()
    source = checked(ROOT, folder / "source")
    click.echo(f"Quorate {source.version}, commit {source.commit[:12]}")
    for problem in objections(locked()):
        raise problem
    wheel = packages_in(source, folder, made)
    if tries:
        (folder / "trial").mkdir()
        click.echo(f"tried in a new environment: a first job said {tried(source, wheel, folder / 'trial').strip()!r}")
    else:
        click.echo("SKIPPED: whether the wheel runs, because of --no-try")
    if with_image:
        _image(source, wheel, folder, made)
    else:
        click.echo("SKIPPED: the image, because of --no-image")
    (made / SUMS).write_text(sums(made))
    if out.exists():
        shutil.rmtree(out)
    shutil.copytree(made, out)
    click.echo((out / SUMS).read_text(), nl=False)


def _image(source: Source, wheel: Path, folder: Path, made: Path) -> None:
    """Makes the image and tries it, or says why there is none: a release is whole without one."""
    try:
        file = image(source, wheel, folder, made)
    except ProblemError as error:
        click.echo(f"SKIPPED: the image, because {error}")
        return
    try:
        click.echo(f"{file.name}, tried in a container: {tried_image(source)}")
    except NoContainersError as error:
        click.echo(f"{file.name}; SKIPPED: whether it runs, because {error}")


def packages_in(source: Source, folder: Path, made: Path) -> Path:
    """Everything that the same commit gives byte for byte; returns the wheel. `folder`: for what is needed on the way."""
    wheel, _ = wheel_and_sdist(source, build_tools(folder / "tools"), made)
    chart(source, made)
    plugin(source, wheel, made)
    bill(source, made)
    (made / NOTES).write_text(notes((source.root / CHANGELOG).read_text("utf-8"), source.version), "utf-8")
    return wheel


def sums(folder: Path) -> str:
    """What `sha256sum --check` reads."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


if __name__ == "__main__":
    main()
