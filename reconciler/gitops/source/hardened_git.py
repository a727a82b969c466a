"""Git as the control plane may run it: it reads no configuration of the machine, runs no hook, filter or helper.

What is fetched was written by others. Nothing of it is ever checked out, and no string from outside becomes an option.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reconciler.gitops.source.errors import GitSourceError, UnsafeUrlError

_GIT_MIN = (2, 31)
"""The first version that takes configuration from GIT_CONFIG_COUNT; an older one would ignore it silently."""

_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.symlinks": "false",
    "core.fsmonitor": "false",
    "core.askPass": "",
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    # Git tidies up after some fetches. In the background it would outlive the control plane.
    "gc.autoDetach": "false",
    "maintenance.autoDetach": "false",
}
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "https:ssh:file",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "LC_ALL": "C",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?!-)[^\s]+")
_SSH_SHORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9._-]*:[^:\s][^\s]*")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


@contextmanager
def git_in(folder: Path, git_dir: Path | None = None) -> Iterator[Any]:
    """GitPython's command wrapper in a folder, hardened; its helper processes end with the block.

    Raises GitSourceError where there is no Git, or too old a one. `git_dir` overrides what a hook's environment says.
    """
    try:
        from git import Git
    except ImportError as error:
        raise GitSourceError("Git is not installed", "Install git 2.31 or newer.") from error
    git = Git(str(folder))
    if tuple(git.version_info[:2]) < _GIT_MIN:
        version = ".".join(map(str, git.version_info))
        raise GitSourceError(f"Git {version} is too old", f"Install git {'.'.join(map(str, _GIT_MIN))} or newer.")
    git.update_environment(**_environment(git_dir))
    try:
        yield git
    finally:
        git.clear_cache()


def safe_url(url: str) -> str:
    """The URL, or the absolute path, if Git may fetch from it; raises UnsafeUrlError."""
    fix = "Use https://HOST/PATH, ssh://HOST/PATH, USER@HOST:PATH, file:///PATH or the path of a repository."
    scheme = _SCHEME.fullmatch(url)
    if scheme and scheme[1] in ("https", "ssh", "file"):
        return url
    if scheme:
        raise UnsafeUrlError(f"the protocol {scheme[1]} is not allowed", fix)
    if _SSH_SHORT.fullmatch(url):
        return url
    if url and url.isprintable() and not url.startswith("-") and Path(url).is_dir():
        return str(Path(url).resolve())
    raise UnsafeUrlError(f"{without_password(url)!r} is neither a URL that is allowed nor a folder", fix)


def without_password(text: str) -> str:
    """The text without what stands before the @ of URLs: it may be a token."""
    return _PASSWORD.sub("", text)


def said(error: Exception) -> str:
    """What Git said when a command failed, on one line and without secrets."""
    stderr = str(getattr(error, "stderr", "") or error).strip().removeprefix("stderr: ").strip("'\n ")
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    fatal = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[0] if lines else "")
    return without_password(fatal.partition(": ")[2] or fatal)


def git_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment that gives Git its configuration: ours, and more."""
    pairs = {**_CONFIG, **more}
    environment = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for index, (key, value) in enumerate(pairs.items()):
        environment |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return environment


def _environment(git_dir: Path | None) -> dict[str, str]:
    # ssh would ask at the terminal for a host key or a passphrase, and wait.
    ssh = {} if "GIT_SSH_COMMAND" in os.environ else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
    return {**_ENVIRONMENT, **git_environment({}), **ssh, **({"GIT_DIR": str(git_dir)} if git_dir else {})}
