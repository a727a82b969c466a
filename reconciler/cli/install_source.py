"""Where CI is to install Quorate from: what was named, or where this installation itself came from.

Never the bare name: on a public index any user may register it, and what they put there would run in CI.
"""

from __future__ import annotations

import re
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

_SAFE: Final = r"[A-Za-z0-9._~:/@%+-]+"
"""Of a URL that is written into a file which others read as lines, words and comments."""
_GIT: Final = re.compile(rf"git\+(https|ssh)://{_SAFE}@[0-9a-f]{{40}}(#subdirectory={_SAFE})?")
_WHEEL: Final = re.compile(rf"https://{_SAFE}\.whl#sha256=[0-9a-f]{{64}}")
_INDEX: Final = re.compile(rf"https://{_SAFE}")
_FORMS: Final = (
    "a Git URL with its commit (git+https://HOST/REPOSITORY@COMMIT), a wheel with its hash (https://HOST/FILE.whl#sha256=HASH), "
    "the file of a wheel, or an index of packages that has it (https://HOST/simple)"
)


class InstallSource(NamedTuple):
    """The lines of a requirements file (pip's documentation, "Requirements File Format"); `wheel` is to be put beside it."""

    lines: tuple[str, ...]
    wheel: Path | None = None


class UnknownSourceError(Exception):
    """An installation that doesn't say where it came from, or came from where CI could not follow; the message says why."""


def named_source(text: str, folder: str) -> InstallSource:
    """The source that a user names; a wheel's file will lie in `folder`. Raises ValueError, with what may be said instead."""
    if text.endswith(".whl") and "://" not in text:
        return _copied(Path(text), folder)
    if _GIT.fullmatch(text) or _WHEEL.fullmatch(text):
        return InstallSource((f"quorate @ {text}",))
    if text.startswith("git+"):
        raise ValueError(f"{text} doesn't name a commit; a branch or tag can be moved. Write {_FORMS}.")
    if urlsplit(text).path.endswith(".whl"):
        raise ValueError(f"{text} has no hash; what is there can be exchanged. Write {_FORMS}.")
    if _INDEX.fullmatch(text):
        return InstallSource((f"--index-url {text}", f"quorate=={version('quorate')}"))
    raise ValueError(f"{text} is no place to install from. Write {_FORMS}.")


class _VcsInfo(msgspec.Struct):
    vcs: str
    commit_id: str


class _ArchiveInfo(msgspec.Struct):
    hashes: dict[str, str] = {}


class _DirectUrl(msgspec.Struct):
    """What installers note of a distribution that did not come from an index (PyPA specifications, "Recording the Direct URL
    Origin of installed distributions")."""

    url: str
    subdirectory: str = ""
    vcs_info: _VcsInfo | None = None
    archive_info: _ArchiveInfo | None = None


def own_source(folder: str) -> InstallSource:
    """Where this installation came from; a wheel's file will lie in `folder`. Raises UnknownSourceError."""
    noted = distribution("quorate").read_text("direct_url.json")
    if noted is None:
        raise UnknownSourceError("it came from an index of packages, and which one is not on record")
    return source_of(noted.encode(), folder)


def source_of(direct_url: bytes, folder: str) -> InstallSource:
    """What a direct_url.json says. Raises UnknownSourceError."""
    noted = msgspec.json.decode(direct_url, type=_DirectUrl)
    place = urlsplit(noted.url)
    if noted.vcs_info is not None:
        return _of_git(noted.url, noted.vcs_info.commit_id, noted.subdirectory)
    if noted.archive_info is None:
        return _of_checkout(Path(unquote(place.path)))
    if place.scheme == "file":
        try:
            return _copied(Path(unquote(place.path)), folder)
        except ValueError as error:
            raise UnknownSourceError(str(error)) from error
    sha256 = noted.archive_info.hashes.get("sha256", "")
    return _direct(f"{_without_account(noted.url)}#sha256={sha256}", _WHEEL)


def _copied(wheel: Path, folder: str) -> InstallSource:
    if not wheel.is_file():
        raise ValueError(f"the wheel {wheel} is not there")
    if not re.fullmatch(r"quorate-[A-Za-z0-9._+-]+\.whl", wheel.name):
        raise ValueError(f"{wheel} is no wheel of Quorate")
    return InstallSource((f"./{folder}/{wheel.name}",), wheel)


def _of_checkout(folder: Path) -> InstallSource:
    """A folder with the source code: its commit, from where it was cloned, if that can be had there."""
    from git import InvalidGitRepositoryError, NoSuchPathError, Repo

    try:
        repository = Repo(folder, search_parent_directories=True)
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise UnknownSourceError(f"it came from the folder {folder}, which is no Git repository") from error
    with repository:
        if not repository.head.is_valid():
            raise UnknownSourceError(f"it came from {folder}, where nothing is committed")
        commit = repository.head.commit.hexsha
        if repository.is_dirty(untracked_files=False):
            raise UnknownSourceError(f"it came from {folder}, where files were changed since commit {commit[:12]}")
        having = repository.git.for_each_ref("refs/remotes", contains=commit, format="%(refname:lstrip=2)").split()
        if not having:
            raise UnknownSourceError(f"it came from {folder}, whose commit {commit[:12]} is on no remote yet")
        remote = repository.remotes[having[0].split("/")[0]]
        top = Path(repository.working_tree_dir or folder)
        return _of_git(remote.url, commit, folder.resolve().relative_to(top.resolve()).as_posix())


def _of_git(url: str, commit: str, subdirectory: str) -> InstallSource:
    scp = re.fullmatch(r"([\w.-]+@)?([\w.-]+):(?!//)/?(.+)", url)
    reached = f"ssh://{scp[1] or ''}{scp[2]}/{scp[3]}" if scp else _without_account(url)
    part = f"#subdirectory={subdirectory}" if subdirectory not in ("", ".") else ""
    return _direct(f"git+{reached}@{commit}{part}", _GIT)


def _direct(url: str, form: re.Pattern[str]) -> InstallSource:
    if not form.fullmatch(url):
        raise UnknownSourceError(f"it came from {url}, which others can't reach, or which can be changed on the way")
    return InstallSource((f"quorate @ {url}",))


def _without_account(url: str) -> str:
    """An https URL as others may read it: what stands before the host may be a password."""
    place = urlsplit(url)
    if place.scheme == "ssh":
        return url
    return place._replace(netloc=place.netloc.rpartition("@")[2]).geturl()
