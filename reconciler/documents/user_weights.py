"""What is wrong with the weights that a queue gives to users and groups; and what groups come to, since Git names their members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from reconciler.access.policy import AccessPolicy
from reconciler.documents.declarations import Declaration
from reconciler.model.near_names import NearNames
from reconciler.model.problem import Path, Problem, problem_at
from solver.policy.policy import Queue

_WEIGHTS: Final[Path] = ("spec", "users", "weights")
_GROUP_WEIGHTS: Final[Path] = ("spec", "users", "groupWeights")


def with_member_weights(queue: Queue, groups: Mapping[str, Sequence[str]]) -> Queue:
    """The queue with what the members of its groups weigh; the very same where it weighs no group."""
    if queue.users is None or not queue.users.group_weights:
        return queue
    return msgspec.structs.replace(queue, users=queue.users.with_members(groups))


def user_weight_problems(
    queues: Sequence[Declaration[Queue]], access: AccessPolicy | None, is_complete: bool
) -> Iterator[Problem]:
    """All are warnings: which users there are Git does not say. `is_complete`: whether all documents could be read."""
    groups = access.groups if access is not None else {}
    known = _users_in_git(queues, access) if is_complete else frozenset[str]()
    for queue in queues:
        if queue.value.users is not None:
            yield from _kind_problems(queue)
            yield from _slips(queue, known)
            yield from _group_problems(queue, groups) if is_complete else ()


def _users_in_git(queues: Sequence[Declaration[Queue]], access: AccessPolicy | None) -> frozenset[str]:
    """Those that access documents name: as members of groups, and by the roles that they have."""
    subjects = [subject for queue in queues for subject in (*queue.value.access.submitters, *queue.value.access.admins)]
    members: list[str] = []
    if access is not None:
        subjects += [subject for role in access.roles for subject in role.subjects]
        members = [user for users in access.groups.values() for user in users]
    return frozenset(
        [*members, *(subject.removeprefix("user:") for subject in subjects if subject.startswith("user:"))]
    )


def _kind_problems(queue: Declaration[Queue]) -> Iterator[Problem]:
    """Names as `access` writes them, where users alone are meant."""
    for name in queue.value.users.weights if queue.value.users else ():
        kind, _, bare = name.partition(":")
        if kind in ("user", "group") and bare:
            fix = f"Write {bare} alone." if kind == "user" else f"Write {bare} in groupWeights."
            message = f"{name} is weighed as a user of this very name"
            yield _at_key(queue, (*_WEIGHTS, name), "user-with-prefix", message, fix)


def _slips(queue: Declaration[Queue], known: frozenset[str]) -> Iterator[Problem]:
    weights = queue.value.users.weights if queue.value.users else {}
    # One with a weight of its own is not meant by another.
    others = NearNames(known - weights.keys()) if weights.keys() - known else NearNames(())
    for name in sorted(weights.keys() - known):
        meant = others.nearest(name)
        if meant is not None:
            message, fix = f"no document gives access to a user {name}", f"Did you mean {meant}?"
            yield _at_key(queue, (*_WEIGHTS, name), "unknown-user", message, fix)


def _group_problems(queue: Declaration[Queue], groups: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    for name in queue.value.users.group_weights if queue.value.users else ():
        if not groups.get(name):
            near = NearNames(groups).nearest(name)
            message = f"the AccessPolicy lists no members of group {name}: its weight counts for no user"
            fix = (
                f"Did you mean {near}?" if near else "List them in its groups: rounds know no groups that tokens state."
            )
            yield _at_key(queue, (*_GROUP_WEIGHTS, name), "group-without-members", message, fix)


def _at_key(queue: Declaration[Queue], path: Path, code: str, message: str, fix: str) -> Problem:
    return problem_at(queue.file, queue.document.key_place(path), code, message, fix, "warning")
