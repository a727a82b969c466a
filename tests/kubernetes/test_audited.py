"""Rights compared with what was asked, on small logs; and the shipped roles by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes import audited
from hack.kubernetes.audited import Right, compared, rights_of, used_by
from hack.kubernetes.shipped import ACCOUNT, NAMESPACE, base_objects, objects_in

ROLES = """
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods, pods/status], verbs: [list, patch]}]
---
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: quorate, namespace: quorate-system}]
---
kind: Role
metadata: {name: lease, namespace: quorate-system}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [quorate], verbs: [update]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
---
kind: RoleBinding
metadata: {name: lease, namespace: quorate-system}
roleRef: {kind: Role, name: lease}
subjects: [{kind: ServiceAccount, name: quorate, namespace: quorate-system}, {kind: User, name: ada}]
---
kind: Role
metadata: {name: lent-to-nobody, namespace: quorate-system}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
"""
LEASES = "coordination.k8s.io"


def asked(verb: str, resource: str, user: str = ACCOUNT, groups: tuple[str, ...] = (), **more: str) -> str:
    who = {"username": user, "groups": groups}
    return json.dumps({"verb": verb, "user": who, "objectRef": {"resource": resource, **more}})


def test_rights_are_those_of_the_roles_that_are_bound() -> None:
    lease = {Right("update", LEASES, "leases", NAMESPACE, "quorate"), Right("create", LEASES, "leases", NAMESPACE)}
    pods = {Right(verb, "", resource) for verb in ("list", "patch") for resource in ("pods", "pods/status")}
    assert rights_of(objects_in(ROLES)) == lease | pods
    assert rights_of(objects_in(ROLES), "ada") == lease


@pytest.mark.parametrize("word", ["apiGroups", "resources", "verbs"])
def test_a_rule_for_everything_can_not_be_compared(word: str) -> None:
    roles = objects_in(ROLES)
    roles[0]["rules"][0][word] = ["*"]
    with pytest.raises(ValueError, match="names each verb"):
        rights_of(roles)


def test_what_was_not_used_and_what_was_not_granted_is_told() -> None:
    log = [
        asked("list", "pods"),
        asked("patch", "pods", subresource="status", namespace="a", name="one"),
        asked("patch", "pods", subresource="status", namespace="b", name="two"),
        asked("create", "leases", apiGroup=LEASES, namespace=NAMESPACE, name="quorate"),
        asked("update", "leases", apiGroup=LEASES, namespace=NAMESPACE, name="other"),
        asked("create", "leases", apiGroup=LEASES, namespace="elsewhere"),
        asked("create", "pods", subresource="binding", namespace="a", name="one"),
        asked("delete", "pods", user="ada", namespace="a", name="one"),
        asked("delete", "pods", groups=("system:masters",), namespace="a", name="one"),
        json.dumps({"verb": "get", "user": {"username": ACCOUNT}, "requestURI": "/version"}),
    ]
    found = compared(rights_of(objects_in(ROLES)), used_by(log))
    assert list(map(str, found.unused)) == [
        "list pods/status",
        "patch pods",
        "update leases.coordination.k8s.io quorate in quorate-system",
    ]
    assert list(map(str, found.missing)) == [
        "create pods/binding in a",
        "create leases.coordination.k8s.io in elsewhere",
        "update leases.coordination.k8s.io in quorate-system",
    ]


def test_a_right_that_the_server_asks_for_by_itself_counts_as_used_with_its_request() -> None:
    claims = "resource.k8s.io"
    granted = {Right("patch", claims, "resourceclaims/binding"), Right("patch", claims, "resourceclaims/status")}
    status = asked("patch", "resourceclaims", subresource="status", apiGroup=claims, namespace="a", name="one")
    assert compared(granted, used_by([status])) == ((), ())
    assert len(compared(granted, ()).unused) == 2


def test_as_a_command_it_says_what_is_too_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "audit.log"
    log.write_text(asked("list", "secrets"))
    assert audited.main([str(log)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "granted and never used: create pods/binding" in said
    assert said[-1] == "used and not granted: list secrets"
    assert audited.main([]) == 64


def test_the_shipped_roles_name_what_they_grant_and_reach_no_secret() -> None:
    granted = rights_of(base_objects())
    assert not [
        right for right in granted if right.resource.startswith(("secrets", "roles", "clusterroles", "serviceaccounts"))
    ]
    everywhere = {
        right.resource for right in granted if not right.namespace and right.verb not in ("get", "list", "watch")
    }
    assert everywhere.isdisjoint({"configmaps", "leases", "deployments", "namespaces"})


def objects_of(kind: str) -> list[dict[str, Any]]:
    return [each for each in base_objects() if each["kind"] == kind]


def test_the_pod_gives_away_nothing_that_it_does_not_need() -> None:
    (deployment,) = objects_of("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
