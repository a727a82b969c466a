"""Whatever pods say of nodes, also those that replace others of gangs that run: none is bound to a node that its spec excludes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.control.starts import bindings_of
from solver.checker.check import violations
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from solver.model.workload import QueueName
from solver.policy.policy import Queue, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.reconciler.kubernetes.samples import Sent, cluster, node, pod
from tests.solver.worlds import quota_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEYS, VALUES = ("zone", "disk"), ("a", "b")

EXPRESSIONS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
    }
)
WHERE = st.fixed_dictionaries(
    {
        "selector": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
        "terms": st.lists(st.lists(EXPRESSIONS, min_size=1, max_size=2), max_size=2),
        "tolerates": st.booleans(),
        "gated": st.sampled_from([False, False, False, True]),
        "apart": st.sampled_from([False, False, True]),
    }
)
NODES = st.lists(
    st.fixed_dictionaries(
        {
            "labels": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2),
            "tainted": st.booleans(),
            "gpus": st.sampled_from([0, 2, 4]),
        }
    ),
    min_size=1,
    max_size=4,
)
GANGS = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.integers(0, 2),
            "size": st.integers(1, 2),
            "runs_on": st.lists(st.integers(0, 3), max_size=2),
            "waits": st.lists(WHERE, max_size=3),
            "alike": st.booleans(),
        }
    ),
    min_size=1,
    max_size=3,
)


def spec_of(where: Mapping[str, Any]) -> Sent:
    terms = [{"matchExpressions": expressions} for expressions in where["terms"]]
    affinity: Sent = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}} if terms else {}
    if where["apart"]:
        selector = {"matchLabels": {"keeps": "apart"}}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        affinity["podAntiAffinity"] = {REQUIRED: [term]}
    return {
        "nodeSelector": where["selector"],
        **({"affinity": affinity} if affinity else {}),
        "tolerations": [{"key": "theirs", "operator": "Exists"}] if where["tolerates"] else [],
        "schedulingGates": [{"name": "example.com/not-yet"}] if where["gated"] else [],
    }


def pods_of(number: int, drawn: Mapping[str, Any], names: list[str]) -> Iterator[Sent]:
    """A gang: pods that run, and others that wait. `alike`: all wait for the same place, so that they are one task group."""
    said = {"quorate.dev/gang": f"g{number}", "quorate.dev/gang-size": str(drawn["size"])}
    waits = drawn["waits"]
    specs = [spec_of(waits[0] if drawn["alike"] else where) for where in waits]
    running = {key: value for key, value in specs[0].items() if key != "schedulingGates"} if specs else {}
    for index, at in enumerate(drawn["runs_on"]):
        name = names[at % len(names)]
        yield pod(f"g{number}-r{index}", drawn["gpus"], on=name, annotations=said, spec=running)
    for index, spec in enumerate(specs):
        labels = {"keeps": "apart"} if waits[index]["apart"] else {}
        yield pod(f"g{number}-w{index}", drawn["gpus"], annotations=said, spec=spec, labels=labels)


def excludes(spec: Sent, on: Sent) -> bool:
    """By what Kubernetes' documentation says, and nothing of the code that is tried."""
    labels = on["metadata"]["labels"]
    if any(labels.get(key) != value for key, value in spec["nodeSelector"].items()):
        return True
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms")
    if terms is not None and not any(all(holds(one, labels) for one in term["matchExpressions"]) for term in terms):
        return True
    return bool(on["spec"]["taints"]) and not spec["tolerations"]


def holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    there, values = labels.get(expression["key"]), expression["values"]
    return {
        "In": there is not None and there in values,
        "NotIn": there is None or there not in values,
        "Exists": there is not None,
        "DoesNotExist": there is None,
    }[expression["operator"]]


@worlds(300)
@given(NODES, GANGS)
def test_no_pod_is_bound_where_its_own_spec_excludes_it(
    drawn_nodes: list[dict[str, Any]], drawn: list[dict[str, Any]]
) -> None:
    taint = [{"key": "theirs", "effect": "NoSchedule"}]
    nodes = [
        node(f"n{number}", one["gpus"], labels=one["labels"], taints=taint if one["tainted"] else [])
        for number, one in enumerate(drawn_nodes)
    ]
    names = [one["metadata"]["name"] for one in nodes]
    pods = [sent for number, one in enumerate(drawn) for sent in pods_of(number, one, names)]
    seen = cluster(nodes, pods)
    snapshot = snapshot_of(Instant(0), seen.nodes, seen.jobs, node_sets=seen.node_sets)
    policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100-SXM5-80GB", 64),)),))
    plan = solve(snapshot, policy, None)
    assert violations(snapshot, policy, plan) == ()
    gangs = {gang.name: gang for gang in seen.gangs}
    by_name = {one["metadata"]["name"]: one for one in nodes}
    sent = {one["metadata"]["name"]: one for one in pods}
    for gang in bindings_of(plan.steps, gangs):
        assert not gangs[gang.job].refusals, "who is refused is not bound"
        for bound in gang.pods:
            spec, on = sent[bound.name]["spec"], by_name[bound.node]
            assert not excludes(spec, on), (spec, on)
            assert not spec["schedulingGates"], "the API server refuses a Binding of a pod with gates"
            asked = spec["containers"][0]["resources"]["requests"].get("nvidia.com/gpu", "0")
            assert int(asked) <= int(on["status"]["capacity"].get("nvidia.com/gpu", "0"))
