"""The container image of a release: Debian's packages and Python's wheels by the hashes of two locks, and the wheel of Quorate.

No command runs inside it while it is made, so one machine makes the images of all architectures. `python -m hack.release.image`
makes it of a checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Final

import click

from hack.image_debs import ARCHITECTURES, DebianLock, read
from hack.image_lock import LIBC, MACHINES, PYTHON
from hack.krew import a_wheel
from hack.release.bill import LOCK
from hack.release.deb_files import DebFile, fetched, unpacked
from hack.release.source import Source
from hack.release.version import ROOT, version
from hack.supply_chain.problem import ProblemError
from reconciler.node.local.podman import find_podman
from reconciler.node.local.runtimes import NoContainersError

DEBIAN: Final = "deploy/image/debian.txt"
CONTAINERFILE: Final = "deploy/image/Containerfile"
BUILDERS: Final = ("podman", "buildah")
TARGET: Final = "opt/quorate"
ACCOUNT: Final = 65532
_ETC: Final = {
    "etc/passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\nquorate:x:{ACCOUNT}:{ACCOUNT}::/nonexistent:/usr/sbin/nologin\n",
    "etc/group": f"root:x:0:\nquorate:x:{ACCOUNT}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_NOT_SHIPPED: Final = ("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/lintian/", "usr/share/info/")
_PODMAN_FAILED: Final = 125
_TRIALS: Final = (
    ("/opt/quorate/bin/quorate", "--version"),
    (
        "/opt/quorate/bin/python",
        "-c",
        "import reconciler.server.kubernetes_cluster, reconciler.api.server, highspy, psycopg",
    ),
    ("/usr/bin/git", "--version"),
    ("/usr/bin/gpg", "--version"),
    ("/usr/bin/sh", "-c", "ssh -V"),
)
_BUNDLE: Final = "etc/ssl/certs/ca-certificates.crt"


@click.command()
@click.option(
    "--arch", "architectures", multiple=True, type=click.Choice(ARCHITECTURES), default=("amd64",), show_default=True
)
def main(architectures: tuple[str, ...]) -> None:
    """Make the image of the checkout as it is, committed or not, in build/image, and load it as quorate:VERSION."""
    commit, epoch_s = _output(["git", "-C", str(ROOT), "log", "-1", "--format=%H %ct"]).split()
    source = Source(ROOT, version(), commit, int(epoch_s))
    out = ROOT / "build" / "image"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            wheel = a_wheel(Path(folder))
            for architecture in architectures:
                click.echo(os.path.relpath(image(source, wheel, Path(folder), out, architecture)))
        except ProblemError as error:
            sys.exit(f"error: {error}")


def image(source: Source, wheel: Path, folder: Path, target: Path, architecture: str = "amd64") -> Path:
    """An archive that `podman load` reads. Raises ProblemError where it can't be made here, with what is lacking."""
    builder = next((path for path in map(shutil.which, BUILDERS) if path), None)
    if builder is None:
        raise ProblemError("the image", "neither podman nor buildah is installed", "Install one of both.")
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        raise ProblemError("the image", f"it has Python {PYTHON}, and this is another", f"Run it with Python {PYTHON}.")
    context = folder / f"image-{architecture}"
    context.mkdir()
    (context / "root.tar").write_bytes(root(source, wheel, context, architecture))
    file = target / f"quorate-image-{source.version}-{architecture}.oci.tar"
    _build(Path(builder), source, context, architecture, file)
    return file


def tried_image(source: Source) -> str:
    """What `quorate --version` and `git --version` say in it, on a file system that can't be written to, as on Kubernetes.

    Raises NoContainersError where containers can't be run here, and ProblemError where it does not work in one.
    """
    podman = find_podman()
    limits = [f"--ulimit={name}=1024:1024" for name in ("nofile", "nproc")]
    closed = ["--network=none", "--read-only", "--cap-drop=all", "--pull=never", *limits]
    said = []
    for program, *arguments in _TRIALS:
        command = [*podman.program, "run", "--rm", *closed, f"--entrypoint={program}", f"quorate:{source.version}"]
        ran = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if ran.returncode == _PODMAN_FAILED:
            raise NoContainersError(f"podman can't run containers here: {ran.stderr.strip()[-300:]}")
        if ran.returncode:
            told = ran.stderr.strip()[-500:]
            raise ProblemError("the image", f"`{program} {' '.join(arguments)}` in it: {told}", "Mend it.")
        said += ran.stdout.splitlines()[:1]
    return ", ".join(said)


def root(source: Source, wheel: Path, folder: Path, architecture: str) -> bytes:
    """The file system, as a tar file: the same for the same commit and architecture."""
    lock = read(source.root / DEBIAN)
    files = {file.member.name: file for file in _system(lock, architecture)}
    for file in (*_certificates(files), *own_files(), *_quorate(source, wheel, folder / "quorate", architecture)):
        files[file.member.name] = file
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted({*files, *_folders(files)}):
            member, content = files.get(path) or _entry(path, tarfile.DIRTYPE, mode=0o755)
            member.mtime, member.uid, member.gid, member.uname, member.gname = source.epoch_s, 0, 0, "", ""
            member.mode &= 0o1777  # nothing runs as somebody else
            member.pax_headers = {}
            archive.addfile(member, BytesIO(content))
    return packed.getvalue()


def _system(lock: DebianLock, architecture: str) -> Iterator[DebFile]:
    for deb in lock.of(architecture):
        for file in unpacked(fetched(deb, lock.snapshot), deb.name):
            if not file.member.name.startswith(_NOT_SHIPPED) or file.member.name.endswith("/copyright"):
                yield file
    for name in ("bin", "lib", "lib64", "sbin"):
        yield _entry(name, tarfile.SYMTYPE, link=f"usr/{name}")
    yield _entry("usr/bin/sh", tarfile.SYMTYPE, link="dash")


def _certificates(files: dict[str, DebFile]) -> Iterator[DebFile]:
    """What the script of ca-certificates would make: all authorities in one file."""
    found = sorted(path for path in files if path.startswith("usr/share/ca-certificates/") and path.endswith(".crt"))
    yield _entry(_BUNDLE, content=b"".join(files[path].content for path in found))


def own_files() -> Iterator[DebFile]:
    """What no package brings: accounts, how names are looked up, and a folder for what is there for a while."""
    for path, text in _ETC.items():
        yield _entry(path, content=text.encode())
    yield _entry("tmp", tarfile.DIRTYPE, mode=0o1777)


def _quorate(source: Source, wheel: Path, folder: Path, architecture: str) -> Iterator[DebFile]:
    """A virtual environment of the image's Python, with everything compiled: by content, so that two are alike."""
    packages = folder / "lib" / f"python{PYTHON}" / "site-packages"
    machine = MACHINES[ARCHITECTURES.index(architecture)]
    platforms = [f"--platform=manylinux_{libc}_{machine}" for libc in LIBC]
    chosen = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}", *platforms]
    by_hash = ["--require-hashes", "--requirement", str(source.root / LOCK)]
    for what in ([*chosen, *by_hash], ["--no-index", str(wheel)]):
        _pip(["--target", str(packages), "--no-deps", "--no-compile", "--upgrade", *what])
    shutil.rmtree(packages / "bin", ignore_errors=True)
    compile_alike(packages, folder)
    for path in sorted(packages.rglob("*")):
        if path.is_file():
            name = str(PurePosixPath(TARGET) / path.relative_to(folder))
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            yield _entry(name, content=path.read_bytes(), mode=mode)
    yield _entry(f"{TARGET}/pyvenv.cfg", content=b"home = /usr/bin\ninclude-system-site-packages = false\n")
    yield _entry(f"{TARGET}/bin/python", tarfile.SYMTYPE, link=f"/usr/bin/python{PYTHON}")
    for program, module in (("quorate", "reconciler.cli.main"), ("kubectl-quorate", "reconciler.cli.kubectl.main")):
        text = f"#!/{TARGET}/bin/python\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n"
        yield _entry(f"{TARGET}/bin/{program}", content=text.encode(), mode=0o755)


def compile_alike(packages: Path, folder: Path) -> None:
    """Compile what lies in `packages`, which is `/opt/quorate` below `folder` in the image: the same source, the same bytes.

    In a process of its own that has loaded nothing else. Compiled code says of each string whether it is interned, and strings of
    one character are the whole process's: what interns such a one changes each file that has it.
    """
    where = ["-s", str(folder), "-p", f"/{TARGET}", "--invalidation-mode", "unchecked-hash"]
    command = [sys.executable, "-S", "-P", "-m", "compileall", "-q", "-j", "1", *where, str(packages)]
    _output(command, {"PYTHONHASHSEED": "0"})


def _build(builder: Path, source: Source, context: Path, architecture: str, file: Path) -> None:
    tag = f"quorate:{source.version}"
    arguments = [f"--build-arg=VERSION={source.version}", f"--build-arg=REVISION={source.commit}", f"--tag={tag}"]
    where = [f"--file={source.root / CONTAINERFILE}", f"--timestamp={source.epoch_s}", f"--arch={architecture}"]
    _run([str(builder), "build", "--quiet", "--pull=never", "--layers=false", *arguments, *where, str(context)])
    _run([str(builder), "push", "--quiet", tag, f"oci-archive:{file}:{tag}"])


def _folders(paths: dict[str, DebFile]) -> set[str]:
    return {str(parent) for path in paths for parent in PurePosixPath(path).parents if str(parent) != "."}


def _entry(
    path: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", link: str = "", mode: int = 0o644
) -> DebFile:
    member = tarfile.TarInfo(path)
    member.type, member.size, member.linkname, member.mode = kind, len(content), link, mode
    return DebFile(member, content)


def _pip(arguments: list[str]) -> None:
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments])


def _run(command: list[str]) -> None:
    _output(command)


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ran.returncode:
        said = ran.stderr.strip()[-500:] or f"exit code {ran.returncode}"
        raise ProblemError("the image", f"{Path(command[0]).name} {command[1]}: {said}", "Mend it, or use --no-image.")
    return ran.stdout


if __name__ == "__main__":
    main()
