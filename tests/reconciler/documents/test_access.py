"""AccessPolicy documents and the `access` of queues: what they become, and what is wrong with them."""

from __future__ import annotations

import pytest

from reconciler.access.policy import AccessPolicy, IdentitySettings, OidcIssuer, RoleBinding
from solver.model.workload import QueueName
from solver.policy.policy import QueueAccess
from tests.reconciler.documents.repository import POOL, codes, queue, reading

FILES = {
    "policies/a.yaml": queue("a", "{access: {submitters: ['group:vision', 'user:ada'], admins: ['user:lead']}}"),
    "cluster-state/big.yaml": POOL,
}


def access(spec: str, name: str = "access") -> str:
    return f"apiVersion: quorate.dev/v1\nkind: AccessPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_a_policy_is_compiled_beside_what_rounds_read() -> None:
    spec = (
        "{identity: {oidc: [{issuer: 'https://id.example', audience: quorate, userClaim: email, groupsClaim: groups}], "
        "tokens: none}, groups: {vision: [ada]}, roles: [{role: viewer, subjects: ['group:*']}, "
        "{role: admin, subjects: ['user:ada'], queues: [a]}]}"
    )
    compiled = reading(FILES | {"policies/x.yaml": access(spec)}).checked()
    assert compiled.operations.access == AccessPolicy(
        IdentitySettings((OidcIssuer("https://id.example", "quorate", "email", "groups"),), "none"),
        {"vision": ("ada",)},
        (RoleBinding("viewer", ("group:*",)), RoleBinding("admin", ("user:ada",), (QueueName("a"),))),
        origin="policies/x.yaml:3",
    )
    assert compiled.policy.queues[0].access == QueueAccess(("group:vision", "user:ada"), ("user:lead",))


def test_who_may_submit_does_not_change_what_rounds_decide() -> None:
    without = FILES | {"policies/a.yaml": queue("a", "{}")}
    assert reading(FILES).checked().policy.digest == reading(without).checked().policy.digest
    assert reading(without).checked().operations.access is None


CLIENT = "{identity: {oidc: [{issuer: 'https://i.example', audience: q, %s}]}}"


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("{}", []),
        ("{roles: [{role: viewer, subjects: ['group:*'], queues: [b]}]}", [("x.yaml:4:63", "unknown-queue")]),
        ("{breakGlass: {maxDuration: 8h}}", []),
        ("{breakGlass: {maxDuration: 0s}}", [("x.yaml:4:34", "malformed")]),
        ("{breakGlass: {}}", []),
        ("{roles: [{role: root, subjects: ['group:*']}]}", [("x.yaml:4:23", "unknown-value")]),
        ("{roles: [{role: viewer, subjects: [ada]}]}", [("x.yaml:4:42", "malformed")]),
        ("{roles: [{role: viewer, subjects: ['user:*']}]}", [("x.yaml:4:42", "malformed")]),
        ("{roles: [{role: viewer, subjects: []}]}", [("x.yaml:4:41", "out-of-range")]),
        ("{groups: {'a b': [ada]}}", [("x.yaml:4:17", "malformed")]),
        ("{identity: {oidc: [{issuer: 'http://id.example', audience: q}]}}", [("x.yaml:4:35", "insecure-issuer")]),
        ("{identity: {oidc: [{issuer: 'https://u@id.example', audience: q}]}}", [("x.yaml:4:35", "insecure-issuer")]),
        ("{identity: {oidc: [{issuer: 'file:///keys', audience: q}]}}", [("x.yaml:4:35", "insecure-issuer")]),
        ("{identity: {oidc: [{issuer: 'http://127.0.0.1:8', audience: q}]}}", []),
        (
            "{identity: {oidc: [{issuer: 'https://i.example', audience: q, jwksUrl: 'http://i.example'}]}}",
            [("x.yaml:4:78", "insecure-issuer")],
        ),
        (
            "{identity: {oidc: [{issuer: 'https://i.example', audience: q}, {issuer: 'https://i.example', audience: q}]}}",
            [("x.yaml:4:79", "duplicate-issuer")],
        ),
        ("{identity: {passwords: []}}", [("x.yaml:4:19", "unknown-field")]),
        (CLIENT % "clientId: c, scopes: [groups], sessionDuration: 24h", []),
        (CLIENT % "clientId: c, sessionDuration: 25h", [("x.yaml:4:99", "out-of-range")]),
        (CLIENT % "sessionDuration: 8h", [("x.yaml:4:69", "missing-field")]),
        (CLIENT % "scopes: [groups]", [("x.yaml:4:69", "missing-field")]),
        (CLIENT % "clientId: ''", [("x.yaml:4:79", "invalid-value")]),
        (CLIENT % "clientId: c, scopes: ['a b']", [("x.yaml:4:91", "malformed")]),
        (CLIENT % "clientSecret: s", [("x.yaml:4:69", "unknown-field")]),
        (
            CLIENT % "clientId: c}, {issuer: 'https://i.example/', audience: r, clientId: d",
            [("x.yaml:4:137", "second-client")],
        ),
    ],
)
def test_problems_are_found_in_their_place(spec: str, problems: list[tuple[str, str]]) -> None:
    assert codes(FILES | {"policies/x.yaml": access(spec)}) == problems


ADA = "{name: ada, ssh: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEnBPAwHzbx6gXwJ4OKQPOuaMnHpuiIzP/cuJMBZ1R6D ada@laptop}"
SHORT = "{name: bob, ssh: ssh-ed25519 AAAA}"


@pytest.mark.parametrize(
    ("commits", "problems"),
    [
        (f"{{signatures: required, signers: [{ADA}], forgeKeys: []}}", []),
        ("{signatures: required}", [("x.yaml:4:30", "no-signers")]),
        (f"{{signatures: required, forgeKeys: [{ADA}]}}", [("x.yaml:4:30", "no-signers")]),
        ("{signatures: always}", [("x.yaml:4:30", "unknown-value")]),
        (f"{{signers: [{ADA}], forgeKeys: [{ADA}]}}", [("x.yaml:4:159", "duplicate-signer")]),
        ("{signers: [{name: ada}]}", [("x.yaml:4:28", "one-key")]),
        ("{signers: [{name: ada, ssh: a, openpgp: b}]}", [("x.yaml:4:28", "one-key")]),
        (f"{{signers: [{SHORT}]}}", [("x.yaml:4:45", "unfit-key")]),
        ("{signers: [{name: a, ssh: 'ssh-dss AAAA'}]}", [("x.yaml:4:43", "unfit-key")]),
        ("{signers: [{name: a, ssh: 'ssh-ed25519 !!'}]}", [("x.yaml:4:43", "unfit-key")]),
        ('{signers: [{name: a, ssh: "ssh-ed25519 AAAA\\neve ssh-ed25519 AAAA"}]}', [("x.yaml:4:43", "unfit-key")]),
        ("{signers: [{name: a, ssh: '-----BEGIN OPENSSH PRIVATE KEY-----'}]}", [("x.yaml:4:43", "unfit-key")]),
        ("{signers: [{name: a, openpgp: '-----BEGIN PGP PRIVATE KEY BLOCK-----'}]}", [("x.yaml:4:47", "unfit-key")]),
        ("{signers: [{name: a, openpgp: AAAA}]}", [("x.yaml:4:47", "unfit-key")]),
    ],
)
def test_keys_that_are_none_are_found_before_the_merge(commits: str, problems: list[tuple[str, str]]) -> None:
    assert codes(FILES | {"policies/x.yaml": access(f"{{commits: {commits}}}")}) == problems


def test_a_repository_has_one() -> None:
    files = {f"policies/{name}.yaml": access("{}", name) for name in ("one", "two")}
    assert codes(FILES | files) == [("two.yaml:2:7", "second-access-policy")]


def test_a_subject_of_a_queue_says_what_it_is() -> None:
    assert codes({"policies/a.yaml": queue("a", "{access: {submitters: [vision]}}")}) == [("a.yaml:4:30", "malformed")]


def test_a_secret_of_a_client_has_a_place_outside_git() -> None:
    files = FILES | {"policies/x.yaml": access(CLIENT % "clientId: c, clientSecret: hunter2")}
    (problem,) = reading(files).problems
    assert "quorate run --client-secret ISSUER=FILE" in problem.fix
    assert "hunter2" not in str(problem)
