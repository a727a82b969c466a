"""Anchors of the audit chain as tags of a repository: annotated, or signed with the key that Git's configuration names.

They are made and read in a clone of the person who runs the command, with that person's own Git and configuration.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import msgspec

from reconciler.model.audit import AuditAnchor
from solver.model.document import decode, encode

PREFIX: Final = "quorate-audit/"
_TIMEOUT_S: Final = 120.0
_SIGNED: Final = "-----BEGIN "


class AuditTagError(Exception):
    """Git can't make, read or verify the tags. The message has place, problem and fix."""


def add_tag(repository: Path, anchor: AuditAnchor, *, sign: bool) -> str:
    """Tag the commit that is checked out; returns the tag's name. It is still to be pushed. Raises AuditTagError."""
    name = PREFIX + str(anchor.at).replace(":", "-")
    _git(repository, "tag", "--sign" if sign else "--annotate", "--message", encode(anchor).decode(), name)
    return name


def tagged_anchors(repository: Path, *, signed: bool) -> tuple[AuditAnchor, ...]:
    """The anchors that tags of a clone have; `signed`: each has to have a signature that Git trusts. Raises AuditTagError."""
    names = _git(repository, "for-each-ref", "--format=%(refname:strip=2)", f"refs/tags/{PREFIX}").split()
    return tuple(_anchor(repository, name, signed=signed) for name in names)


def _anchor(repository: Path, name: str, *, signed: bool) -> AuditAnchor:
    if signed:
        _git(repository, "verify-tag", "--", name)
    said = _git(repository, "for-each-ref", "--format=%(contents)", f"refs/tags/{name}")
    try:
        return decode(said.partition(_SIGNED)[0].strip(), AuditAnchor)
    except msgspec.MsgspecError as error:
        raise AuditTagError(
            f"{repository}: the tag {name} is no anchor ({error}). Find out from its tagger what it is, and delete it"
        ) from error


def _git(repository: Path, *arguments: str) -> str:
    try:
        ran = subprocess.run(
            ("git", "-C", str(repository), *arguments),  # noqa: S607  (the Git of the person who runs this)
            capture_output=True,
            check=True,
            text=True,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split()) or f"it ended with {error.returncode}"
        raise AuditTagError(
            f"{repository}: git {arguments[0]}: {said}. See that this is a clone, and try it there"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AuditTagError(
            f"{repository}: git {arguments[0]} can't be run ({error}). See that Git is installed"
        ) from error
    return ran.stdout
