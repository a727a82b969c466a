"""Kueue's objects: what each becomes, and configurations as they are found in public, of which no field is left unknown."""

from __future__ import annotations

import pytest

from reconciler.model.problem import InvalidDocumentsError
from tests.reconciler.importers.imports import documents, entry, imported, kube_node, outcomes, quota, unknown

H100 = "H100-SXM5-80GB"

TWO_TEAMS = """\
    apiVersion: kueue.x-k8s.io/v1beta2
    kind: ClusterQueue
    metadata: {name: Vision_Team}
    spec:
      cohortName: research
      namespaceSelector: {}
      queueingStrategy: StrictFIFO
      fairSharing: {weight: 500m}
      preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
      resourceGroups:
        - coveredResources: [nvidia.com/gpu]
          flavors:
            - name: h100
              resources:
                - {name: nvidia.com/gpu, nominalQuota: 16, borrowingLimit: 8, lendingLimit: 4}
    ---
    apiVersion: kueue.x-k8s.io/v1beta1
    kind: ClusterQueue
    metadata: {name: language}
    spec:
      cohort: research
      namespaceSelector: {}
      preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
      resourceGroups:
        - coveredResources: [nvidia.com/gpu]
          flavors:
            - name: a100
              resources: [{name: nvidia.com/gpu, nominalQuota: 4}]
    ---
    apiVersion: kueue.x-k8s.io/v1alpha1
    kind: Cohort
    metadata: {name: research}
    spec:
      parent: company
      resourceGroups:
        - coveredResources: [nvidia.com/gpu]
          flavors:
            - name: h100
              resources: [{name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 2}]
    """


def test_a_cluster_queue_has_its_quota_limits_weight_and_order() -> None:
    found = imported("kueue", {"queues.yaml": TWO_TEAMS}, h100=H100, a100="A100")
    assert quota(found, "vision-team")[H100] == {"guaranteed": 16, "lendable": 4, "max": 24}
    spec = documents(found, "Queue")["vision-team"]
    assert spec["parent"] == "research"
    assert spec["ordering"] == {"by": "priority", "strict": True}
    # 500m beside a sibling that says nothing, which counts as 1.
    assert "weight" not in spec
    assert documents(found, "Queue")["language"]["weight"] == 2
    assert found.report.renamings[0].after == "vision-team"


def test_every_document_says_where_it_comes_from() -> None:
    found = imported("kueue", {"queues.yaml": TWO_TEAMS}, h100=H100, a100="A100")
    assert "# From ClusterQueue language, queues.yaml:17." in found.files["policies/queues/language.yaml"]
    assert all("# From " in text for path, text in found.files.items() if path != "policies/scheduling.yaml")


def test_a_cohorts_own_quota_comes_on_top_of_those_below_it() -> None:
    found = imported("kueue", {"queues.yaml": TWO_TEAMS}, h100=H100, a100="A100")
    assert quota(found, "research")[H100] == {"guaranteed": 24, "max": 26, "shared": True}
    assert quota(found, "company") == {"A100": {"guaranteed": 4}, H100: {"guaranteed": 24}}


def test_cohorts_in_cohorts_have_the_sum_of_those_below_them_and_say_where_quota_is_in_common() -> None:
    """From the lowest up, in whatever order the files have them: a cohort without it would have a share of the cluster."""
    cohorts = {"all": "", "org": "all", "eu": "org", "lab": "eu", "shop": "eu", "us": "org"}
    made = [
        f"apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {{name: {name}}}\n"
        f"spec: {{{f'parentName: {parent}' if parent else ''}}}\n"
        for name, parent in cohorts.items()
    ]
    for name, cohort, gpus in (("vision", "lab", 16), ("ranking", "shop", 8), ("speech", "us", 4)):
        group = f"{{name: h100, resources: [{{name: nvidia.com/gpu, nominalQuota: {gpus}}}]}}"
        made.append(
            f"apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {{name: {name}}}\nspec:\n  cohort: {cohort}\n"
            f"  resourceGroups: [{{coveredResources: [nvidia.com/gpu], flavors: [{group}]}}]\n"
        )
    found = imported("kueue", {"queues.yaml": "---\n".join(made)}, h100=H100)
    held = {name: quota(found, name)[H100] for name in cohorts}
    assert {name: row["guaranteed"] for name, row in held.items()} == {
        "all": 28,
        "org": 28,
        "eu": 24,
        "lab": 16,
        "shop": 8,
        "us": 4,
    }
    assert [name for name, row in held.items() if row.get("shared")] == ["org"]
    said = {
        each.record: each.note for each in found.report.entries if each.outcome == "changed" and "common" in each.note
    }
    assert said.keys() == {f"Cohort {name}" for name in cohorts} - {"Cohort org"}
    assert "in common in queue org above it" in said["Cohort lab"]
    assert "between them guarantees alone are taken back" in said["Cohort all"]


def test_a_flavor_that_is_not_listed_cant_be_used() -> None:
    found = imported("kueue", {"queues.yaml": TWO_TEAMS}, h100=H100, a100="A100")
    assert quota(found, "language")[H100] == {"guaranteed": 0, "max": 0}


def test_without_a_cohort_nothing_is_borrowed() -> None:
    found = imported(
        "kueue", {"q.yaml": TWO_TEAMS.replace("cohort: research", "stopPolicy: Hold")}, h100=H100, a100="A1"
    )
    assert quota(found, "language")["A1"] == {"guaranteed": 4, "max": 4}
    assert documents(found, "Queue")["language"]["stopPolicy"] == "Hold"


def test_two_flavors_of_one_type_add_up() -> None:
    found = imported("kueue", {"q.yaml": TWO_TEAMS.replace("name: a100", "name: spot")}, h100=H100, spot=H100)
    assert quota(found, "company") == {H100: {"guaranteed": 28}}


def test_a_type_that_cant_be_told_is_asked_for() -> None:
    with pytest.raises(InvalidDocumentsError) as refused:
        imported("kueue", {"queues.yaml": TWO_TEAMS}, h100=H100)
    (problem,) = refused.value.problems
    assert (problem.file, problem.line, problem.code) == ("queues.yaml", 28, "gpu-type")
    assert "--gpu-type a100=TYPE" in problem.fix


def test_a_number_that_is_none_is_an_error_with_its_place() -> None:
    with pytest.raises(InvalidDocumentsError, match=r"queues.yaml:28:1: error\[quantity\].*'many'"):
        imported(
            "kueue", {"queues.yaml": TWO_TEAMS.replace("nominalQuota: 4", "nominalQuota: many")}, h100=H100, a100="A"
        )


def test_fair_sharing_is_asked_for_where_the_configuration_is_missing_and_read_where_it_is_there() -> None:
    found = imported("kueue", {"queues.yaml": TWO_TEAMS}, h100=H100, a100="A100")
    assert documents(found, "SchedulingPolicy")["default"] == {"reclaim": "guaranteed"}
    assert entry(found, "fairSharing").outcome == "asked"
    manager = """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: kueue-manager-config, namespace: kueue-system}
        data:
          controller_manager_config.yaml: |
            apiVersion: config.kueue.x-k8s.io/v1beta1
            kind: Configuration
            fairSharing:
              enable: true
              preemptionStrategies: [LessThanOrEqualToFinalShare]
            admissionFairSharing: {usageHalfLifeTime: 168h}
            waitForPodsReady: {enable: true, timeout: 10m}
            integrations: {frameworks: [batch/job]}
        """
    found = imported("kueue", {"queues.yaml": TWO_TEAMS, "manager.yaml": manager}, h100=H100, a100="A100")
    said = {"reclaim": "fair-share", "usageHalfLife": "168h", "startDeadline": "10m"}
    assert documents(found, "SchedulingPolicy")["default"] == said
    assert entry(found, "waitForPodsReady").line == 12
    assert unknown(found) == []


def test_priority_classes_keep_their_order_and_what_may_yield() -> None:
    classes = """\
        kind: WorkloadPriorityClass
        metadata: {name: urgent}
        value: 2000000000
        ---
        kind: WorkloadPriorityClass
        metadata: {name: usual}
        value: 100
        """
    found = imported("kueue", {"queues.yaml": TWO_TEAMS, "classes.yaml": classes}, h100=H100, a100="A100")
    assert documents(found, "PriorityClass") == {
        "urgent": {"value": 20, "scope": "cluster"},
        "usual": {"value": 10, "scope": "cluster"},
    }
    never = TWO_TEAMS.replace("LowerPriority", "Never")
    found = imported("kueue", {"queues.yaml": never, "classes.yaml": classes}, h100=H100, a100="A100")
    assert documents(found, "PriorityClass")["urgent"] == {"value": 20, "scope": "cluster"}
    assert {spec.get("preemptWithin") for spec in documents(found, "Queue").values()} == {None, "never"}


def test_below_which_value_borrowed_work_goes_first_is_said_by_the_queue() -> None:
    rules = "{borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}, reclaimWithinCohort: Any,"
    text = TWO_TEAMS.replace("{reclaimWithinCohort: Any,", rules)
    classes = "---\n".join(
        f"kind: WorkloadPriorityClass\nmetadata: {{name: c{v}}}\nvalue: {v}\n" for v in (7, 2_000_000_000)
    )
    found = imported("kueue", {"queues.yaml": text}, h100=H100, a100="A100")
    assert documents(found, "Queue")["language"]["reclaimBelow"] == 101
    # Values too large for a document are ranked, and the threshold among them: above the first, below the second.
    found = imported("kueue", {"queues.yaml": text, "classes.yaml": classes}, h100=H100, a100="A100")
    values = [spec["value"] for spec in documents(found, "PriorityClass").values()]
    assert min(values) < documents(found, "Queue")["language"]["reclaimBelow"] <= max(values)


def test_how_a_cluster_queue_preempts_inside_is_said_by_its_queue() -> None:
    for mode, said in (("Never", "never"), ("LowerPriority", None), ("LowerOrNewerEqualPriority", "lower-or-newer")):
        text = TWO_TEAMS.replace("withinClusterQueue: LowerPriority", f"withinClusterQueue: {mode}")
        found = imported("kueue", {"queues.yaml": text}, h100=H100, a100="A100")
        assert documents(found, "Queue")["language"].get("preemptWithin") == said
        assert entry(found, "spec.preemption.withinClusterQueue", "language").outcome == "carried"


def test_local_queues_are_access_under_the_name_that_pods_use() -> None:
    local = """\
        kind: LocalQueue
        metadata: {name: lq, namespace: cats}
        spec: {clusterQueue: language}
        ---
        kind: LocalQueue
        metadata: {name: default, namespace: cats}
        spec: {clusterQueue: Vision_Team}
        ---
        kind: LocalQueue
        metadata: {name: lost, namespace: cats}
        spec: {clusterQueue: elsewhere}
        """
    found = imported("kueue", {"queues.yaml": TWO_TEAMS, "local.yaml": local}, h100=H100, a100="A100")
    queues = documents(found, "Queue")
    assert queues["language"]["access"] == {"namespaces": [{"name": "cats", "localQueues": ["lq"]}]}
    assert queues["vision-team"]["access"]["namespaces"][0]["default"] is True
    assert entry(found, "spec.clusterQueue", "lost").outcome == "asked"
    # A namespace without a LocalQueue has none there either.
    assert documents(found, "SchedulingPolicy")["default"]["unlistedNamespaces"] == "refused"


def test_a_field_that_is_not_known_is_said() -> None:
    found = imported(
        "kueue",
        {"q.yaml": TWO_TEAMS.replace("cohort: research", "cohort: research\n      brandNew: 1")},
        h100=H100,
        a100="A",
    )
    assert unknown(found) == ["q.yaml:22: spec.brandNew"]


# As found in public; facts restated.

TOPOLOGY = """\
    apiVersion: kueue.x-k8s.io/v1beta1
    kind: Topology
    metadata: {name: fabric}
    spec:
      levels:
        - {nodeLabel: example.com/block}
        - {nodeLabel: example.com/rack}
        - {nodeLabel: kubernetes.io/hostname}
    ---
    apiVersion: kueue.x-k8s.io/v1beta1
    kind: ResourceFlavor
    metadata: {name: close}
    spec:
      nodeLabels: {example.com/group: close}
      topologyName: fabric
      tolerations:
        - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
    ---
    apiVersion: kueue.x-k8s.io/v1beta1
    kind: ClusterQueue
    metadata: {name: close-queue}
    spec:
      namespaceSelector: {}
      resourceGroups:
        - coveredResources: [cpu, memory, nvidia.com/gpu]
          flavors:
            - name: close
              resources:
                - {name: cpu, nominalQuota: 100}
                - {name: memory, nominalQuota: 100Gi}
                - {name: nvidia.com/gpu, nominalQuota: 16}
    ---
    apiVersion: kueue.x-k8s.io/v1beta1
    kind: LocalQueue
    metadata: {namespace: default, name: close-user-queue}
    spec: {clusterQueue: close-queue}
    """


def test_a_cluster_with_topology_and_its_nodes() -> None:
    group = {"example.com__group": "close"}
    nodes = {
        "items": [
            kube_node("n1", 8, **group, **{"example.com__block": "b1", "example.com__rack": "r1"}),
            kube_node("n2", 8, **group, **{"example.com__block": "b1", "example.com__rack": "r2"}),
            kube_node("far", 8, **{"quorate.dev__pool": "far"}),
        ]
    }
    found = imported("kueue", {"tas.yaml": TOPOLOGY}, nodes)
    assert unknown(found) == []
    assert quota(found, "close-queue") == {
        H100: {"guaranteed": 16, "max": 16},
        "cpu": {"guaranteed": 100, "max": 100},
        "memory": {"guaranteed": "100Gi", "max": "100Gi"},
    }
    assert documents(found, "Queue")["close-queue"]["pools"] == ["h100-sxm5-80gb"]
    assert documents(found, "NodePool")["h100-sxm5-80gb"]["nodes"] == {"names": ["n1", "n2"]}
    assert documents(found, "Topology")["h100-sxm5-80gb"]["domains"] == [
        {"level": "block", "name": "b1"},
        {"level": "rack", "name": "r1", "parent": "b1", "nodes": ["n1"]},
        {"level": "rack", "name": "r2", "parent": "b1", "nodes": ["n2"]},
    ]


def test_a_cohort_of_queues_that_preempt_in_different_ways() -> None:
    def queue(name: str, rules: str) -> str:
        return f"""\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  cohort: foundation
  namespaceSelector: {{}}
  preemption: {rules}
  flavorFungibility: {{whenCanBorrow: MayStopSearch, whenCanPreempt: MayStopSearch}}
  resourceGroups:
    - coveredResources: [cpu, memory]
      flavors: [{{name: any, resources: [{{name: cpu, nominalQuota: 300m}}, {{name: memory, nominalQuota: 300Mi}}]}}]
    - coveredResources: [gpu]
      flavors: [{{name: any, resources: [{{name: gpu, nominalQuota: 1Gi}}]}}]
"""

    rules = (
        "{borrowWithinCohort: {policy: LowerPriority}, withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}",
        "{reclaimWithinCohort: Never}",
        "{reclaimWithinCohort: LowerPriority}",
    )
    text = "---\n".join(queue(f"queue-{number}", each) for number, each in enumerate(rules))
    text += "---\nkind: Cohort\nmetadata: {name: foundation}\nspec: {}\n---\nkind: Cohort\nmetadata: {name: orphan}\nspec: {}\n"
    text += "---\nkind: ClusterQueue\nmetadata: {name: unused}\nspec: {namespaceSelector: {}}\n"
    found = imported("kueue", {"cohort.yaml": text})
    assert unknown(found) == []
    assert quota(found, "foundation") == {
        "cpu": {"guaranteed": "900m", "shared": True},
        "memory": {"guaranteed": "900Mi", "shared": True},
    }
    fields = [entry(found, "spec.preemption.reclaimWithinCohort", f"queue-{number}").outcome for number in range(3)]
    assert fields == ["carried", "changed", "changed"]
    assert entry(found, "spec.preemption.borrowWithinCohort").outcome == "carried"
    assert documents(found, "Queue")["queue-0"]["reclaimBelow"] == 1_000_001
    assert "orphan" in documents(found, "Queue")


def test_a_single_strict_queue_with_storage() -> None:
    text = """\
        apiVersion: kueue.x-k8s.io/v1beta2
        kind: ClusterQueue
        metadata: {name: nightly}
        spec:
          namespaceSelector: {}
          preemption: {withinClusterQueue: Never, reclaimWithinCohort: Never}
          queueingStrategy: StrictFIFO
          resourceGroups:
            - coveredResources: [cpu, memory, nvidia.com/gpu, ephemeral-storage]
              flavors:
                - name: gb200
                  resources:
                    - {name: cpu, nominalQuota: 320}
                    - {name: memory, nominalQuota: 5120Gi}
                    - {name: nvidia.com/gpu, nominalQuota: 40}
                    - {name: ephemeral-storage, nominalQuota: 1280Gi}
        """
    found = imported("kueue", {"nightly.yaml": text}, gb200="GB200")
    assert outcomes(found) == {"carried": 13, "changed": 2, "asked": 1, "dropped": 1}
    assert quota(found, "nightly")["GB200"] == {"guaranteed": 40, "max": 40}
    assert quota(found, "nightly")["memory"] == {"guaranteed": "5Ti", "max": "5Ti"}


def test_local_queues_that_share_by_use_are_queues() -> None:
    text = """\
        kind: ClusterQueue
        metadata: {name: shared}
        spec:
          namespaceSelector: {}
          queueingStrategy: StrictFIFO
          admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
          admissionChecks: [multikueue-gpu]
          resourceGroups:
            - coveredResources: [cpu]
              flavors: [{name: any, resources: [{name: cpu, nominalQuota: 9}]}]
        ---
        kind: LocalQueue
        metadata: {namespace: default, name: lq-a}
        spec: {clusterQueue: shared, fairSharing: {weight: "2"}}
        ---
        kind: LocalQueue
        metadata: {namespace: default, name: lq-b}
        spec: {clusterQueue: shared, fairSharing: {weight: "1"}}
        ---
        kind: AdmissionCheck
        metadata: {name: multikueue-gpu}
        spec: {controllerName: kueue.x-k8s.io/multikueue}
        """
    found = imported("kueue", {"fair.yaml": text})
    assert unknown(found) == []
    queues = documents(found, "Queue")
    assert queues["shared-default-lq-a"]["parent"] == "shared"
    assert queues["shared-default-lq-a"]["weight"] == 2
    assert queues["shared-default-lq-b"]["access"]["namespaces"] == [{"name": "default", "localQueues": ["lq-b"]}]
