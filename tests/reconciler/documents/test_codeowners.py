"""Who reviews which file: derived from access, written as each host reads it, and compared with the file that is there."""

from __future__ import annotations

import pytest

from reconciler.documents.codeowners import Clusters, CodeOwnersFile, code_owner_problems, section, with_section
from reconciler.documents.files import Files
from reconciler.documents.repository import read_clusters
from tests.reconciler.documents.repository import POOL, queue

HANDLES = "{'group:platform': '@example/platform', 'group:leads': '@example/leads', 'user:ada': '@ada'}"
ACCESS = """\
apiVersion: quorate.dev/v1
kind: AccessPolicy
metadata: {name: access}
spec:
  codeOwners: {forge: %s, handles: %s}
  roles:
    - {role: admin, subjects: ['group:platform']}
    - {role: admin, subjects: ['user:ada'], queues: [vision]}
    - {role: operator, subjects: ['group:leads']}
"""
FILES = {
    "policies/access.yaml": ACCESS % ("github", HANDLES),
    "policies/queues/org.yaml": queue("org", "{}"),
    "policies/queues/research.yaml": queue("research", "{parent: org, access: {admins: ['group:leads']}}"),
    "policies/queues/vision.yaml": queue("vision", "{parent: research}"),
    "policies/queues/vision-a.yaml": queue("vision-a", "{parent: vision}"),
}
PLATFORM = "@example/platform"
GITHUB = [
    f"/.github/CODEOWNERS {PLATFORM}",
    f"/cluster-state/ {PLATFORM}",
    f"/clusters/ {PLATFORM}",
    f"/policies/ {PLATFORM}",
    f"/policies/queues/vision-a.yaml @ada @example/leads {PLATFORM}",
    f"/policies/queues/vision.yaml @example/leads {PLATFORM}",
]
GITEA = [
    rf"\\.gitea/CODEOWNERS {PLATFORM}",
    f"cluster-state/.* {PLATFORM}",
    f"clusters/.* {PLATFORM}",
    f"policies/.* {PLATFORM}",
    rf"policies/queues/vision-a\\.yaml @ada @example/leads {PLATFORM}",
    rf"policies/queues/vision\\.yaml @example/leads {PLATFORM}",
]


def clusters(files: dict[str, str]) -> Clusters:
    readings = read_clusters(Files({path: text.encode() for path, text in files.items()}))
    return {name: reading.checked() for name, reading in readings.items()}


def rules(files: dict[str, str], path: str = ".github/CODEOWNERS") -> list[str]:
    return section(clusters(files), path).splitlines()[1:-1]


def codes(files: dict[str, str], written: str | None) -> list[tuple[str, int, str]]:
    found = code_owner_problems(clusters(files), (written and CodeOwnersFile("CODEOWNERS", written)) or None)
    return [(problem.file, problem.line, problem.code) for problem in found if problem.severity == "warning"]


@pytest.mark.parametrize(
    ("forge", "path", "expected"),
    [("github", ".github/CODEOWNERS", GITHUB), ("gitea", ".gitea/CODEOWNERS", GITEA)],
)
def test_the_file_of_a_queue_is_its_parents_admins(forge: str, path: str, expected: list[str]) -> None:
    """`research` is not its own: what it is guaranteed is its parent's to give. `vision` is research's admins', and so on down."""
    assert rules(FILES | {"policies/access.yaml": ACCESS % (forge, HANDLES)}, path) == expected


def test_what_clusters_share_is_theirs_alone_who_own_it_in_all_of_them() -> None:
    """In eu vision is below org, and somebody else is admin of everything beside platform."""
    eu = (ACCESS % ("github", HANDLES)).replace("'group:platform']}", "'group:platform', 'user:ada']}")
    several = {
        **FILES,
        "cluster-state/eu/pool.yaml": POOL,
        "cluster-state/us/pool.yaml": POOL,
        "clusters/eu/policies/access.yaml": eu,
        "clusters/eu/policies/vision.yaml": queue("vision", "{parent: org}"),
    }
    assert rules(several)[4:] == [
        f"/cluster-state/eu/ @ada {PLATFORM}",
        f"/clusters/eu/ @ada {PLATFORM}",
        f"/clusters/eu/policies/vision.yaml @ada {PLATFORM}",
        f"/policies/queues/vision-a.yaml @ada {PLATFORM}",
        f"/policies/queues/vision.yaml @example/leads {PLATFORM}",
    ]


def test_our_part_is_put_in_and_replaced_and_other_lines_are_left_alone() -> None:
    one, other = section(clusters(FILES), "CODEOWNERS"), section(clusters({**FILES, **MOVED}), "CODEOWNERS")
    assert one != other
    assert with_section("", one) == one
    own = "*.md @writers\n"
    assert with_section(own, one) == own + "\n" + one
    assert with_section(with_section(own, other) + "# the end\n", one) == own + "\n" + one + "# the end\n"


MOVED = {"policies/queues/vision-a.yaml": queue("vision-a", "{parent: org}")}


def test_a_file_that_is_not_what_access_says_is_told() -> None:
    right = section(clusters(FILES), "CODEOWNERS")
    assert codes(FILES, right) == []
    assert codes(FILES, None) == [(".github/CODEOWNERS", 1, "codeowners-missing")]
    assert codes(FILES, "# empty\n") == [("CODEOWNERS", 2, "codeowners-outdated")]
    assert codes({**FILES, **MOVED}, "* @x\n" + right) == [("CODEOWNERS", 2, "codeowners-outdated")]
    after = right.count("\n") + 2
    assert codes(FILES, right + "# x\n/policies/ @mallory\n") == [("CODEOWNERS", after, "codeowners-overridden")]


def test_without_handles_nobody_asks_for_it() -> None:
    assert codes({**FILES, "policies/access.yaml": ACCESS % ("github", "{}")}, None) == []


def test_what_the_host_can_not_be_told_is_said() -> None:
    klass = "---\napiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: top}\nspec: {value: 1}\n"
    files = {
        **FILES,
        "policies/access.yaml": ACCESS % ("github", "{'group:leads': '@example/leads'}"),
        "policies/queues/vision.yaml": FILES["policies/queues/vision.yaml"] + klass,
        "policies/queues/a b.yaml": queue("a-b", "{parent: research, access: {admins: ['user:eve']}}"),
    }
    right = section(clusters(files), "CODEOWNERS")
    assert "a b" not in right
    assert codes(files, right) == [
        ("policies/access.yaml", 3, "no-code-owner"),
        ("policies/access.yaml", 3, "no-handle"),
        ("policies/access.yaml", 3, "no-handle"),
        ("policies/queues/a b.yaml", 1, "codeowners-name"),
        ("policies/queues/a b.yaml", 3, "no-handle"),
        ("policies/queues/vision.yaml", 8, "owned-with-queue"),
    ]
