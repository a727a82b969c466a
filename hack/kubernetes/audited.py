"""Compares what an account asked of an API server, by its audit log, with what roles allow it: nothing missing or too much.

`python -m hack.kubernetes.audited AUDIT_LOG` prints the difference to the shipped roles; exit code 1 where there is one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hack.kubernetes.shipped import ACCOUNT, base_objects

IMPLIED = {("resource.k8s.io", "resourceclaims/binding"): ("resource.k8s.io", "resourceclaims/status")}
"""Rights that the API server asks for beside that of the request, and of which its audit log says nothing."""


ALMIGHTY = "system:masters"


class Right(NamedTuple):
    """One verb on one kind, as RBAC grants it. `resource` has the subresource: pods/binding. `namespace`, `name`: "" is any."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        which = f" {self.name}" if self.name else ""
        return f"{self.verb} {'.'.join(filter(None, (self.resource, self.group)))}{which}{where}"


class Comparison(NamedTuple):
    """`unused`: granted, and never asked for. `missing`: asked for, and not granted; each once, without names of objects."""

    unused: tuple[Right, ...]
    missing: tuple[Right, ...]


def rights_of(objects: Iterable[Mapping[str, Any]], account: str = ACCOUNT) -> frozenset[Right]:
    """What bindings among these objects grant to a service account (its full user name).

    Raises ValueError for a rule with `*`, or for addresses instead of resources: those can't be compared with what is used.
    """
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    granted: set[Right] = set()
    for (kind, _), each in by_name.items():
        if kind in ("RoleBinding", "ClusterRoleBinding") and account in map(_user_name, each.get("subjects", ())):
            role = by_name[each["roleRef"]["kind"], each["roleRef"]["name"]]
            namespace = each["metadata"]["namespace"] if kind == "RoleBinding" else ""
            granted.update(right for rule in role["rules"] for right in _rights(rule, namespace))
    return frozenset(granted)


def used_by(lines: Iterable[str], account: str = ACCOUNT) -> frozenset[Right]:
    """What an account has asked for, granted or not, by the lines of an audit log; every namespace and name by itself.

    What it asked as one of system:masters too is left out: roles are not asked then.
    """
    return frozenset(right for line in lines for right in _asked(json.loads(line), account))


def compared(granted: Iterable[Right], used: Iterable[Right]) -> Comparison:
    """What of the one is not in the other."""
    granted, used = frozenset(granted), frozenset(used)
    unused = [right for right in granted if not any(_covers(right, use) for use in _with_implied(used))]
    missing = {use._replace(name="") for use in used if not any(_covers(right, use) for right in granted)}
    return Comparison(tuple(sorted(unused)), tuple(sorted(missing)))


def _user_name(subject: Mapping[str, str]) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return subject["name"]


def _rights(rule: Mapping[str, Sequence[str]], namespace: str) -> Iterator[Right]:
    words = [*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]]
    if "*" in words or "nonResourceURLs" in rule:
        raise ValueError(f"{rule}: names each verb, group and resource")
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", ("",)):
                    yield Right(verb, group, resource, namespace, name)


def _asked(event: Mapping[str, Any], account: str) -> Iterator[Right]:
    user = event["user"]
    if user.get("username") == account and ALMIGHTY not in user.get("groups", ()) and "objectRef" in event:
        asked = event["objectRef"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        # RBAC is not asked for the name of what is made: the server may not know it yet.
        name = "" if event["verb"] == "create" and "subresource" not in asked else asked.get("name", "")
        yield Right(event["verb"], asked.get("apiGroup", ""), resource, asked.get("namespace", ""), name)


def _covers(right: Right, use: Right) -> bool:
    return right[:3] == use[:3] and right.namespace in ("", use.namespace) and right.name in ("", use.name)


def _with_implied(used: frozenset[Right]) -> Iterator[Right]:
    yield from used
    for (group, resource), asked in IMPLIED.items():
        yield from (use._replace(group=group, resource=resource) for use in used if use[1:3] == asked)


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 where both are the same, 1 where not, 64 without the name of one file."""
    if len(arguments) != 1:
        print("Usage: python -m hack.kubernetes.audited AUDIT_LOG", file=sys.stderr)
        return 64
    with Path(arguments[0]).open() as log:
        found = compared(rights_of(base_objects()), used_by(log))
    for title, rights in (("granted and never used", found.unused), ("used and not granted", found.missing)):
        print(*(f"{title}: {right}" for right in rights), sep="\n", end="\n" if rights else "")
    return 1 if found.unused or found.missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
