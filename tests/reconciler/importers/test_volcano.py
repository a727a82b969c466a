"""Volcano's queues: what each becomes, and configurations as they are found in public, of which no field is left unknown."""

from __future__ import annotations

import pytest

from reconciler.model.problem import InvalidDocumentsError
from tests.reconciler.importers.imports import documents, entry, imported, quota, unknown

CAPACITY = """\
    kind: ConfigMap
    apiVersion: v1
    metadata: {name: volcano-scheduler-configmap, namespace: volcano-system}
    data:
      volcano-scheduler.conf: |
        actions: "enqueue, allocate, backfill, reclaim"
        tiers:
        - plugins:
          - name: priority
          - name: gang
            enablePreemptable: false
        - plugins:
          - name: drf
            enablePreemptable: false
          - name: capacity
    """


def queue(name: str, spec: str, more: str = "") -> str:
    return (
        f"---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata:\n  name: {name}\n{more}spec: {spec}\n"
    )


def test_deserved_is_guaranteed_and_a_guarantee_is_the_part_that_is_never_lent() -> None:
    spec = (
        "{deserved: {nvidia.com/gpu: 8}, guarantee: {resource: {nvidia.com/gpu: 2}}, capability: {nvidia.com/gpu: 16}}"
    )
    found = imported("volcano", {"q.yaml": queue("a", spec), "conf.yaml": CAPACITY}, only="H100")
    assert quota(found, "a") == {"H100": {"guaranteed": 8, "lendable": 6, "max": 16}}


def test_under_capacity_what_is_not_deserved_is_borrowed_and_under_proportion_it_is_a_share() -> None:
    text = queue("a", "{weight: 3, capability: {nvidia.com/gpu: 16}}")
    found = imported("volcano", {"q.yaml": text, "conf.yaml": CAPACITY}, only="H100")
    assert quota(found, "a") == {"H100": {"guaranteed": 0, "max": 16}}
    found = imported("volcano", {"q.yaml": text}, only="H100")
    assert quota(found, "a") == {"H100": {"max": 16}}
    assert (entry(found, "plugins").outcome, entry(found, "spec.weight").outcome) == ("asked", "carried")


def test_vendors_resources_are_types_by_a_table() -> None:
    text = queue("a", "{deserved: {nvidia.com/a100: 4, nvidia.com/v100: 2}}")
    found = imported("volcano", {"q.yaml": text}, **{"nvidia.com/a100": "A100"})
    assert quota(found, "a") == {"A100": {"guaranteed": 4}}
    assert entry(found, "spec.deserved.nvidia.com/v100").outcome == "dropped"


def test_a_tree_by_parents_leaves_the_root_out() -> None:
    text = (
        queue("root", "{capability: {cpu: 8}}")
        + queue("a", "{parent: root}")
        + queue("b", "{parent: a, dequeueStrategy: fifo}")
    )
    queues = documents(imported("volcano", {"q.yaml": text}), "Queue")
    assert queues == {"a": {}, "b": {"parent": "a", "ordering": {"by": "priority", "strict": True}}}


def test_a_parent_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidDocumentsError, match=r"q.yaml:2:1: error\[unknown-parent\]"):
        imported("volcano", {"q.yaml": queue("b", "{parent: a}")})


# As found in public; facts restated.


def hierarchy(path: str, weights: str) -> str:
    notes = f'  annotations:\n    "volcano.sh/hierarchy": "{path}"\n    "volcano.sh/hierarchy-weights": "{weights}"\n'
    return queue(path.replace("/", "-"), "{weight: 1}", notes)


def test_a_hierarchy_in_annotations_makes_its_inner_queues() -> None:
    paths = {"root/eng/prod": "1/2/8", "root/eng/dev": "1/2/2", "root/sci/prod": "1/8/8", "root/sci/dev": "1/8/2"}
    found = imported("volcano", {"h.yaml": "".join(hierarchy(*each) for each in paths.items())})
    assert unknown(found) == []
    queues = documents(found, "Queue")
    assert {name: (spec.get("parent"), spec.get("weight", 1)) for name, spec in queues.items()} == {
        "eng": (None, 1),
        "sci": (None, 4),
        "root-eng-prod": ("eng", 4),
        "root-eng-dev": ("eng", 1),
        "root-sci-prod": ("sci", 4),
        "root-sci-dev": ("sci", 1),
    }


def test_weights_that_differ_for_one_prefix_are_refused() -> None:
    text = hierarchy("root/eng/prod", "1/2/8") + hierarchy("root/eng/dev", "1/3/2")
    with pytest.raises(InvalidDocumentsError, match=r"h.yaml:17:1: error\[weights-differ\].*root/eng has the weight 2"):
        imported("volcano", {"h.yaml": text})


def test_two_queues_of_the_capacity_plugin_beside_its_configuration() -> None:
    text = queue("queue1", "{reclaimable: true, deserved: {cpu: 2, memory: 8Gi}}")
    text += queue("queue2", "{reclaimable: true, deserved: {cpu: 6, memory: 24Gi}}")
    found = imported("volcano", {"queues.yaml": text, "conf.yaml": CAPACITY})
    assert unknown(found) == []
    assert quota(found, "queue2") == {"cpu": {"guaranteed": 6}, "memory": {"guaranteed": "24Gi"}}
    assert entry(found, "tiers").note == "plugins: capacity, drf, gang, priority"


def test_a_queue_as_the_server_prints_it() -> None:
    more = '  creationTimestamp: "2020-08-10T11:54:36Z"\n  generation: 1\n  resourceVersion: "559"\n  uid: bf0\n'
    text = queue("default", '{reclaimable: true, weight: 1, capability: {cpu: "4", memory: "4096Mi"}}', more)
    text += "status:\n  state: Closed\n"
    found = imported("volcano", {"default.yaml": text})
    assert unknown(found) == []
    assert quota(found, "default") == {"cpu": {"max": 4}, "memory": {"max": "4Gi"}}
    assert documents(found, "Queue")["default"]["stopPolicy"] == "Hold"


def test_a_queue_of_devices_by_class_and_one_that_is_not_reclaimable() -> None:
    text = queue("devices", '{capability: {cpu: "100", "deviceclass/gpu.nvidia.com": "8"}}')
    text += queue("kept", "{weight: 1, reclaimable: false, capability: {cpu: 2}}")
    found = imported("volcano", {"q.yaml": text})
    assert unknown(found) == []
    assert entry(found, "spec.reclaimable").outcome == "dropped"
    assert entry(found, "spec.capability.deviceclass/gpu.nvidia.com").outcome == "dropped"
