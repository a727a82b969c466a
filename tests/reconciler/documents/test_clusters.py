"""Several clusters in one repository: what each of them reads, and what makes it unclear which is meant."""

from __future__ import annotations

import pytest

from reconciler.documents.clusters import clusters_of
from reconciler.documents.files import Files
from reconciler.documents.repository import Compiled, problems_of, read_clusters, read_repository
from reconciler.gitops.review.meaning import document_changes
from tests.reconciler.documents.repository import POOL, queue

SETTINGS = "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: all}\nspec: {startDeadline: %s}\n"
SHARED = {
    "policies/org.yaml": queue("org", "{}"),
    "policies/team.yaml": queue("team", "{parent: org, weight: 2}"),
    "policies/scheduling.yaml": SETTINGS % "60s",
}
TWO = {
    **SHARED,
    "cluster-state/eu/pool.yaml": POOL,
    "cluster-state/us/pool.yaml": POOL.replace("count: 10", "count: 4"),
    "clusters/eu/policies/team.yaml": queue("team", "{parent: org, quota: [{gpuType: H100, max: 8}]}"),
    "clusters/eu/policies/scheduling.yaml": SETTINGS % "90s",
    "clusters/us/policies/new.yaml": queue("new", "{parent: org}"),
}


def files(contents: dict[str, str]) -> Files:
    return Files({path: text.encode() for path, text in contents.items()})


def compiled(contents: dict[str, str], cluster: str | None = None) -> Compiled:
    return read_repository(files(contents), cluster).checked()


def problems(contents: dict[str, str]) -> list[tuple[str, str, str]]:
    return [(problem.file, problem.code, problem.message) for problem in problems_of(read_clusters(files(contents)))]


def test_each_cluster_has_the_shared_policy_its_inventory_and_its_own_documents() -> None:
    eu, us = compiled(TWO, "eu"), compiled(TWO, "us")

    assert (len(eu.nodes), len(us.nodes)) == (10, 4)
    assert [known.name for known in eu.policy.queues] == ["org", "team"]
    assert [known.name for known in us.policy.queues] == ["new", "org", "team"]
    assert (eu.policy.scheduling.start_deadline.seconds, us.policy.scheduling.start_deadline.seconds) == (90, 60)
    assert problems(TWO) == []


def test_a_document_is_replaced_whole() -> None:
    """The weight that the shared document has, and that of the cluster does not, is not taken over."""
    (team,) = (known for known in compiled(TWO, "eu").policy.queues if known.name == "team")
    assert (team.weight, [entry.max for entry in team.quota], team.origin) == (
        1,
        [8000],
        "clusters/eu/policies/team.yaml:3",
    )


def test_a_change_of_one_cluster_is_none_of_the_others() -> None:
    changed = {**TWO, "clusters/eu/policies/team.yaml": queue("team", "{parent: org, weight: 5}")}
    eu = list(document_changes(compiled(TWO, "eu"), compiled(changed, "eu")))
    assert [change.document for change in eu] == ["Queue team"]
    assert compiled(TWO, "us") == compiled(changed, "us")
    assert compiled(TWO, "us").policy.digest == compiled(changed, "us").policy.digest


def test_a_broken_cluster_holds_up_none_of_the_others() -> None:
    broken = {**TWO, "clusters/eu/policies/team.yaml": "kind: [", "cluster-state/eu/pool.yaml": "a: ["}
    assert read_repository(files(broken), "eu").compiled is None
    assert compiled(broken, "us") == compiled(TWO, "us")


def test_one_cluster_needs_no_name_and_a_flat_inventory_has_none() -> None:
    flat = {**SHARED, "cluster-state/pool.yaml": POOL, "cluster-state/examples/morning.json": "{}"}
    one = {**SHARED, "cluster-state/eu/pool.yaml": POOL}
    assert clusters_of(files(flat)) == ()
    assert compiled(flat) == compiled(one) == compiled(one, "eu")
    (problem,) = read_repository(files(flat), "eu").problems
    assert problem.fix == "Leave --cluster out, or move the inventory to cluster-state/eu/."


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (None, "the repository has several clusters. Say which with --cluster: eu, us."),
        ("euu", "there is no cluster euu. Did you mean eu?"),
        ("asia", "there is no cluster asia. Known: eu, us."),
    ],
)
def test_which_cluster_has_to_be_clear(cluster: str | None, message: str) -> None:
    reading = read_repository(files(TWO), cluster)
    assert [str(problem).partition("which-cluster]: ")[2] for problem in reading.problems] == [message]


@pytest.mark.parametrize(
    ("more", "place", "code"),
    [
        ({"cluster-state/more.yaml": ""}, "cluster-state/more.yaml", "mixed-inventory"),
        ({"clusters/ue/policies/q.yaml": queue("q", "{}")}, "clusters/ue/policies/q.yaml", "unknown-cluster"),
        ({"clusters/EU_1/policies/q.yaml": ""}, "clusters/EU_1/policies/q.yaml", "cluster-name"),
        ({"clusters/eu/q.yaml": queue("q", "{}")}, "clusters/eu/q.yaml", "wrong-folder"),
        ({"clusters/q.yaml": queue("q", "{}")}, "clusters/q.yaml", "wrong-folder"),
        ({"clusters/eu/policies/p.yaml": POOL}, "clusters/eu/policies/p.yaml", "wrong-folder"),
        ({"clusters/eu/policies/run.sh": ""}, "clusters/eu/policies/run.sh", "not-read"),
        ({"clusters/eu/policies/b.yaml": queue("team", "{}")}, "clusters/eu/policies/team.yaml", "duplicate-name"),
        ({"policies/b.yaml": queue("org", "{}")}, "policies/org.yaml", "duplicate-name"),
        (
            {"clusters/eu/policies/s.yaml": (SETTINGS % "9s").replace("all", "own")},
            "clusters/eu/policies/scheduling.yaml",
            "second-scheduling-policy",
        ),
    ],
)
def test_what_is_unclear_is_said_once(more: dict[str, str], place: str, code: str) -> None:
    found = [(file, each) for file, each, _ in problems({**TWO, **more})]
    assert (place, code) in found
    assert len(found) == len(set(found)), "each problem once"


def test_a_problem_of_some_clusters_alone_says_of_which() -> None:
    """The shared document is wrong where its parent is not; the broken one is wrong everywhere."""
    contents = {
        **TWO,
        "policies/child.yaml": queue("child", "{parent: new}"),
        "policies/wrong.yaml": queue("wrong", "{wieght: 1}"),
    }
    assert problems(contents) == [
        ("policies/child.yaml", "unknown-parent", "there is no Queue new (in cluster eu)"),
        ("policies/wrong.yaml", "unknown-field", "there is no field 'wieght' in spec"),
    ]


def test_what_is_replaced_is_still_checked() -> None:
    contents = {**TWO, "policies/team.yaml": queue("team", "{wieght: 1}")}
    assert [(file, code) for file, code, _ in problems(contents)] == [("policies/team.yaml", "unknown-field")]
