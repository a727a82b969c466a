"""A repository is read whole: every problem of every file at once, and a policy only where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.documents.files import read_folder
from reconciler.documents.repository import compiled_of_nothing, read_repository
from reconciler.documents.schemas import data_folder
from reconciler.documents.text import BYTES_MAX
from reconciler.model.problem import InvalidDocumentsError
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Memory, MilliGpu
from solver.policy.policy import Quota
from tests.reconciler.documents.repository import POOL, codes, queue, reading, topology


def test_the_shipped_example_is_valid() -> None:
    example = read_repository(read_folder(data_folder("policies").parent))
    assert example.problems == ()
    compiled = example.checked()
    assert [node.name for node in compiled.nodes] == sorted(node.name for node in compiled.nodes)
    assert sum(len(node.gpus) for node in compiled.nodes) == 384
    assert {queue.name for queue in compiled.policy.queues if queue.parent is None} == {"org"}


def test_documents_are_compiled_with_defaults_and_origins() -> None:
    settings = "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: all}\nspec: {startDeadline: 90s}\n"
    compiled = reading(
        {
            "cluster-state/pool.yaml": POOL,
            "policies/team.yml": "# the team\n" + queue("team", "\n  quota:\n  - {gpuType: H100, max: 8}"),
            "policies/settings.yaml": settings,
        }
    ).checked()

    assert compiled.policy.queues[0].origin == "policies/team.yml:4"
    assert compiled.policy.queues[0].quota == (
        Quota(GpuType("H100"), None, MilliGpu.gpus(8), origin="policies/team.yml:7"),
    )
    assert compiled.policy.scheduling.start_deadline == Duration(90_000)
    assert compiled.policy.scheduling.solver.time_limit == Duration(10_000)
    first = compiled.nodes[0]
    assert (first.name, first.memory, first.gpus[7].id) == ("big-01", Memory(2**40), "big-01/7")


def test_equal_meaning_is_an_equal_digest() -> None:
    one = reading({"policies/a.yaml": queue("a", "{}"), "policies/b.yaml": queue("b", "{parent: a}")})
    other = reading(
        {"policies/x.yaml": "# moved\n" + queue("b", "{parent: a, weight: 1}"), "policies/y.yaml": queue("a", "{}")}
    )
    assert one.checked().policy.digest == other.checked().policy.digest
    assert one.checked().policy != other.checked().policy, "origins differ"


def test_a_policy_of_before_keeps_its_digest() -> None:
    """A field that is added must not change it: plans name it, and rounds on record have to replay byte for byte."""
    policy = reading({"policies/a.yaml": queue("team", "{}")}).checked().policy
    assert policy.digest == "sha256:a8e1ea3ec41a5ac5f22365c68d196fa6b9a93262bbd7e4c5eb67618be004f1af"


def test_what_protects_and_what_limits_evictions_have_their_lines_and_the_digest_has_none() -> None:
    document = "apiVersion: quorate.dev/v1\nkind: "
    batch = (
        f"{document}PriorityClass\nmetadata: {{name: batch}}\nspec:\n  value: 1\n  protection:\n    minRuntime: 1h\n"
    )
    settings = f"{document}SchedulingPolicy\nmetadata: {{name: default}}\nspec:\n  evictions: {{perRound: 2}}\n"
    plain = f"{document}PriorityClass\nmetadata: {{name: plain}}\nspec: {{}}\n"
    files = {"policies/a.yaml": queue("team", "{}"), "policies/c.yaml": batch, "policies/s.yaml": settings}
    policy = reading({**files, "policies/p.yaml": plain}).checked().policy
    assert {known.name: known.protection.origin for known in policy.priority_classes} == {
        "batch": "policies/c.yaml:6",
        "plain": "",
    }
    assert policy.scheduling.evictions.origin == "policies/s.yaml:5"
    moved = reading({**files, "policies/p.yaml": plain, "policies/c.yaml": f"# moved\n{batch}"}).checked().policy
    assert moved.digest == policy.digest
    # As before these lines were there.
    elder = {**files, "policies/c.yaml": batch.replace("  value: 1\n", "")}
    assert reading(elder).checked().policy.digest == (
        "sha256:cae545f937e7998f79f92192acc48dadc502f937be0faa7e1e9bd8827930c3f9"
    )


def test_all_problems_of_all_files_are_reported_sorted_by_place() -> None:
    assert codes(
        {
            "policies/b.yaml": queue("b", "{weight: 0, wieght: 1, quota: [{gpuType: H100}, {max: x}]}"),
            "policies/a.yaml": "a: [",
            "cluster-state/c.yaml": "- 1\n---\nkind: Quue\n",
        }
    ) == [
        ("cluster-state/c.yaml:1:1", "not-a-document"),
        ("cluster-state/c.yaml:3:7", "unknown-kind"),
        ("a.yaml:2:1", "syntax"),
        ("b.yaml:4:16", "out-of-range"),
        ("b.yaml:4:19", "unknown-field"),
        ("b.yaml:4:55", "missing-field"),
        ("b.yaml:4:61", "wrong-type"),
    ]


def test_a_message_says_what_to_do() -> None:
    (problem,) = reading({"policies/q.yaml": queue("q", "{wieght: 1}")}).problems
    assert str(problem) == (
        "policies/q.yaml:4:8: error[unknown-field]: there is no field 'wieght' in spec. Did you mean weight?"
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{weight: '2'}", "spec.weight is the text '2', expected a whole number. Write it without quotes: 2."),
        (
            "{weight: 2.5}",
            "spec.weight is 2.5, expected a whole number. Weights are whole numbers: 3 beside 2 is what 1.5 would be beside 1.",
        ),
        ("{weight: 2.0}", "spec.weight is 2.0, expected a whole number. Write it as 2."),
        ("{weight: true}", "spec.weight is true, expected a whole number."),
        ("{weight: }", "spec.weight is empty, expected a whole number. Give it a value, or delete the field."),
        ("{parent: 7}", 'spec.parent is 7, expected name. Quote it: "7".'),
        ("{parent: Team_A}", "spec.parent: 'Team_A' is not a name. Write it like research-vision or h100-a."),
        ("{quota: {}}", "spec.quota is a mapping, expected a list."),
        ("[]", "spec is a list, expected a mapping."),
    ],
)
def test_wrong_values_are_explained(spec: str, problem: str) -> None:
    (found,) = reading({"policies/q.yaml": queue("q", spec)}).problems
    assert str(found).partition(": error")[2].partition(": ")[2] == problem


def test_quotes_are_advised_only_where_they_would_do() -> None:
    timed = queue("day", "{value: 1, defaultTimeLimit: 24}").replace("Queue", "PriorityClass")
    (found,) = reading({"policies/c.yaml": timed}).problems
    assert str(found).endswith(
        "spec.defaultTimeLimit is 24, expected duration. Write it like 30s or 5m or 72h or 1h30m."
    )


def test_an_invalid_repository_has_no_policy() -> None:
    invalid = reading({"policies/a.yaml": queue("a", "{parent: nobody}"), "policies/notes.yaml.orig": ""})
    assert invalid.compiled is None
    assert [problem.severity for problem in invalid.problems] == ["error", "warning"]
    with pytest.raises(InvalidDocumentsError, match="there is no Queue nobody"):
        invalid.checked()


def test_every_document_has_its_place() -> None:
    assert codes(
        {
            "policies/pool.yaml": POOL,
            "cluster-state/queue.yaml": queue("q", "{}"),
            "policies/job.yaml": "kind: Job\n",
            "policies/plan.yaml": "kind: Plan\n",
            "policies/two.yaml": queue("a", "{}") + "---\n" + queue("b", "{}"),
            "policies/README.md": "",
            "policies/.gitkeep": "",
            "policies/CODEOWNERS": "",
            "policies/run.sh": "",
        }
    ) == [
        ("cluster-state/queue.yaml:2:7", "wrong-folder"),
        ("job.yaml:1:7", "job-in-git"),
        ("plan.yaml:1:7", "wrong-folder"),
        ("pool.yaml:2:7", "wrong-folder"),
        ("run.sh:1:1", "not-read"),
        ("two.yaml:6:1", "one-queue-per-file"),
    ]


def test_names_are_unique_within_a_kind() -> None:
    same = {"policies/a.yaml": queue("x", "{}"), "policies/b.yaml": queue("x", "{}"), "cluster-state/p.yaml": POOL}
    assert codes(same) == [("b.yaml:3:18", "duplicate-name")]
    assert reading(same).problems[0].message == "there is a Queue x already, at policies/a.yaml:3"


def test_one_scheduling_policy_with_a_known_default_class() -> None:
    settings = (
        "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: %s}\nspec: {defaultPriorityClass: %s}\n"
    )
    known = "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: batch}\nspec: {}\n"
    assert codes({"policies/a.yaml": known + "---\n" + settings % ("one", "bacth")}) == [
        ("a.yaml:9:30", "unknown-priority-class")
    ]
    assert codes(
        {"policies/a.yaml": known + "---\n" + settings % ("one", "batch") + "---\n" + settings % ("two", "batch")}
    ) == [("a.yaml:12:7", "second-scheduling-policy")]


def test_an_exact_round_leaves_no_gap() -> None:
    settings = "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: s}\nspec:\n  solver: {mode: exact, gap: %s}\n"
    assert codes({"policies/a.yaml": settings % "0.01"}) == [("a.yaml:5:30", "gap-in-exact-mode")]
    assert codes({"policies/a.yaml": settings % "0"}) == []


def test_one_mistake_is_not_told_as_many() -> None:
    child = queue("child", "{parent: team, quota: [{gpuType: H100}]}")
    broken_spec = {"policies/team.yaml": queue("team", "{wieght: 1}"), "policies/child.yaml": child}
    assert codes({**broken_spec, "cluster-state/p.yaml": POOL}) == [("team.yaml:4:8", "unknown-field")]
    assert codes({"policies/team.yaml": "a: [", "policies/child.yaml": child}) == [("team.yaml:2:1", "syntax")]
    broken_pool = POOL.replace("cpu:", "cpus:")
    assert [
        code
        for _, code in codes(
            {"policies/t.yaml": child.replace("parent: team, ", ""), "cluster-state/p.yaml": broken_pool}
        )
    ] == [
        "missing-field",
        "unknown-field",
    ]


@pytest.mark.parametrize(
    ("spec", "places"),
    [
        ("{cpu: 4, memory: 1Gi, nodes: {}}", [("5:30", "missing-field")]),
        ("{cpu: 4, memory: 1Gi, nodes: {prefix: a}}", [("5:38", "missing-field")]),
        ("{cpu: 4, memory: 1Gi, nodes: {prefix: a, count: 1, names: [b]}}", [("5:30", "choose-one")]),
        ("{cpu: 4, memory: 1Gi, nodes: {names: [b]}, labels: [a=1, b=2, a=2]}", [("5:70", "duplicate-label")]),
        ("{cpu: 4, memory: 1Gi, nodes: {names: [b, a, b]}}", [("5:52", "duplicate-node")]),
        ("{cpu: 4, memory: 1Gi, nodes: {names: [big-03]}}", [("5:37", "duplicate-node")]),
        ("{cpu: 4, memory: 1Gi, gpusPerNode: 1, nodes: {names: [a]}}", [("5:43", "missing-field")]),
        ("{cpu: 4, memory: 1Gi, gpuType: X, nodes: {names: [a]}}", [("5:39", "missing-field")]),
        ("{cpu: 0.0005, memory: 1Gi, nodes: {names: [a]}}", [("5:14", "malformed")]),
        ("{cpu: 4, memory: 1GB, nodes: {names: [a]}}", [("5:25", "malformed")]),
        ("{cpu: 4, memory: 1Gi, nodes: {names: [a, b]}, cordoned: [b]}", []),
        ("{cpu: 4, memory: 1Gi, nodes: {names: [a]}, cordoned: [b]}", [("5:62", "unknown-node")]),
    ],
)
def test_node_pools_make_sense(spec: str, places: list[tuple[str, str]]) -> None:
    pool = f"# a pool\napiVersion: quorate.dev/v1\nkind: NodePool\nmetadata: {{name: other}}\nspec:  {spec}\n"
    found = codes({"cluster-state/a.yaml": POOL, "cluster-state/z.yaml": pool})
    assert found == [(f"cluster-state/z.yaml:{place}", code) for place, code in places]


def test_nodes_that_a_pool_cordons_are_cordoned() -> None:
    cordoning = POOL.replace("count: 10}", "count: 10}, cordoned: [big-03, big-07]")
    nodes = reading({"cluster-state/a.yaml": cordoning}).checked().nodes
    assert [node.name for node in nodes if node.cordoned] == ["big-03", "big-07"]


def test_a_slip_in_a_count_does_not_fill_the_memory() -> None:
    pools = {
        f"cluster-state/{name}.yaml": POOL.replace("count: 10", "count: 99999").replace("big", name) for name in "abc"
    }
    assert codes(pools) == [("cluster-state/c.yaml:4:68", "too-many-nodes")]


def test_a_regular_topology_places_nodes_in_order() -> None:
    shape = "{pool: big, shape: {nodesPerIsland: 2, islandsPerRack: 2, racksPerBlock: 2}}"
    nodes = reading({"cluster-state/p.yaml": POOL, "cluster-state/t.yaml": topology("t", shape)}).checked().nodes
    assert [(node.island, node.rack, node.block) for node in nodes] == [
        (f"island-{1 + index // 2:04}", f"rack-{1 + index // 4:04}", f"block-{1 + index // 8:04}")
        for index in range(10)
    ]


def test_explicit_domains_make_a_tree() -> None:
    domains = """
  pool: big
  domains:
  - {level: block, name: hall}
  - {level: rack, name: r1, parent: hall, nodes: [big-03]}
  - {level: island, name: i1, parent: r1, nodes: [big-01, big-02]}
  - {level: island, name: i2, parent: hall, nodes: [big-04, big-05]}
"""
    nodes = reading({"cluster-state/p.yaml": POOL, "cluster-state/t.yaml": topology("t", domains)}).checked().nodes
    assert [(node.island, node.rack, node.block) for node in nodes[:6]] == [
        ("i1", "r1", "hall"),
        ("i1", "r1", "hall"),
        ("", "r1", "hall"),
        ("i2", "i2", "hall"),
        ("i2", "i2", "hall"),
        ("", "", ""),
    ]
    for level, wider in (("island", "rack"), ("rack", "block")):
        inside = {(node.domain(level), node.domain(wider)) for node in nodes}  # type: ignore[arg-type]
        assert len(inside) == len({narrow for narrow, _ in inside}), f"every {level} lies in one {wider}"


@pytest.mark.parametrize(
    ("spec", "places"),
    [
        ("{pool: bgi, shape: {nodesPerIsland: 1, islandsPerRack: 1, racksPerBlock: 1}}", [("4:14", "unknown-pool")]),
        ("{pool: big}", [("4:1", "missing-field")]),
        ("{pool: big, domains: [{level: pool, name: a}]}", [("4:37", "unknown-value")]),
        ("{pool: big, domains: [{level: rack, name: a, nodes: [x]}]}", [("4:60", "unknown-node")]),
        ("{pool: big, domains: [{level: rack, name: a}, {level: rack, name: a}]}", [("4:73", "duplicate-domain")]),
        ("{pool: big, domains: [{level: rack, name: big-01}]}", [("4:49", "duplicate-domain")]),
        ("{pool: big, domains: [{level: rack, name: a, parent: b}]}", [("4:60", "unknown-parent")]),
        (
            "{pool: big, bandwidth: {rack: 1000}, domains: [{level: rack, name: a}]}",
            [("4:37", "bandwidth-rises")],
        ),
        (
            "{pool: big, bandwidth: {rack: 0}, domains: [{level: rack, name: a}]}",
            [("4:37", "out-of-range")],
        ),
        (
            "{pool: big, domains: [{level: rack, name: a, parent: b}, {level: island, name: b}]}",
            [("4:60", "parent-not-wider")],
        ),
        (
            "{pool: big, domains: [{level: rack, name: a, nodes: [big-01]}, {level: rack, name: b, nodes: [big-01]}]}",
            [("4:101", "node-in-two-domains")],
        ),
    ],
)
def test_topologies_make_sense(spec: str, places: list[tuple[str, str]]) -> None:
    found = codes({"cluster-state/p.yaml": POOL, "cluster-state/t.yaml": topology("t", spec)})
    assert found == [(f"cluster-state/t.yaml:{place}", code) for place, code in places]


def test_a_pool_has_one_topology() -> None:
    shape = "{pool: big, shape: {nodesPerIsland: 1, islandsPerRack: 1, racksPerBlock: 1}}"
    found = codes({"cluster-state/p.yaml": POOL + "---\n" + topology("t", shape) + "---\n" + topology("u", shape)})
    assert found == [("cluster-state/p.yaml:14:14", "duplicate-topology")]


def test_links_in_a_work_tree_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(queue("secret", "{}"))
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "q.yaml").symlink_to(tmp_path / "secret.yaml")
    (tmp_path / "policies" / "more").symlink_to(tmp_path)
    (tmp_path / "cluster-state").symlink_to(tmp_path)

    files = read_folder(tmp_path)

    assert files.contents == {}
    assert [problem.file for problem in files.refused] == ["cluster-state", "policies/more", "policies/q.yaml"]
    assert read_repository(files).compiled is None


def test_more_files_or_bytes_than_any_policy_needs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policies").mkdir()
    for name in "abc":
        (tmp_path / "policies" / f"{name}.yaml").write_text("# empty")
    (tmp_path / "policies" / "a.yaml").write_bytes(b" " * (BYTES_MAX + 1))
    monkeypatch.setattr("reconciler.documents.files.FILES_MAX", 2)

    files = read_folder(tmp_path)

    assert list(files.contents) == ["policies/b.yaml"]
    assert [problem.code for problem in files.refused] == ["too-large", "too-many-files"]


def test_no_files_are_no_policy_to_be_put_in_force() -> None:
    assert codes({}) == codes({"policies/README.md": "soon"}) == [(".:1:1", "no-documents")]
    assert compiled_of_nothing().policy.queues == ()
