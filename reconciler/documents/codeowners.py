"""The CODEOWNERS file that follows from `access`: what should stand in it, and what is wrong with the one that is there.

Hosts ask the owners of a changed file for their review. GitHub and GitLab take the last line that matches, Gitea all that do; so
of ours each says everybody. A file without a line of its own is that of its folder, and never without an owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from reconciler.access.ownership import admins_everywhere, file_of, queue_files
from reconciler.access.policy import ANYBODY, AccessPolicy, CodeOwners, Forge
from reconciler.documents.clusters import INVENTORY, OVERRIDES
from reconciler.documents.repository import Compiled
from reconciler.model.problem import START, Problem, SourceLocation, problem_at
from solver.policy.policy import Policy

PLACES: Final[Mapping[Forge, tuple[str, ...]]] = {
    "github": (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"),
    "gitlab": ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"),
    "gitea": ("CODEOWNERS", "docs/CODEOWNERS", ".gitea/CODEOWNERS"),
}
"""Where each host looks; the first file that is there counts."""

BEGIN: Final = "# quorate: begin"
END: Final = "# quorate: end"
_HEAD = f"{BEGIN}. `quorate codeowners --write` writes from here on what the access of policies/ says: change that."
_FOOT = f"{END}. A line below this one would count instead of those above."

_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")

Handles = frozenset[str]
Clusters = Mapping[str | None, Compiled]
"""What each cluster's files say; one without a name is None."""


class CodeOwnersFile(NamedTuple):
    """A CODEOWNERS file as it is: where, and what stands in it."""

    path: str
    text: str


def terms_of(clusters: Clusters) -> CodeOwners:
    """How the host calls each subject. Where clusters differ, the first that says something speaks for all of them."""
    said = (compiled.operations.access for compiled in clusters.values())
    return next((access.code_owners for access in said if access and access.code_owners.handles), CodeOwners())


def section(clusters: Clusters, path: str) -> str:
    """The part of the CODEOWNERS file at `path` that follows from access."""
    forge = terms_of(clusters).forge
    rules = [f"{_pattern(pattern, forge)} {' '.join(sorted(handles))}" for pattern, handles in _rules(clusters, path)]
    return "\n".join([_HEAD, *rules, _FOOT]) + "\n"


def with_section(text: str, wanted: str) -> str:
    """A CODEOWNERS file with our part as it should be: in its old place, or at the end."""
    before, found, after = _split(text)
    if not found:
        return text + ("\n" if text and not text.endswith("\n\n") else "") + wanted
    return before + wanted + after


def code_owner_problems(clusters: Clusters, written: CodeOwnersFile | None) -> Iterator[Problem]:
    """What keeps the repository's host from asking the reviewers that access names; warnings, since rounds do not depend on it."""
    if not terms_of(clusters).handles:
        return
    yield from sorted(set(_unable(clusters)))
    if written is None:
        path = PLACES[terms_of(clusters).forge][0]
        yield _warning(path, START, "codeowners-missing", "there is no such file, so no reviews are asked for")
        return
    before, found, after = _split(written.text)
    place = SourceLocation(before.count("\n") + 1, 1)
    if found != section(clusters, written.path):
        said = "is not what access says" if found else "does not have what access says"
        yield _warning(written.path, place, "codeowners-outdated", f"the file {said}")
    for number, line in enumerate(after.splitlines(), place.line + found.count("\n")):
        if line.strip() and not line.startswith("#"):
            fix = "Move the line above those that `quorate codeowners` writes."
            message = "this line counts before those that follow from access"
            yield problem_at(written.path, SourceLocation(number, 1), "codeowners-overridden", message, fix, "warning")
            return


def _warning(path: str, place: SourceLocation, code: str, message: str) -> Problem:
    return problem_at(path, place, code, message, "Run `quorate codeowners --write`, and commit the file.", "warning")


def _split(text: str) -> tuple[str, str, str]:
    """What stands before our part, our part, and what stands after it; all of it is before where there is none."""
    lines = text.splitlines(keepends=True)
    begin = next((index for index, line in enumerate(lines) if line.startswith(BEGIN)), None)
    if begin is None:
        return text, "", ""
    end = next((index for index, line in enumerate(lines) if index > begin and line.startswith(END)), len(lines) - 1)
    return "".join(lines[:begin]), "".join(lines[begin : end + 1]), "".join(lines[end + 1 :])


def _rules(clusters: Clusters, path: str) -> Iterator[tuple[str, Handles]]:
    """Patterns and their owners, folders before files. What clusters share has the owners that own it in all of them."""
    everywhere, shared = _everywhere(clusters)
    if shared:
        for folder in (path, f"{INVENTORY}/", f"{OVERRIDES}/", "policies/"):
            yield folder, shared
    for name, handles in everywhere.items():
        if handles and handles != shared:
            yield f"{INVENTORY}/{name}/", handles
            yield f"{OVERRIDES}/{name}/", handles
    files: dict[str, Handles] = {}
    for name, compiled in clusters.items():
        for file, subjects in queue_files(compiled.policy, _access(compiled)).items():
            owners = _handles(clusters, subjects) | everywhere[name]
            files[file] = files.get(file, owners) & owners
    for file, owners in sorted(files.items()):
        if owners - shared and _PLAIN.fullmatch(file):
            yield file, owners


def _everywhere(clusters: Clusters) -> tuple[dict[str | None, Handles], Handles]:
    """The owners of all files of each cluster, and those in every one."""
    of = {name: _handles(clusters, admins_everywhere(_access(compiled))) for name, compiled in clusters.items()}
    return of, frozenset.intersection(*of.values())


def _pattern(path: str, forge: Forge) -> str:
    """From the root, in the host's syntax: Gitea has regular expressions, with doubled backslashes."""
    if forge != "gitea":
        return f"/{path}"
    return path.replace(".", r"\\.") + ".*" * path.endswith("/")


def _unable(clusters: Clusters) -> Iterator[Problem]:
    """Subjects that the host can't be told of."""
    known = terms_of(clusters).handles
    for compiled in clusters.values():
        access = _access(compiled)
        if access and not _everywhere(clusters)[1]:
            fix = "Give a user the role admin without `queues`, and a handle in codeOwners.handles."
            message = "no user that is admin everywhere has a handle, so most files have no owner"
            yield _at(access.origin, "no-code-owner", message, fix)
        named = [(queue.origin, queue.access.admins) for queue in compiled.policy.queues]
        admins = [binding.subjects for binding in (access.roles if access else ()) if binding.role == "admin"]
        for origin, subjects in (*named, *((access.origin, each) for each in admins if access)):
            for subject in sorted(set(subjects) - known.keys() - {ANYBODY}):
                fix = f"Add {subject} to codeOwners.handles of the AccessPolicy."
                yield _at(origin, "no-handle", f"{subject} is admin here, and has no handle", fix)
        for file in sorted(queue_files(compiled.policy, access)):
            if not _PLAIN.fullmatch(file):
                fix = "Rename it: letters, digits, dots, hyphens and underscores."
                yield problem_at(file, START, "codeowners-name", "CODEOWNERS can't name this file", fix, "warning")
        yield from _beside_queues(compiled, access)


def _beside_queues(compiled: Compiled, access: AccessPolicy | None) -> Iterator[Problem]:
    """Documents in the file of a queue: the owners of the one may change the other."""
    delegated = {file for file, subjects in queue_files(compiled.policy, access).items() if subjects}
    for origin in sorted(set(_other_origins(compiled))):
        if file_of(origin) in delegated:
            fix = "Give it a file of its own."
            yield _at(origin, "owned-with-queue", "the owners of this queue's file may change this document too", fix)


def _other_origins(compiled: Compiled) -> Iterator[str]:
    policy: Policy = compiled.policy
    operations = compiled.operations
    several = (policy.priority_classes, policy.sharing, policy.mig, policy.reservations)
    of_operations = (operations.checkpoints, operations.retry, operations.alerts)
    yield from (document.origin for documents in (*several, *of_operations) for document in documents)
    yield policy.scheduling.origin
    if operations.access:
        yield operations.access.origin


def _at(origin: str, code: str, message: str, fix: str) -> Problem:
    file, _, line = origin.rpartition(":")
    return problem_at(file, SourceLocation(int(line), 1), code, message, fix, "warning")


def _access(compiled: Compiled) -> AccessPolicy | None:
    return compiled.operations.access


def _handles(clusters: Clusters, subjects: frozenset[str]) -> Handles:
    known = terms_of(clusters).handles
    return frozenset(known[subject] for subject in subjects if subject in known)
