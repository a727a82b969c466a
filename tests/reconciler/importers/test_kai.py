"""KAI's queues: what each becomes, and configurations as they are found in public, of which no field is left unknown."""

from __future__ import annotations

import pytest

from reconciler.model.problem import InvalidDocumentsError
from tests.reconciler.importers.imports import documents, entry, imported, kube_node, quota, unknown

H100 = "H100-SXM5-80GB"


def queue(name: str, gpu: str, more: str = "") -> str:
    return f"""\
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}}}
spec:
{more}  resources:
    gpu: {gpu}
"""


def test_a_queue_without_a_limit_has_no_more_than_its_quota() -> None:
    text = queue("a", "{quota: 8}") + queue("b", "{quota: 4, limit: -1}") + queue("c", "{quota: 2, limit: 6}")
    found = imported("kai", {"queues.yaml": text}, only=H100)
    assert quota(found, "a") == {H100: {"guaranteed": 8, "max": 8}}
    assert quota(found, "b") == {H100: {"guaranteed": 4}}
    assert quota(found, "c") == {H100: {"guaranteed": 2, "max": 6}}
    assert entry(found, "spec.resources.gpu.limit", "Queue a").value == "(0)"


def test_weights_of_siblings_are_whole_and_none_over_quota_is_a_ceiling() -> None:
    text = queue("a", "{quota: 1, limit: -1, overQuotaWeight: 0.5}") + queue(
        "b", "{quota: 1, limit: -1, overQuotaWeight: 2}"
    )
    text += queue("c", "{quota: 3, limit: 9, overQuotaWeight: 0}")
    found = imported("kai", {"queues.yaml": text}, only=H100)
    queues = documents(found, "Queue")
    assert [queues[name].get("weight", 1) for name in "abc"] == [1, 4, 2]
    assert quota(found, "c") == {H100: {"guaranteed": 3, "max": 3}}


def test_children_that_deserve_more_than_their_parent_share_it() -> None:
    low = "  parentQueue: top\n"
    text = queue("top", "{quota: 8, limit: -1}") + queue("a", "{quota: 6, limit: 6}", low)
    found = imported("kai", {"queues.yaml": text + queue("b", "{quota: 5, limit: -1}", low)}, only=H100)
    assert quota(found, "top") == {H100: {"guaranteed": 8, "shared": True}}
    assert quota(found, "a") == {H100: {"guaranteed": 3, "max": 6}}
    assert quota(found, "b") == {H100: {"guaranteed": 2}}


def test_a_parent_is_raised_to_what_its_children_have() -> None:
    text = queue("top", "{quota: 0, limit: -1}") + queue("low", "{quota: 8, limit: 8}", "  parentQueue: top\n")
    found = imported("kai", {"queues.yaml": text}, only=H100)
    assert quota(found, "top") == {H100: {"guaranteed": 8}}
    assert [(each.queue, "raised" in each.message) for each in found.report.adjustments] == [("top", True)]


def test_the_type_comes_from_the_nodes() -> None:
    found = imported("kai", {"q.yaml": queue("a", "{quota: 8}")}, {"items": [kube_node("n1", 8)]})
    assert quota(found, "a") == {H100: {"guaranteed": 8, "max": 8}}


def test_gpus_of_no_type_are_asked_for() -> None:
    with pytest.raises(
        InvalidDocumentsError, match=r"q.yaml:2:1: error\[gpu-type\].*--nodes FILE, or say --gpu-type TYPE"
    ):
        imported("kai", {"q.yaml": queue("a", "{quota: 8}")})


def test_classes_from_100_on_are_not_preemptible_and_all_four_are_there() -> None:
    text = queue("a", "{quota: 8}", "  preemptMinRuntime: 10m\n  reclaimMinRuntime: 5m\n")
    text += "---\nkind: PriorityClass\nmetadata: {name: nightly}\nvalue: 130\n"
    classes = documents(imported("kai", {"q.yaml": text}, only=H100), "PriorityClass")
    pinned = {name for name, spec in classes.items() if not spec.get("preemptible", True)}
    assert set(classes) == {"train", "build-preemptible", "build", "inference", "nightly"}
    assert pinned == {"build", "inference", "nightly"}
    assert classes["train"]["protection"] == {"minRuntime": "10m"}


# As found in public; facts restated.

OPEN = "{quota: -1, limit: -1, overQuotaWeight: 1}"
NONE = "{quota: 0, limit: -1, overQuotaWeight: 1}"


def rest(amounts: str) -> str:
    return f"    cpu: {amounts}\n    memory: {amounts}\n"


def test_a_department_and_a_team_without_ends() -> None:
    text = (
        queue("department-1", OPEN) + rest(OPEN) + queue("team-a", OPEN, "  parentQueue: department-1\n") + rest(OPEN)
    )
    found = imported("kai", {"ray.yaml": text}, only=H100)
    assert unknown(found) == []
    assert documents(found, "Queue") == {"department-1": {}, "team-a": {"parent": "department-1"}}


def test_the_default_queues_guarantee_nothing() -> None:
    text = queue("default-parent-queue", NONE) + rest(NONE)
    text += queue("default-queue", NONE, "  parentQueue: default-parent-queue\n") + rest(NONE)
    found = imported("kai", {"default.yaml": text}, only=H100)
    assert unknown(found) == []
    assert quota(found, "default-queue") == {
        H100: {"guaranteed": 0},
        "cpu": {"guaranteed": 0},
        "memory": {"guaranteed": 0},
    }


def test_a_queue_among_other_objects_and_a_shard_of_its_own() -> None:
    text = queue("serve", NONE, "  displayName: Serving\n  priority: 200\n") + rest("{quota: 4000, limit: 8000}")
    text += "---\nkind: Namespace\nmetadata: {name: serve}\n---\nkind: SchedulingShard\nmetadata: {name: gpu}\nspec:\n"
    text += "  partitionLabelValue: gpu-nodes\n  args: {log-level: '3'}\n  placementStrategy: {gpu: binpack, cpu: binpack}\n"
    text += "  queueDepthPerAction: {preempt: 15}\n  minRuntime: {preemptMinRuntime: 10m, reclaimMinRuntime: 5m}\n"
    found = imported("kai", {"serve.yaml": text}, only=H100)
    assert unknown(found) == []
    assert quota(found, "serve")["cpu"] == {"guaranteed": 4, "max": 8}
    assert quota(found, "serve")["memory"] == {"guaranteed": "3906250Ki", "max": "7812500Ki"}
    assert entry(found, "spec.priority").outcome == "dropped"
    assert documents(found, "PriorityClass")["train"]["protection"] == {"minRuntime": "10m"}


def test_a_quota_over_all_types_is_of_one_and_closed_for_the_others() -> None:
    nodes = {"items": [kube_node("n1", 8), kube_node("n2", 8, **{"quorate.dev__gpu-type": "L4-24GB"})]}
    with pytest.raises(InvalidDocumentsError, match=r"the nodes have H100-SXM5-80GB, L4-24GB"):
        imported("kai", {"q.yaml": queue("a", "{quota: 8}")}, nodes)
    found = imported("kai", {"q.yaml": queue("a", "{quota: 8}")}, nodes, only=H100)
    assert quota(found, "a") == {H100: {"guaranteed": 8, "max": 8}, "L4-24GB": {"guaranteed": 0, "max": 0}}


def test_classes_of_the_system_do_not_make_all_values_ranks() -> None:
    text = (
        queue("a", "{quota: 8}")
        + "---\nkind: PriorityClass\nmetadata: {name: system-node-critical}\nvalue: 2000001000\n"
    )
    classes = documents(imported("kai", {"q.yaml": text}, only=H100), "PriorityClass")
    assert (classes["train"]["value"], "system-node-critical" in classes) == (50, False)
