"""The recipe of the container image, as far as it can be judged without a container engine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement

from hack.image_lock import BUILD, IMAGE, PYTHON, RUN, build_wishes, wishes
from reconciler.documents.schemas import data_folder
from tests.house.tracked import ROOT, tracked

KNOWN = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}
PINNED = re.compile(r"(\S+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


class Instruction(NamedTuple):
    name: str
    words: str


def instructions() -> list[Instruction]:
    text = re.sub(r"^#.*\n", "", (IMAGE / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [Instruction(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = [[]]
    for each in instructions():
        found += [[]] if each.name == "FROM" else []
        found[-1].append(each)
    return found


def copied() -> list[str]:
    """What is taken from the checkout."""
    taken = (shlex.split(each.words) for each in instructions() if each.name == "COPY")
    return [source for words in taken if not words[0].startswith("--from") for source in words[:-1]]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_instruction_is_one() -> None:
    assert {each.name for each in instructions()} <= KNOWN
    assert [stage[0].name for stage in stages()[1:]] == ["FROM"] * 3


def test_everything_that_is_copied_is_there_and_let_through() -> None:
    let_through = [
        line[1:] for line in (IMAGE / "Containerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    for source in copied():
        assert tracked(source, f"{source}/*"), source
        assert any(source == each or source.startswith(f"{each}/") for each in let_through), source


def test_everything_that_the_wheel_is_made_of_is_copied() -> None:
    wheel = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    parts = {*wheel["packages"], *wheel["force-include"], "pyproject.toml", project()["project"]["readme"]}
    assert parts <= set(copied())


def test_it_does_not_run_as_root() -> None:
    (user,) = [each.words for each in stages()[-1] if each.name == "USER"]
    (deployment,) = yaml.safe_load_all((ROOT / "deploy/kubernetes/deployment.yaml").read_text())
    security = deployment["spec"]["template"]["spec"]["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}" == "65532:65532"


def test_it_starts_what_was_installed() -> None:
    (install,) = [each.words for each in stages()[1] if each.name == "RUN"]
    (start,) = [each.words for each in stages()[-1] if each.name == "ENTRYPOINT"]
    assert start == f'["{install.split()[-1]}/bin/quorate"]'


def test_the_scripts_are_shell() -> None:
    scripts = [each.words for each in instructions() if each.name == "RUN"]
    for script in (*scripts, (IMAGE / "install.sh").read_text()):
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_all_say_the_same_version() -> None:
    version = project()["project"]["version"]
    assert f"VERSION={version}" in [each.words for each in stages()[-1]]
    chart = yaml.safe_load((ROOT / "deploy/helm/quorate/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert f"image: quorate:{version}\n" in (ROOT / "deploy/kubernetes/deployment.yaml").read_text()


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


@pytest.mark.long
def test_what_the_image_does_makes_a_program_that_runs(tmp_path: Path) -> None:
    """The steps of its build, from the same script: asks the package index for some 50 wheels."""
    subprocess.run([IMAGE / "install.sh", tmp_path / "quorate"], check=True)
    bare = {"PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [tmp_path / "quorate/bin/quorate", "--version"], env=bare, capture_output=True, text=True, check=True
    )
    assert run.stdout == f"quorate {project()['project']['version']}\n"
    served = "import reconciler.server.kubernetes_cluster, reconciler.api.server"
    subprocess.run([tmp_path / "quorate/bin/python", "-c", served], env=bare, cwd=tmp_path, check=True)
    valid = subprocess.run([tmp_path / "quorate/bin/quorate", "validate", ROOT], env=bare, cwd=tmp_path)
    assert valid.returncode == 0
