"""`quorate codeowners`: printed, written where the host looks, and told by `validate` when it is out of date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reconciler.cli.conftest import Quorate
from tests.reconciler.documents.test_codeowners import ACCESS, FILES, GITHUB, HANDLES
from tests.reconciler.gitops.source.origin import Origin


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Origin(tmp_path / "policy")
    made.commit(FILES)
    return made.folder


def test_it_is_written_and_then_nobody_complains_until_access_changes(quorate: Quorate, folder: Path) -> None:
    before = quorate("validate", str(folder))
    assert (before.exit_code, before.out) == (
        0,
        ".github/CODEOWNERS:1:1: warning[codeowners-missing]: there is no such file, so no reviews are asked for\n"
        "    Run `quorate codeowners --write`, and commit the file.\n0 errors, 1 warning\n",
    )
    printed = quorate("codeowners", str(folder)).out
    assert printed.splitlines()[1:-1] == GITHUB
    assert quorate("codeowners", str(folder), "--write").out == f"wrote {folder}/.github/CODEOWNERS\n"
    assert (folder / ".github" / "CODEOWNERS").read_text() == printed
    assert quorate("validate", str(folder)).out == "valid\n"

    (folder / "policies/access.yaml").write_text((ACCESS % ("github", HANDLES)).replace("[vision]", "[research]"))
    assert "warning[codeowners-outdated]: the file is not what access says" in quorate("validate", str(folder)).out
    assert quorate("codeowners", str(folder), "--write").exit_code == 0
    assert quorate("validate", str(folder)).out == "valid\n"


def test_a_link_is_not_written_through(quorate: Quorate, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (folder / "CODEOWNERS").symlink_to(tmp_path / "victim")
    ran = quorate("codeowners", str(folder), "--write")
    assert (ran.exit_code, "symbolic link" in ran.err) == (1, True)
    assert (tmp_path / "victim").read_text() == "untouched"


def test_without_handles_it_says_where_they_go(quorate: Quorate, folder: Path) -> None:
    (folder / "policies/access.yaml").write_text(ACCESS % ("github", "{}"))
    ran = quorate("codeowners", str(folder))
    assert (ran.exit_code, ran.out) == (1, "")
    assert "codeOwners.handles" in ran.err
