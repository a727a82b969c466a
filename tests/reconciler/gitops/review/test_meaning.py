"""Documents that rounds do not read, or that become part of others, are compared by meaning too, and say where they stand."""

from __future__ import annotations

from reconciler.documents.files import Files
from reconciler.documents.repository import Compiled, read_repository
from reconciler.gitops.review.meaning import document_changes
from reconciler.model.review_findings import DocumentChange, FieldChange

HEAD = "apiVersion: quorate.dev/v1\nkind: "
FILES = {
    "policies/q.yaml": HEAD + "Queue\nmetadata: {name: q}\nspec: {}\n",
    "cluster-state/n.yaml": HEAD
    + "NodePool\nmetadata: {name: n}\nspec: {gpuType: H100, gpusPerNode: 8, cpu: 96, memory: 1Ti, nodes: {prefix: n, count: 4}}\n",
}
TOPOLOGY = """Topology
metadata: {name: n}
spec:
  pool: n
  domains:
    - {level: rack, name: r1, nodes: [%s]}
    - {level: rack, name: r2, nodes: [%s]}
"""
ACCESS = "AccessPolicy\nmetadata: {name: default}\nspec: {roles: [{role: %s, subjects: [group:ml]}]}\n"


def compiled(**more: str) -> Compiled:
    files = {**FILES, **{path.replace("__", "/") + ".yaml": HEAD + text for path, text in more.items()}}
    return read_repository(Files({path: text.encode() for path, text in files.items()})).checked()


def test_a_node_that_changes_racks_and_a_role_that_changes() -> None:
    before = compiled(**{"cluster-state__t": TOPOLOGY % ("n1, n2", "n3, n4"), "policies__a": ACCESS % "viewer"})
    after = compiled(**{"cluster-state__t": TOPOLOGY % ("n2", "n3, n1, n4"), "policies__a": ACCESS % "operator"})
    assert list(document_changes(before, after)) == [
        DocumentChange(
            "AccessPolicy",
            "changed",
            (FieldChange("roles[0].role", "viewer", "operator"),),
            "policies/a.yaml:3",
        ),
        DocumentChange(
            "Topology n",
            "changed",
            (
                FieldChange("domains[r1].nodes", "n1, n2", "n2"),
                FieldChange("domains[r2].nodes", "n3, n4", "n1, n3, n4"),
            ),
            "cluster-state/t.yaml:3",
        ),
    ]


def test_weights_of_users_are_told_by_their_names() -> None:
    """Also of one who is called as a field is."""
    shared = "Queue\nmetadata: {name: u}\nspec: {users: {fairShare: true, weights: {Ada: 2, name: %s}}}\n"
    before, after = (compiled(policies__u=shared % weight) for weight in (2, 3))
    assert list(document_changes(before, after)) == [
        DocumentChange("Queue u", "changed", (FieldChange("users.weights[name]", "2", "3"),), "policies/u.yaml:3")
    ]


def test_what_groups_come_to_is_no_change_of_the_queue() -> None:
    """A member that joins is a change of the AccessPolicy, and of the policy's digest."""
    shared = "Queue\nmetadata: {name: u}\nspec: {users: {fairShare: true, groupWeights: {leads: 2}}}\n"
    access = "AccessPolicy\nmetadata: {name: access}\nspec: {groups: {leads: [%s]}}\n"
    before, after = (compiled(policies__u=shared, policies__access=access % who) for who in ("ada", "ada, bob"))
    assert [change.document for change in document_changes(before, after)] == ["AccessPolicy"]
    assert before.policy.digest != after.policy.digest


def test_a_document_that_is_gone_says_where_it_stood() -> None:
    before = compiled(
        policies__a=ACCESS % "viewer", policies__other="Queue\nmetadata: {name: other}\nspec: {weight: 2}\n"
    )
    gone = {change.document: (change.change, change.origin) for change in document_changes(before, compiled())}
    assert gone == {
        "AccessPolicy": ("removed", "policies/a.yaml:3"),
        "Queue other": ("removed", "policies/other.yaml:3"),
    }
