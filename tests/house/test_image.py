"""What the container image is made of and how, as far as it can be judged without a container engine."""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from hack import image_debs
from hack.image_debs import Deb
from hack.image_lock import BUILD, IMAGE, PYTHON, RUN, build_wishes, wishes
from hack.krew import a_wheel
from hack.release.deb_files import SNAPSHOTS_VARIABLE, DebFile, fetched, unpacked
from hack.release.image import ACCOUNT, TARGET, compile_alike, image, own_files, root, tried_image
from hack.release.source import Source
from hack.release.version import version
from hack.supply_chain.problem import ProblemError
from reconciler.documents.schemas import data_folder
from reconciler.node.local.runtimes import NoContainersError
from tests.house.tracked import ROOT

PINNED = re.compile(r"(\S+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


ADDED = "root.tar"
SNAPSHOTS = "http://snapshots.example.com/archive"


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def instructions() -> dict[str, str]:
    text = re.sub(r"^#.*\n", "", (IMAGE / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return dict(line.split(maxsplit=1) for line in text.splitlines() if line.strip())


def test_it_is_made_of_what_is_locked_and_of_no_other_image() -> None:
    assert instructions()["FROM"] == "scratch"
    assert instructions()["ADD"] == f"{ADDED} /"
    assert "RUN" not in instructions()


def test_it_does_not_run_as_root() -> None:
    (deployment,) = yaml.safe_load_all((ROOT / "deploy/kubernetes/deployment.yaml").read_text())
    security = deployment["spec"]["template"]["spec"]["securityContext"]
    assert instructions()["USER"] == f"{security['runAsUser']}:{security['runAsGroup']}" == f"{ACCOUNT}:{ACCOUNT}"
    assert f"quorate:x:{ACCOUNT}:{ACCOUNT}:" in etc()["etc/passwd"].content.decode()


def etc() -> dict[str, DebFile]:
    return {file.member.name: file for file in own_files()}


def test_it_starts_what_is_installed() -> None:
    assert instructions()["ENTRYPOINT"] == f'["/{TARGET}/bin/quorate"]'
    assert instructions()["ENV"].split()[0] == f"PATH=/{TARGET}/bin:/usr/bin"


def test_debians_packages_are_those_of_one_moment_for_each_architecture() -> None:
    lock = image_debs.read()
    assert re.fullmatch(r"20\d{6}T\d{6}Z", lock.snapshot)
    for architecture in image_debs.ARCHITECTURES:
        names = [deb.name for deb in lock.of(architecture)]
        assert len(set(names)) == len(names)
        assert set(image_debs.WANTED) <= set(names)
        assert not image_debs.LEFT_OUT & set(names)
    for deb in lock.debs:
        assert re.fullmatch(r"[0-9a-f]{64}", deb.sha256)
        assert deb.path.startswith(("debian/pool/main/", "debian-security/pool/updates/main/"))
        assert deb.path.endswith((f"_{deb.architecture}.deb", "_all.deb"))


def a_deb(**files: str) -> bytes:
    """A package with these files, and a link to the first."""
    control = [("./control", "Package: tool\n")]
    data = [(f"./{path.replace('__', '/')}", text) for path, text in files.items()]
    parts = [("debian-binary", b"2.0\n"), ("control.tar.xz", xz(control)), ("data.tar.xz", xz(data, link=data[0][0]))]
    packed = b"!<arch>\n"
    for name, content in parts:
        packed += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        packed += b"\n" * (len(content) % 2)
    return packed


def xz(files: list[tuple[str, str]], link: str = "") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files:
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        if link:
            member = tarfile.TarInfo("./bin/same")
            member.type, member.linkname = tarfile.LNKTYPE, link
            archive.addfile(member)
    return lzma.compress(packed.getvalue())


def test_files_of_packages_lie_where_debian_12_has_them() -> None:
    found = {file.member.name: file for file in unpacked(a_deb(bin__tool="first", usr__share__x="second"), "tool")}
    assert {name: file.content for name, file in found.items() if file.member.isreg()} == {
        "usr/bin/tool": b"first",
        "usr/share/x": b"second",
        "var/lib/dpkg/status.d/tool": b"Package: tool\n",
    }
    assert found["usr/bin/same"].member.linkname == "usr/bin/tool"


def test_a_package_of_another_hash_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deb = Deb("amd64", "tool", "1", hashlib.sha256(b"right").hexdigest(), "debian/pool/t.deb")
    asked: list[str] = []
    monkeypatch.setenv(image_debs.MIRROR_VARIABLE, "http://debian.example.com/")
    monkeypatch.setenv(SNAPSHOTS_VARIABLE, SNAPSHOTS)
    answers = {
        "http://debian.example.com/debian/pool/t.deb": b"wrong",
        f"{SNAPSHOTS}/debian/20260101T000000Z/pool/t.deb": b"no",
    }

    def opened(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(answers[url])

    monkeypatch.setattr("hack.release.deb_files.urlopen", opened)
    with pytest.raises(ProblemError, match="it has another hash than the lock"):
        fetched(deb, "20260101T000000Z", tmp_path)
    assert (asked, list(tmp_path.iterdir())) == ([*answers], [])
    answers[asked[1]] = b"right"
    assert fetched(deb, "20260101T000000Z", tmp_path) == b"right"
    asked.clear()
    assert (fetched(deb, "20260101T000000Z", tmp_path), asked) == (b"right", [])
    (tmp_path / deb.sha256).write_bytes(b"spoilt")
    assert (fetched(deb, "20260101T000000Z", tmp_path), len(asked)) == (b"right", 2)


def pins(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            found = PINNED.fullmatch(line)
            assert found, f"{line}: not pinned by hash"
            yield found[1], found[2]


@pytest.mark.parametrize(("file", "wanted"), [(RUN, wishes()), (BUILD, build_wishes())])
def test_what_is_installed_is_pinned_as_the_project_asks(file: Path, wanted: tuple[str, ...]) -> None:
    """If this fails, pyproject.toml has changed: run `python -m hack.image_lock`."""
    pinned = dict(pins(file))
    for wish in map(Requirement, wanted):
        name = re.sub(r"[-_.]+", "-", wish.name).lower()
        assert name in pinned, f"{wish}: not pinned"
        assert pinned[name] in wish.specifier, f"{wish}: {pinned[name]} is pinned"


@pytest.mark.skipif(".venv-floors" in sys.prefix, reason="the oldest versions are tested on purpose")
@pytest.mark.skipif(f"{sys.version_info[0]}.{sys.version_info[1]}" != PYTHON, reason=f"the lock is Python {PYTHON}'s")
def test_the_tests_run_on_what_the_image_installs() -> None:
    """If this fails, install anew: `make clean test`."""
    pinned = dict(pins(RUN))
    assert {name: metadata.version(name) for name in pinned} == pinned


def test_what_a_wheel_ships_is_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout it lies elsewhere, so nothing else here would notice."""
    package = tmp_path / "reconciler"
    monkeypatch.setattr("reconciler.documents.schemas.files", lambda _: package)
    shipped_to = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for source, target in shipped_to.items():
        assert (ROOT / source).is_dir()
        (tmp_path / target).mkdir(parents=True)
        assert data_folder(source) == tmp_path / target
    assert {"schemas", "policies", "cluster-state"} <= shipped_to.keys()


def test_code_is_compiled_alike_whatever_the_process_has_loaded(tmp_path: Path) -> None:
    compiled, rare = [], "\x7f"
    for number in ("first", "second"):
        packages = tmp_path / number / "lib"
        packages.mkdir(parents=True)
        (packages / "found.py").write_text(f"RARE = {rare!r}\n")
        compile_alike(packages, tmp_path / number)
        compiled += [file.read_bytes() for file in packages.rglob("*.pyc")]
        sys.intern(rare)  # as a module that is loaded may have it
    assert len(compiled) == 2
    assert compiled[0] == compiled[1]
    assert f"/{TARGET}/lib/found.py".encode() in compiled[0]


@pytest.mark.long
def test_it_is_made_twice_alike_and_runs(tmp_path: Path) -> None:
    """Asks the package index for some 70 wheels, and Debian for some 70 packages where none are kept from before."""
    source = Source(ROOT, version(), "c" * 40, 1_795_958_501)
    wheel = a_wheel(tmp_path)
    made = []
    for number in ("first", "second"):
        (tmp_path / number).mkdir()
        made.append(hashlib.sha256(root(source, wheel, tmp_path / number, "amd64")).hexdigest())
    assert made[0] == made[1]
    (tmp_path / "out").mkdir()
    try:
        image(source, wheel, tmp_path, tmp_path / "out")
        said = tried_image(source)
    except NoContainersError as error:
        pytest.skip(str(error))
    assert said.startswith(f"quorate {version()}, git version ")
