"""A policy as ConfigMaps: nothing is lost, nothing is too large, and equal policies are equal objects."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.files import Files
from reconciler.kubernetes.status.policy_parts import (
    INDEX,
    PART_BYTES_MAX,
    POLICY_BYTES_MAX,
    PolicyRevision,
    copy_of,
    key_of,
)

COMMIT = "c0ffee" * 6 + "cafe"
SERVER_MAX = 1024 * 1024
KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def policy(documents: dict[str, bytes], cluster: str | None = None) -> PolicyRevision:
    return PolicyRevision(COMMIT, cluster, Files(documents))


def read_back(parts: tuple[dict[str, Any], ...]) -> dict[str, str]:
    """As somebody would who has only docs/kubernetes-install.md: keys to paths, pieces joined in order."""
    found: dict[str, str] = {}
    for part in parts:
        for key, text in part["data"].items():
            bare = re.sub(r"_p\d+$", "", key)
            raw = re.sub(
                rb"_(_|[0-9a-f]{2})", lambda m: b"/" if m[1] == b"_" else bytes.fromhex(m[1].decode()), bare.encode()
            )
            found[raw.decode()] = found.get(raw.decode(), "") + text
    return found


def test_documents_are_keys_that_people_can_read() -> None:
    copy = copy_of(
        policy({"policies/queues/team-a.yaml": b"kind: Queue\n", "cluster-state/machines.yaml": b"kind: NodePool\n"})
    )
    (part,) = copy.parts
    assert part["data"] == {
        "cluster-state__machines.yaml": "kind: NodePool\n",
        "policies__queues__team-a.yaml": "kind: Queue\n",
    }
    assert part["immutable"]
    assert part["metadata"]["labels"]["quorate.dev/policy-revision"] == COMMIT
    assert copy.listing["metadata"]["name"] == INDEX
    assert copy.listing["data"] == {
        "revision": COMMIT,
        "cluster": "",
        "documents": "2",
        "parts": part["metadata"]["name"],
        "message": "",
    }


def test_only_documents_that_this_cluster_reads_are_copied() -> None:
    files = {
        "policies/a.yaml": b"shared",
        "policies/README.md": b"words",
        "cluster-state/berlin/nodes.yaml": b"ours",
        "cluster-state/berlin/examples/busy.json": b"{}",
        "cluster-state/oslo/nodes.yaml": b"theirs",
    }
    copy = copy_of(policy(files, "berlin"))
    assert read_back(copy.parts) == {"policies/a.yaml": "shared", "cluster-state/berlin/nodes.yaml": "ours"}
    assert copy.listing["data"]["cluster"] == "berlin"


paths = st.text(st.sampled_from("ab_-./é \N{SNOWMAN}"), min_size=1, max_size=40).map(
    lambda name: f"policies/{name}.yaml"
)
texts = st.builds(lambda text, times: text * times, st.text(max_size=2), st.sampled_from([1, 200_000]))


@given(st.dictionaries(paths, texts, max_size=3))
def test_everything_can_be_read_back_and_no_part_is_too_large(documents: dict[str, str]) -> None:
    copy = copy_of(policy({path: text.encode() for path, text in documents.items()}))
    assert read_back(copy.parts) == documents
    for part in copy.parts:
        assert all(KEY.fullmatch(key) for key in part["data"])
        assert sum(len(key) + len(text.encode()) for key, text in part["data"].items()) <= PART_BYTES_MAX < SERVER_MAX


def test_a_document_of_the_largest_size_is_in_pieces() -> None:
    # Three bytes a character, so that a piece would end inside one.
    text = "x" + "\N{SNOWMAN}" * (SERVER_MAX // 3)
    copy = copy_of(policy({"policies/a.yaml": text.encode()}))
    assert [list(part["data"]) for part in copy.parts] == [["policies__a.yaml_p1"], ["policies__a.yaml_p2"]]
    assert read_back(copy.parts) == {"policies/a.yaml": text}


def test_a_part_is_named_by_its_commit_and_content() -> None:
    one, other = (
        copy_of(policy({"policies/a.yaml": text})).parts[0]["metadata"]["name"] for text in (b"one", b"other")
    )
    again = copy_of(PolicyRevision("f" * 40, None, Files({"policies/a.yaml": b"one"}))).parts[0]["metadata"]["name"]
    assert len({one, other, again}) == 3
    assert one == copy_of(policy({"policies/a.yaml": b"one"})).parts[0]["metadata"]["name"]


def test_a_policy_that_is_too_large_is_said_and_not_copied() -> None:
    files = {f"policies/{number}.yaml": b"x" * 1_000_000 for number in range(POLICY_BYTES_MAX // 1_000_000 + 1)}
    copy = copy_of(policy(files))
    assert copy.parts == ()
    assert "not copied: the documents have 9000" in copy.listing["data"]["message"]


def test_a_path_that_is_too_long_for_a_key_has_one_of_its_own() -> None:
    long = f"policies/{'a' * 300}.yaml"
    assert KEY.fullmatch(key_of(long))
    assert key_of(long) != key_of(f"policies/{'a' * 301}.yaml")
