"""What `make release` makes, and what it refuses to make anything of."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from hack.release import __main__ as release
from hack.release import version as versions
from hack.release.bill import bill
from hack.release.notes import CHANGELOG, notes
from hack.release.packages import CHART, chart
from hack.release.source import Source, checked
from hack.release.version import PLACES, disagreements, state, version
from hack.supply_chain.packages import locked
from hack.supply_chain.problem import ProblemError
from tests.house.tracked import ROOT, tracked

SAID = (
    "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-29\n\n### Added\n\n- A thing ([docs/a.md](docs/a.md#b)).\n"
)
HERE = Source(ROOT, version(), "c" * 40, 1_795_958_501)


def test_every_file_that_states_the_version_states_the_same() -> None:
    assert disagreements() == []


def test_no_other_file_states_the_version_of_a_release() -> None:
    """Only what `python -m hack.release.version` finds would be raised with the next."""
    stating = re.compile(r"quorate(?:-chart-|-image-|[-:]|==)\d+\.\d+\.\d+")
    files = tracked("docs/*.md", "deploy", "reconciler/cli", "README.md")
    found = {path.relative_to(ROOT).as_posix() for path in files if stating.search(path.read_text(errors="replace"))}
    assert found <= PLACES.keys()


def test_the_version_is_written_wherever_it_is_stated(tmp_path: Path) -> None:
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    assert state("9.8.7rc1", tmp_path) == [*PLACES]
    assert (version(tmp_path), disagreements(tmp_path)) == ("9.8.7rc1", [])
    assert yaml.safe_load((tmp_path / CHART / "Chart.yaml").read_text())["appVersion"] == "9.8.7rc1"
    (tmp_path / "docs/install.md").write_text("nothing of it")
    with pytest.raises(ProblemError, match=r"docs/install.md: the version is not stated"):
        disagreements(tmp_path)


@pytest.mark.parametrize("new", ["next", "1", "v1.2.3", "1.2.03"])
def test_what_is_no_version_is_written_nowhere(new: str) -> None:
    ran = CliRunner().invoke(versions.main, [new])
    assert (ran.exit_code, "Name one such as 0.3.0" in ran.output) == (1, True)


def test_notes_are_the_section_without_links_into_the_repository() -> None:
    assert notes(SAID, "1.2.3") == "# Quorate 1.2.3, 2026-11-29\n\n### Added\n\n- A thing (`docs/a.md#b`).\n"
    linked = SAID.replace("A thing", "[Another](https://example.com) [word](docs/c.md)")
    assert "[Another](https://example.com) word (`docs/c.md`)" in notes(linked, "1.2.3")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[1.2.3]", "[1.2.4]", "there is no section 1.2.3. Cut it"),
        (" - 2026-11-29", "", "the section 1.2.3 has no date"),
        ("2026-11-29", "2026-13-29", "the section 1.2.3 has no date"),
        (SAID.partition("29\n")[2], "", "the section 1.2.3 is empty"),
    ],
)
def test_a_version_of_which_nothing_is_told_has_no_notes(old: str, new: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        notes(SAID.replace(old, new), "1.2.3")


Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Of a repository with every file that states a version, all of them committed."""
    repository = tmp_path / "repository"

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout.strip()

    for name in PLACES:
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, repository / name)
    state("1.2.3", repository)
    (repository / CHANGELOG).write_text(SAID)
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "1.2.3")
    return git


def test_what_is_committed_is_released_and_nothing_beside_it(tmp_path: Path, git: Git) -> None:
    source = checked(tmp_path / "repository", tmp_path / "source")
    assert (source.version, source.commit) == ("1.2.3", git("rev-parse", "HEAD"))
    assert source.epoch_s == int(git("log", "-1", "--format=%ct"))
    assert (source.root / CHANGELOG).read_text() == SAID
    git("tag", "--annotate", "--message", "1.2.3", "v1.2.3")
    assert checked(tmp_path / "repository", tmp_path / "again").version == "1.2.3"


@pytest.mark.parametrize("file", ["pyproject.toml", "new.txt"])
def test_a_tree_with_something_that_is_not_committed_is_refused(tmp_path: Path, git: Git, file: str) -> None:
    with (tmp_path / "repository" / file).open("a") as opened:
        opened.write("# more\n")
    with pytest.raises(ProblemError, match=rf"not committed: {file}. Commit it, or put it aside \(`git stash -u`\)"):
        checked(tmp_path / "repository", tmp_path / "source")


def test_files_that_state_another_version_are_refused(tmp_path: Path, git: Git) -> None:
    file = tmp_path / "repository" / CHART / "Chart.yaml"
    file.write_text(file.read_text().replace("appVersion: 1.2.3", "appVersion: 1.2.2"))
    git("commit", "--quiet", "--all", "--message", "half")
    with pytest.raises(ProblemError, match=r"Chart.yaml: another version .* says 1.2.3. Run `python -m hack.release"):
        checked(tmp_path / "repository", tmp_path / "source")


def test_a_version_without_a_section_is_refused(tmp_path: Path, git: Git) -> None:
    (tmp_path / "repository" / CHANGELOG).write_text("# Changelog\n\n## [Unreleased]\n\n- A thing.\n")
    git("commit", "--quiet", "--all", "--message", "no section")
    with pytest.raises(ProblemError, match=r"CHANGELOG.md: there is no section 1.2.3. Cut it: put `## \[1.2.3\] - "):
        checked(tmp_path / "repository", tmp_path / "source")


def test_a_version_that_has_been_released_is_refused(tmp_path: Path, git: Git) -> None:
    git("tag", "v1.2.3")
    git("commit", "--quiet", "--allow-empty", "--message", "more")
    with pytest.raises(ProblemError, match=r"v1.2.3: this tag is on another commit"):
        checked(tmp_path / "repository", tmp_path / "source")


def test_what_is_refused_leaves_what_was_there(tmp_path: Path, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path / "repository")
    (tmp_path / "repository" / "new").touch()
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "earlier").touch()
    ran = CliRunner().invoke(release.main, ["--out", str(tmp_path / "dist")])
    assert (ran.exit_code, "not committed: new. Commit it" in ran.output) == (1, True)
    assert [file.name for file in (tmp_path / "dist").iterdir()] == ["earlier"]


def test_the_archive_of_the_chart_has_what_its_links_lead_to(tmp_path: Path) -> None:
    with tarfile.open(chart(HERE, tmp_path)) as archive:
        members = archive.getmembers()
    names = [member.name for member in members]
    assert names[0] == "quorate/Chart.yaml"
    own = {path.relative_to(ROOT / CHART).as_posix() for path in tracked(f"{CHART}/*") if not path.is_symlink()}
    linked = {
        f"{link.name}/{path.name}"
        for link in (ROOT / CHART).iterdir()
        if link.is_symlink()
        for path in tracked(f"{link.resolve().relative_to(ROOT)}/*.yaml")
        if path.name != "kustomization.yaml"
    }
    assert {"base/deployment.yaml", "exec/rights.yaml"} <= linked
    assert {name.removeprefix("quorate/") for name in names} == (own | linked) - {".helmignore"}
    assert {(member.mode, member.mtime, member.uname, member.isfile()) for member in members} == {
        (0o644, HERE.epoch_s, "", True)
    }


def the_bill(folder: Path) -> Any:
    return json.loads(bill(HERE, folder).read_text())


def test_the_bill_names_every_package_with_hash_and_licence(tmp_path: Path) -> None:
    said = the_bill(tmp_path)
    assert {each["name"]: each["version"] for each in said["components"]} == {
        package.name: package.version for package in locked()
    }
    for each in said["components"]:
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["hashes"]
        assert each["licenses"]
    needs = {each["ref"]: each.get("dependsOn", []) for each in said["dependencies"]}
    (typed,) = [each["bom-ref"] for each in said["components"] if each["name"] == "typing-extensions"]
    assert typed in needs[next(each for each in needs if each.startswith("pkg:pypi/sqlalchemy@"))]
    reached, left = set(), [f"quorate@{version()}"]
    while left:
        reached.add(each := left.pop())
        left += set(needs[each]) - reached
    assert reached == needs.keys()  # Everything is there for a reason.


def test_the_bill_is_as_cyclonedx_wants_it(tmp_path: Path) -> None:
    text = bill(HERE, tmp_path).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_checksums_are_read_by_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    (tmp_path / release.SUMS).write_text(release.sums(tmp_path))
    ran = subprocess.run(["sha256sum", "--check", release.SUMS], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout == "a: OK\nb: OK\n"


@pytest.mark.thorough
def test_the_same_commit_gives_the_same_files(tmp_path: Path) -> None:
    """Unpacked in another folder, at another time, in files of another order and with other times of their own."""
    made = []
    listed = tracked(".")
    for number, files in enumerate((listed, listed[::-1])):
        root, target = tmp_path / f"source-{number}", tmp_path / f"made-{number}"
        target.mkdir()
        for path in files:
            (root / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path.relative_to(ROOT), follow_symlinks=False)
        if f"## [{version()}] - " not in (text := (root / CHANGELOG).read_text()):
            (root / CHANGELOG).write_text(text.replace("## [Unreleased]", f"## [{version()}] - 2026-11-29"))
        release.packages_in(HERE._replace(root=root), tmp_path / f"way-{number}", target)
        made.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in target.iterdir()})
    assert made[0] == made[1]
    assert len(made[0]) == 6
