"""Where pods may be: selectors, taints, affinity, spread; as GPU types and spreads of a job, as allowed nodes, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.selectors import selects, tolerates_all
from reconciler.kubernetes.objects.wire import LabelSelector, Taint, Toleration, read
from solver.model.workload import Bundle, GroupTopology, Job, Spread, Together
from tests.reconciler.kubernetes.samples import Sent, cluster, codes, node, pod, the_gang

HOST = "kubernetes.io/hostname"
RACK = "cloud.provider.com/topology-rack"
ZONE = "topology.kubernetes.io/zone"


def a100(name: str, **labels: str) -> Sent:
    return node(name, labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", **labels})


GENERATION_4: Sent = {"nodeSelector": {"generation": "4"}}
NODES = [
    node("h1", labels={"disk": "nvme"}),
    node("h2"),
    a100("a1", disk="nvme", generation="3"),
    a100("a2", generation="4"),
    node("c1", gpus=0),
]


def job_of(gang: PodGang) -> Job:
    assert gang.job is not None, (gang.refusals, gang.missing)
    return gang.job


def alone(
    spec: Sent, *, gpus: int = 1, nodes: list[Sent] | None = None, others: list[Sent] | None = None, **said: Any
) -> PodGang:
    seen = cluster(nodes or NODES, [pod("p", gpus, spec=spec, **said), *(others or [])])
    return the_gang(seen, "vision.pod.p")


def affinity(*expressions: Sent) -> Sent:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


SELECTED: list[tuple[Sent, list[str], list[str] | None]] = [
    ({}, [], None),
    ({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}}, ["A100-SXM4-80GB"], None),
    (
        affinity({"key": "nvidia.com/gpu.product", "operator": "NotIn", "values": ["NVIDIA-A100-SXM4-80GB"]}),
        ["H100-SXM5-80GB"],
        None,
    ),
    ({"nodeSelector": {"disk": "nvme"}}, ["A100-SXM4-80GB", "H100-SXM5-80GB"], ["a1", "h1"]),
    (affinity({"key": "generation", "operator": "Gt", "values": ["3"]}), ["A100-SXM4-80GB"], ["a2"]),
    (affinity({"key": "generation", "operator": "Lt", "values": ["4"]}), ["A100-SXM4-80GB"], ["a1"]),
    (affinity({"key": "generation", "operator": "Exists"}), ["A100-SXM4-80GB"], None),
    (affinity({"key": "generation", "operator": "DoesNotExist"}), ["H100-SXM5-80GB"], None),
    (
        affinity({"key": "disk", "operator": "In", "values": ["nvme"]}, {"key": "generation", "operator": "Exists"}),
        ["A100-SXM4-80GB"],
        ["a1"],
    ),
]


@pytest.mark.parametrize(("spec", "types", "limit"), SELECTED)
def test_selected_nodes_are_gpu_types_where_those_say_it(spec: Sent, types: list[str], limit: list[str] | None) -> None:
    gang = alone(spec)
    assert list(job_of(gang).spec.task_groups[0].shape.gpu_types) == types
    assert [list(one.nodes) for one in gang.node_sets] == ([limit] if limit else [])
    assert job_of(gang).spec.task_groups[0].nodes == (gang.node_sets[0].name if limit else "")


def test_equal_nodes_are_one_set_whoever_asks_and_in_every_cluster() -> None:
    nvme = {"nodeSelector": {"disk": "nvme"}}
    seen = cluster(NODES, [pod("p", spec=nvme), pod("q", 2, spec=nvme), pod("free"), pod("v4", spec=GENERATION_4)])
    names = {str(job.name): job.spec.task_groups[0].nodes for job in seen.jobs}
    assert names["vision.pod.p"] == names["vision.pod.q"] != names["vision.pod.v4"]
    assert names["vision.pod.free"] == ""
    assert {known.name: known.nodes for known in seen.node_sets} == {
        names["vision.pod.p"]: ("a1", "h1"),
        names["vision.pod.v4"]: ("a2",),
    }
    more = cluster([*NODES, node("h3")], [pod("other", spec=nvme)])
    assert [known.name for known in more.node_sets] == [names["vision.pod.p"]]


def test_a_pod_without_gpus_is_limited_to_the_nodes_whose_taints_it_tolerates() -> None:
    nodes = [node("h1", taints=[{"key": "gpu", "effect": "NoSchedule"}]), node("c1", gpus=0)]
    gang = the_gang(cluster(nodes, [pod("p", gpus=0)]))
    assert [known.nodes for known in gang.node_sets] == [("c1",)]


def test_a_gang_that_is_refused_brings_no_set() -> None:
    seen = cluster(NODES, [pod("p", spec={"nodeSelector": {"disk": "nvme"}}, labels={"quorate.dev/queue": ""})])
    assert (seen.jobs, seen.node_sets) == ((), ())


def test_no_node_is_refused_with_what_leaves_none() -> None:
    gang = alone({"nodeSelector": {"disk": "tape"}})
    assert codes(gang) == ["no-node"]
    assert "of 5 nodes there are 0 that nodeSelector" in str(gang.refusals[0])


def test_a_pod_that_selects_only_nodes_without_gpus_is_refused_and_no_other_node_does() -> None:
    gang = alone({"nodeSelector": {HOST: "c1"}})
    assert codes(gang) == ["no-node"]
    assert "of these 0 that have GPUs" in str(gang.refusals[0])
    near = away(HOST, "podAffinity")
    gang = alone(near, others=[pod("web", 0, on="c1", labels={"app": "train"})])
    assert (codes(gang), gang.job) == (["kept-away"], None)
    assert "required affinity to pod vision/web by kubernetes.io/hostname leaves no node" in str(gang.refusals[0])


def test_where_no_node_has_gpus_a_round_says_so() -> None:
    gang = alone({"nodeSelector": {HOST: "c1"}}, nodes=[node("c1", gpus=0), node("c2", gpus=0)])
    assert (gang.refusals, gang.node_sets) == ((), ())


def preferring(expression: Sent, weight: int = 5) -> Sent:
    wish = {"weight": weight, "preference": {"matchExpressions": [expression]}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}


@pytest.mark.parametrize(
    ("wished", "types", "remarks"),
    [
        ({"key": "generation", "operator": "Exists"}, ("A100-SXM4-80GB", "H100-SXM5-80GB"), []),
        ({"key": "generation", "operator": "DoesNotExist"}, ("H100-SXM5-80GB", "A100-SXM4-80GB"), []),
        ({"key": "disk", "operator": "Exists"}, (), ["preferred-nodes"]),
    ],
)
def test_preferred_nodes_order_the_types(wished: Sent, types: tuple[str, ...], remarks: list[str]) -> None:
    gang = alone(preferring(wished))
    assert job_of(gang).spec.task_groups[0].shape.gpu_types == types
    assert [remark.code for remark in gang.remarks] == remarks


SOFT = [{"key": "slow", "effect": "PreferNoSchedule"}]
SLOW_H100S = [node("h1", taints=SOFT), node("h2", taints=SOFT), a100("a1")]


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({}, ("A100-SXM4-80GB", "H100-SXM5-80GB")),
        ({"tolerations": [{"key": "slow", "operator": "Exists", "effect": "PreferNoSchedule"}]}, ()),
        (
            {"tolerations": [{"key": "slow", "operator": "Exists", "effect": "NoSchedule"}]},
            ("A100-SXM4-80GB", "H100-SXM5-80GB"),
        ),
        (preferring({"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}, 100), ()),
        (
            preferring({"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}, 99),
            ("A100-SXM4-80GB", "H100-SXM5-80GB"),
        ),
    ],
)
def test_types_all_of_whose_nodes_have_a_soft_taint_come_later(spec: Sent, types: tuple[str, ...]) -> None:
    gang = alone(spec, nodes=SLOW_H100S)
    assert (job_of(gang).spec.task_groups[0].shape.gpu_types, gang.remarks) == (types, ())


def test_soft_taints_that_tell_nodes_of_a_type_apart_are_remarked_if_a_pod_may_be_on_both() -> None:
    nodes = [node("h1", taints=SOFT), node("h2"), a100("a1")]
    assert [remark.code for remark in alone({}, nodes=nodes).remarks] == ["soft-taints"]
    assert alone({"nodeSelector": {HOST: "h1"}}, nodes=nodes).remarks == ()
    assert alone({"nodeSelector": {HOST: "h2"}}, nodes=nodes).remarks == ()


def test_pods_without_gpus_have_no_types_by_which_a_wish_could_be_followed() -> None:
    wish = preferring({"key": "nvidia.com/gpu.product", "operator": "Exists"})
    assert [remark.code for remark in alone(wish, gpus=0).remarks] == ["preferred-nodes"]
    assert alone({**wish, "nodeSelector": {HOST: "c1"}}, gpus=0).remarks == ()


def test_what_kubernetes_says_of_preemption_is_remarked_where_it_is_said() -> None:
    assert [remark.code for remark in alone({"preemptionPolicy": "Never"}).remarks] == ["preemption-policy"]
    assert alone({"preemptionPolicy": "PreemptLowerPriority"}).remarks == ()


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="gpu", value="yes"), True),
        (Toleration(key="gpu", value="no"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="gpu", operator="Gt", value="1"), False),
        (Toleration(value="yes"), False),
    ],
)
def test_taints_and_tolerations(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates_all([toleration], [Taint("gpu", "NoSchedule", "yes")]) == tolerated
    assert tolerates_all([], [Taint("gpu", "PreferNoSchedule")])


def test_a_taint_that_is_not_tolerated_leaves_nodes_out() -> None:
    tainted = [node("h1", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]), a100("a1")]
    assert job_of(alone({}, nodes=tainted)).spec.task_groups[0].shape.gpu_types == ("A100-SXM4-80GB",)
    tolerating = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    assert job_of(alone(tolerating, nodes=tainted)).spec.task_groups[0].shape.gpu_types == ()


def test_other_resources_are_for_the_round_to_count() -> None:
    nodes = [node("h1", offers={"rdma/hca": "2"}), a100("a1")]
    others = [pod("q", on="h1", requests={"rdma/hca": "2"})]
    shape = job_of(alone({}, nodes=nodes, others=others, requests={"rdma/hca": "1"})).spec.task_groups[0].shape
    assert (shape.gpu_types, shape.resources) == ((), {"rdma/hca": 1, "pods": 1})


def test_whole_gpus_are_not_looked_for_where_they_are_shared() -> None:
    nodes = [node("h1", labels={"nvidia.com/gpu.replicas": "4"}), a100("a1")]
    assert job_of(alone({}, nodes=nodes)).spec.task_groups[0].shape.gpu_types == ("A100-SXM4-80GB",)


def gang(spec: Sent, many: int, nodes: list[Sent], others: list[Sent] | None = None) -> PodGang:
    written = {"quorate.dev/gang": "g", "quorate.dev/gang-size": str(many)}
    pods = [pod(f"p-{number}", spec=spec, labels={"app": "train"}, annotations=written) for number in range(many)]
    return the_gang(cluster(nodes, [*pods, *(others or [])]), "vision.gang.g")


def away(key: str, kind: str = "podAntiAffinity", app: str = "train", **more: Any) -> Sent:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(key: str, skew: int = 1, when: str = "DoNotSchedule") -> Sent:
    constraint = {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "train"}},
    }
    return {"topologySpreadConstraints": [constraint]}


RACKS = [node(name, labels={RACK: name[0], ZONE: "z"}) for name in ("a1", "a2", "b1", "b2")]


@pytest.mark.parametrize(
    ("spec", "many", "expected"),
    [
        (away(HOST), 3, Spread("node", 1)),
        (away(RACK), 2, Spread("rack", 1)),
        (spread(HOST), 4, Spread("node", 1)),
        (spread(HOST, 2), 6, Spread("node", 2)),
        (spread(RACK), 6, Spread("rack", 3)),
        (spread(RACK), 3, Spread("rack", 2)),
    ],
)
def test_a_gang_that_keeps_apart_is_spread(spec: Sent, many: int, expected: Spread) -> None:
    found = gang(spec, many, RACKS)
    assert job_of(found).spec.topology.spread == expected
    assert found.node_sets == ()


@pytest.mark.parametrize(
    ("spec", "many", "code"),
    [
        (away(ZONE), 2, "not-a-level"),
        (spread(HOST), 6, "uneven-spread"),
        (away(HOST, namespaceSelector={"matchLabels": {"team": "x"}}), 2, "namespace-selector"),
        (away(HOST, "podAffinity"), 2, "pod-affinity"),
        (away(RACK, "podAffinity", app="nobody"), 2, "kept-away"),
    ],
)
def test_what_a_job_can_not_say_of_its_own_pods_is_refused(spec: Sent, many: int, code: str) -> None:
    assert codes(gang(spec, many, RACKS)) == [code]


def test_every_way_to_place_what_is_spread_keeps_the_skew() -> None:
    """The bound is chosen so that no distribution within it has two domains that differ by more than maxSkew."""
    for skew, many in ((1, 6), (2, 7), (1, 3)):
        found = gang(spread(RACK, skew), many, RACKS)
        bound = job_of(found).spec.topology.spread
        assert bound is not None
        ways = [(one, many - one) for one in range(many + 1) if max(one, many - one) <= bound.max_per_domain]
        assert ways
        assert all(abs(one - other) <= skew for one, other in ways)


def test_pods_that_want_each_other_near_are_in_one_domain() -> None:
    assert job_of(gang(away(RACK, "podAffinity"), 2, RACKS)).spec.topology.required == "rack"
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "train"}}}
    wish = [{"weight": 1, "podAffinityTerm": term}]
    spec = {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}}
    assert job_of(gang(spec, 2, RACKS)).spec.topology.preferred == ("rack",)


def test_slices_are_bundles() -> None:
    def sliced(key: str, size: str) -> PodGang:
        written = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "4"}
        written |= {"kueue.x-k8s.io/podset-slice-required-topology": key, "kueue.x-k8s.io/podset-slice-size": size}
        return the_gang(cluster(RACKS, [pod(f"p-{n}", annotations=written) for n in range(4)]))

    assert job_of(sliced(RACK, "2")).spec.task_groups[0].topology.group == Bundle(2, "rack")
    wrong = ((ZONE, "2"), (RACK, ""), (RACK, "0"), (RACK, "100000"), (RACK, "9" * 5_000))
    assert [codes(sliced(*said)) for said in wrong] == [["slices"]] * len(wrong)


def test_segments_of_kai_are_bundles() -> None:
    key, size_key = "kai.scheduler/segment-topology-required-placement", "kai.scheduler/segment-size"

    def segmented(said: Sent, labels: Sent | None = None) -> PodGang:
        written = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "4", **said}
        return the_gang(cluster(RACKS, [pod(f"p-{n}", annotations=written, labels=labels or {}) for n in range(4)]))

    assert job_of(segmented({key: RACK, size_key: "2"})).spec.task_groups[0].topology.group == Bundle(2, "rack")
    assert codes(segmented({key: RACK})) == codes(segmented({key: ZONE, size_key: "2"})) == ["slices"]
    of_lws = {"leaderworkerset.sigs.k8s.io/name": "serve"}
    assert codes(segmented({key: RACK, size_key: "2"}, of_lws)) == ["slices"]
    soft = segmented({"kai.scheduler/segment-topology-preferred-placement": RACK, size_key: "2"})
    assert job_of(soft).spec.task_groups[0].topology.group == Bundle(2, preferred="rack")
    nowhere = segmented({"kai.scheduler/segment-topology-preferred-placement": ZONE, size_key: "2"})
    assert [remark.code for remark in nowhere.remarks] == ["segments"]
    assert job_of(nowhere).spec.task_groups[0].topology.group is None


def test_layers_of_slices_are_bundles_of_bundles() -> None:
    def layered(written: str) -> PodGang:
        said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "4"}
        said |= {"kueue.x-k8s.io/podset-slice-required-topology-constraints": written}
        return the_gang(cluster(RACKS, [pod(f"p-{n}", annotations=said) for n in range(4)]))

    one, two = {"topology": RACK, "size": 4}, {"topology": RACK, "size": 2}
    assert job_of(layered(json.dumps([one, two]))).spec.task_groups[0].topology.group == (
        Bundle(4, "rack"),
        Bundle(2, "rack"),
    )
    assert job_of(layered(json.dumps([two]))).spec.task_groups[0].topology.group == Bundle(2, "rack")
    wrong: tuple[object, ...] = (
        [two, one],
        [{**one, "size": 3}, two],
        [{**one, "topology": ZONE}],
        [{**one, "size": 0}],
        [],
        {},
    )
    assert [codes(layered(json.dumps(said))) for said in wrong] == [["slices"]] * len(wrong)
    assert codes(layered("[")) == ["slices"]


@pytest.mark.parametrize("on", ["pods", "what made them"])
def test_topology_of_kai_is_the_gangs_wherever_it_is_written(on: str) -> None:
    made_by = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/job-completion-index": "0"}

    def asked(said: Sent) -> PodGang:
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train", "namespace": "vision", "annotations": said if on != "pods" else {}},
            "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed"},
        }
        pods = [pod(f"p-{n}", labels=made_by, annotations=said if on == "pods" else {}) for n in range(2)]
        return the_gang(cluster(RACKS, pods, controllers=[job]))

    named = {"kai.scheduler/topology": "default"}
    hard = job_of(asked({**named, "kai.scheduler/topology-required-placement": RACK}))
    assert hard.spec.topology.required == "rack"
    soft = job_of(asked({**named, "kai.scheduler/topology-preferred-placement": RACK}))
    assert (soft.spec.topology.required, soft.spec.topology.preferred) == (None, ("rack",))
    assert codes(asked({"kai.scheduler/topology-required-placement": ZONE})) == ["not-a-level"]
    remarks = asked({"kai.scheduler/topology-preferred-placement": ZONE}).remarks
    assert [remark.code for remark in remarks] == ["not-a-level"]


def test_kueue_asks_for_one_domain_role_by_role() -> None:
    def roles(*asking: Sent) -> PodGang:
        said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": str(len(asking))}
        return the_gang(cluster(RACKS, [pod(f"p-{n}", annotations={**said, **one}) for n, one in enumerate(asking)]))

    rack = {"kueue.x-k8s.io/podset-required-topology": RACK}
    job = job_of(roles({"quorate.dev/role": "driver"}, rack, rack))
    assert [(group.name, group.topology.required) for group in job.spec.task_groups] == [
        ("driver", None),
        ("worker", "rack"),
    ]
    assert job.spec.topology.required is None
    anew = job_of(roles({"quorate.dev/role": "driver"}, {}, rack)).spec.task_groups
    assert [group.topology.required for group in anew] == [None, "rack"], "whichever of its pods says so"
    slices = {"kueue.x-k8s.io/podset-slice-required-topology": RACK, "kueue.x-k8s.io/podset-slice-size": "1"}
    sliced = job_of(roles({"quorate.dev/role": "driver"}, {**rack, **slices})).spec.task_groups[1].topology
    assert sliced == GroupTopology("rack", Bundle(1, "rack"))
    soft = job_of(roles({"quorate.dev/role": "driver"}, {"kueue.x-k8s.io/podset-preferred-topology": RACK}))
    assert [group.topology.preferred for group in soft.spec.task_groups] == [None, ("rack",)]
    assert soft.spec.topology.preferred is None
    whole = job_of(roles({**rack, **slices}, {**rack, **slices}))
    assert (whole.spec.topology.required, whole.spec.task_groups[0].topology.group) == ("rack", Bundle(1, "rack"))


def test_roles_of_one_podset_group_are_together() -> None:
    def roles(*asking: Sent) -> PodGang:
        said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": str(len(asking))}
        return the_gang(cluster(RACKS, [pod(f"p-{n}", annotations={**said, **one}) for n, one in enumerate(asking)]))

    asked = {"kueue.x-k8s.io/podset-group-name": "serve", "kueue.x-k8s.io/podset-required-topology": RACK}
    job = job_of(roles({"quorate.dev/role": "leader", **asked}, asked, {"quorate.dev/role": "cache"}))
    assert job.spec.topology.together == (Together(("leader", "worker"), "rack"),)
    assert [group.topology for group in job.spec.task_groups] == [GroupTopology()] * 3
    nowhere = {**asked, "kueue.x-k8s.io/podset-required-topology": ZONE}
    assert codes(roles({"quorate.dev/role": "leader", **nowhere}, nowhere)) == ["not-a-level"]


def test_unlike_pods_of_a_role_are_together() -> None:
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2", "kueue.x-k8s.io/podset-required-topology": RACK}
    pods = [pod(f"p-{n}", annotations=said, spec={"nodeSelector": {HOST: "a1"}} if n else {}) for n in range(2)]
    (found,) = job_of(the_gang(cluster(RACKS, pods))).spec.topology.together
    assert (len(found.groups), found.within) == (2, "rack")


def test_soft_wishes_spread_over_nodes_or_are_remarked() -> None:
    soft = gang(spread(HOST, when="ScheduleAnyway"), 2, RACKS)
    assert job_of(soft).spec.topology.placement == "spread"
    assert [remark.code for remark in gang(spread(ZONE, when="ScheduleAnyway"), 2, RACKS).remarks] == ["soft-spread"]


def test_pods_that_run_leave_nodes_out() -> None:
    others = [pod("web", on="a1", labels={"app": "web"}, namespace="vision")]
    by_host = gang(away(HOST, app="web"), 1, RACKS, others)
    by_rack = gang(away(RACK, app="web"), 1, RACKS, others)
    near = gang(away(RACK, "podAffinity", app="web"), 1, RACKS, others)
    assert [sorted(found.node_sets[0].nodes) for found in (by_host, by_rack, near)] == [
        ["a2", "b1", "b2"],
        ["b1", "b2"],
        ["a1", "a2"],
    ]
    elsewhere = [pod("web", on="a1", labels={"app": "web"}, namespace="other")]
    assert gang(away(HOST, app="web"), 1, RACKS, elsewhere).node_sets == ()
    everywhere = gang(away(HOST, app="web", namespaceSelector={}), 1, RACKS, elsewhere)
    assert sorted(everywhere.node_sets[0].nodes) == ["a2", "b1", "b2"]


def test_pods_that_run_keep_others_away_who_did_not_ask() -> None:
    others = [pod("web", on="a1", labels={"app": "web"}, spec=away(RACK))]
    assert sorted(gang({}, 1, RACKS, others).node_sets[0].nodes) == ["b1", "b2"]


def test_a_single_pod_is_spread_among_those_that_run() -> None:
    """max - min <= 1 over two racks of which one has a pod: only the other is left."""
    others = [pod("one", on="a1", labels={"app": "train"})]
    found = gang(spread(RACK), 1, RACKS, others)
    assert sorted(found.node_sets[0].nodes) == ["b1", "b2"]
    assert codes(gang(spread(RACK), 2, RACKS, others)) == ["spread-with-others"]


def test_labels_that_are_no_level_here_can_not_be_required() -> None:
    """Racks that are called the same in two blocks are one domain to Kubernetes and two here."""
    nodes = [node(f"n{block}", labels={"cloud.provider.com/topology-block": block, RACK: "r1"}) for block in "ab"]
    assert codes(gang(away(RACK, "podAffinity"), 2, nodes)) == ["pod-affinity"]


def test_roles_that_keep_apart_within_themselves_are_spread_by_themselves() -> None:
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "3"}
    pods = [
        pod("ps", gpus=0, annotations={**said, "quorate.dev/role": "ps"}, labels={"app": "ps"}),
        *(pod(f"w-{n}", annotations=said, labels={"app": "train"}, spec=away(HOST)) for n in range(2)),
    ]
    found = job_of(the_gang(cluster(RACKS, pods)))
    assert [group.topology.spread for group in found.spec.task_groups] == [None, Spread("node", 1)]
    partly = [pod("ps", annotations={**said, "quorate.dev/role": "ps"}, labels={"app": "train"}), *pods[1:]]
    assert codes(the_gang(cluster(RACKS, partly))) == ["part-of-gang"]


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({}, {"a": "1"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["1"]}]}, {"a": "1"}, False),
    ],
)
def test_selectors(selector: Sent, labels: dict[str, str], selected: bool) -> None:
    assert selects(read(selector, LabelSelector), labels) == selected
    assert not selects(None, labels)


def test_a_gang_that_keeps_apart_does_not_keep_itself_from_where_it_is() -> None:
    written = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"}
    pods = [pod(f"p-{on}", on=on, spec=away(HOST), labels={"app": "train"}, annotations=written) for on in ("a1", "b1")]
    found = the_gang(cluster(RACKS, pods))
    assert (found.node_sets, found.refusals) == ((), ())
    assert job_of(found).spec.topology.spread == Spread("node", 1)
