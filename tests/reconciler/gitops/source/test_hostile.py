"""What a repository or its URL may try: read files of the host, run commands, stand for something else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.gitops.source.errors import GitSourceError, UnknownRevisionError, UnsafeUrlError
from reconciler.gitops.source.hardened_git import safe_url, without_password
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.tree import read_revision
from tests.reconciler.gitops.source.origin import QUEUE, Origin


def refused(origin: Origin, tmp_path: Path) -> list[tuple[str, str]]:
    """File and code of what the newest revision has that is not read; fetched and read locally say the same."""
    mirror = GitMirror(tmp_path / "mirror", str(origin.folder))
    fetched = mirror.read(mirror.fetch("main"))
    assert fetched == read_revision(origin.folder, "main")
    assert [path for path in fetched.files.contents if "team" not in path] == []
    return [(problem.file, problem.code) for problem in fetched.files.refused]


def test_a_symbolic_link_is_not_followed(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("secret: 1")
    (origin.folder / "policies" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    origin.commit()
    assert refused(origin, tmp_path) == [("policies/link.yaml", "symlink")]


def test_a_folder_that_is_a_link_is_not_followed(origin: Origin, tmp_path: Path) -> None:
    (origin.folder / "cluster-state").symlink_to("/etc")
    origin.commit()
    assert refused(origin, tmp_path) == [("cluster-state", "symlink")]


def test_a_submodule_is_not_fetched(origin: Origin, tmp_path: Path) -> None:
    origin.write({".gitmodules": '[submodule "x"]\n\tpath = policies/x\n\turl = ../elsewhere\n'})
    origin.commit()
    origin.commit_entry("160000", "policies/x", origin.git("rev-parse", "HEAD"))
    assert refused(origin, tmp_path) == [("policies/x", "submodule")]


def test_an_lfs_pointer_is_not_taken_for_a_document(origin: Origin, tmp_path: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 7\n"
    origin.commit({"policies/big.yaml": pointer, ".gitattributes": "*.yaml filter=lfs\n"})
    assert refused(origin, tmp_path) == [("policies/big.yaml", "lfs-pointer")]


def test_a_file_name_that_would_steer_a_terminal_is_refused(origin: Origin, tmp_path: Path) -> None:
    origin.commit({"policies/\x1b[2J.yaml": "a: 1"})
    assert refused(origin, tmp_path) == [("policies/\\x1b[2J.yaml", "file-name")]


def test_a_file_name_that_is_not_text_is_refused(origin: Origin, tmp_path: Path) -> None:
    (origin.folder / "policies" / os.fsdecode(b"\xff.yaml")).write_text("a: 1")
    origin.commit()
    assert [code for _, code in refused(origin, tmp_path)] == ["file-name"]


def test_files_outside_the_folders_are_not_read_and_executables_are_just_files(origin: Origin, tmp_path: Path) -> None:
    origin.commit({"elsewhere/secret.yaml": "a: 1", "policies/nested/team.yaml": QUEUE % 1})
    (origin.folder / "policies" / "nested" / "team.yaml").chmod(0o755)
    origin.commit()
    assert refused(origin, tmp_path) == []
    assert "policies/nested/team.yaml" in read_revision(origin.folder, "main").files.contents


def test_hooks_and_configuration_of_the_host_run_nothing(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    script = tmp_path / "hooks" / "reference-transaction"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    configuration = tmp_path / "gitconfig"
    configuration.write_text(
        f"[core]\n\thooksPath = {script.parent}\n\tfsmonitor = {script}\n[init]\n\ttemplateDir = {tmp_path}\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))

    mirror = GitMirror(tmp_path / "mirror", str(origin.folder))
    mirror.mark_applied(mirror.fetch("main"))
    read_revision(origin.folder, "main")

    assert not ran.exists()
    assert not (tmp_path / "mirror" / "hooks").exists()


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch ran'",
        "ext::sh",
        "--upload-pack=touch ran",
        "-u",
        "fd::17",
        "http://example.com/policy",
        "git://example.com/policy",
        "ssh://-oProxyCommand=touch/x",
        "transport::https://example.com/x",
        "https://example.com/a b",
        "me@-oProxyCommand=x:y",
        "me@host::x",
        "a\nb",
        "/does/not/exist",
        "",
    ],
)
def test_urls_that_could_do_more_than_fetch_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeUrlError) as refusal:
        GitMirror(tmp_path / "mirror", url)
    assert "https://HOST/PATH" in refusal.value.fix
    assert not (tmp_path / "mirror").exists()


@pytest.mark.parametrize(
    "url", ["https://example.com/policy.git", "ssh://git@example.com:22/policy", "git@example.com:org/policy.git"]
)
def test_urls_that_fetch_are_accepted(url: str) -> None:
    assert safe_url(url) == url


def test_a_password_in_a_url_is_not_shown() -> None:
    assert without_password("can't fetch https://me:hunter2@example.com/x") == "can't fetch https://example.com/x"


@pytest.mark.parametrize("branch", ["-x", "a..b", "--upload-pack=x", "main:refs/heads/y", "", "a b"])
def test_branch_names_never_become_options(branch: str, origin: Origin, tmp_path: Path) -> None:
    with pytest.raises(UnknownRevisionError):
        GitMirror(tmp_path / "mirror", str(origin.folder)).fetch(branch)


@pytest.mark.parametrize("revision", ["--all", "nowhere", "main^{tree}:", "a\x1b", ""])
def test_revisions_never_become_options(revision: str, origin: Origin) -> None:
    with pytest.raises(UnknownRevisionError):
        read_revision(origin.folder, revision)


def test_any_revision_of_a_local_repository_can_be_read(origin: Origin) -> None:
    origin.git("checkout", "--quiet", "-b", "branch")
    newer = origin.commit({"policies/team.yaml": QUEUE % 2})

    assert read_revision(origin.folder, "branch").commit == newer
    assert read_revision(origin.folder / "policies", "branch~1") == read_revision(origin.folder, "main")


def test_a_folder_that_is_no_repository_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GitSourceError, match="is no Git repository"):
        read_revision(tmp_path, "main")


def test_what_a_cluster_has_of_its_own_is_guarded_alike(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("secret: 1")
    (origin.folder / "clusters" / "eu" / "policies").mkdir(parents=True)
    (origin.folder / "clusters" / "eu" / "policies" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (origin.folder / "clusters" / "us").symlink_to("/etc")
    origin.commit()
    assert refused(origin, tmp_path) == [("clusters/eu/policies/link.yaml", "symlink"), ("clusters/us", "symlink")]
