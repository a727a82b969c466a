"""Rows of CPU and memory: what each system says of them beside guarantees and limits, and that no word is lost."""

from __future__ import annotations

from tests.reconciler.importers.imports import entry, imported, quota, unknown

KAI = """\
    apiVersion: scheduling.run.ai/v2
    kind: Queue
    metadata: {name: builds}
    spec:
      resources:
        gpu: {quota: 0, limit: -1, overQuotaWeight: 2}
        cpu: {quota: 64000, limit: -1, overQuotaWeight: 2}
        memory: {quota: 256000, limit: -1, overQuotaWeight: 0}
    """


def test_kai_has_one_weight_and_nothing_over_quota_without_any() -> None:
    found = imported("kai", {"q.yaml": KAI}, only="H100")
    assert unknown(found) == []
    assert quota(found, "builds") == {
        "H100": {"guaranteed": 0},
        "cpu": {"guaranteed": 64},
        "memory": {"guaranteed": "250000000Ki", "max": "250000000Ki"},
    }
    for resource, target in (("cpu", "weight"), ("memory", "hostQuota of memory: max")):
        told = entry(found, f"spec.resources.{resource}.overQuotaWeight")
        assert (told.outcome, told.target) == ("carried", target)


def test_what_kai_guarantees_nothing_of_is_carried_and_another_weight_is_dropped() -> None:
    text = KAI.replace("quota: 64000", "quota: 0").replace(
        "limit: -1, overQuotaWeight: 2}\n        memory", "limit: 96000, overQuotaWeight: 5}\n        memory"
    )
    found = imported("kai", {"q.yaml": text}, only="H100")
    assert quota(found, "builds")["cpu"] == {"guaranteed": 0, "max": 96}
    assert entry(found, "spec.resources.cpu.quota").outcome == "carried"
    assert entry(found, "spec.resources.cpu.overQuotaWeight").outcome == "dropped"


KUEUE = """\
    apiVersion: kueue.x-k8s.io/v1beta1
    kind: ClusterQueue
    metadata: {name: builds}
    spec:
      cohort: all
      namespaceSelector: {}
      resourceGroups:
        - coveredResources: [cpu, memory]
          flavors:
            - name: any
              resources:
                - {name: cpu, nominalQuota: 48, borrowingLimit: 16, lendingLimit: 12}
                - {name: memory, nominalQuota: 256Gi, lendingLimit: 256Gi}
    """


def test_kueue_lends_no_more_of_cpu_than_its_limit() -> None:
    found = imported("kueue", {"q.yaml": KUEUE})
    assert unknown(found) == []
    rows = quota(found, "builds")
    assert rows["cpu"] == {"guaranteed": 48, "lendable": 12, "max": 64}
    assert rows["memory"] == {"guaranteed": "256Gi"}
    lent = [each.outcome for each in found.report.entries if each.field.endswith("lendingLimit")]
    assert lent == ["carried", "carried"]


def test_what_volcano_guarantees_is_never_lent() -> None:
    text = """\
    apiVersion: scheduling.volcano.sh/v1beta1
    kind: Queue
    metadata: {name: builds}
    spec: {deserved: {cpu: 48}, guarantee: {resource: {cpu: 16, memory: 64Gi}}, capability: {cpu: 64}}
    """
    found = imported("volcano", {"q.yaml": text})
    assert quota(found, "builds") == {
        "cpu": {"guaranteed": 48, "lendable": 32, "max": 64},
        "memory": {"guaranteed": "64Gi", "lendable": 0},
    }


def test_limits_of_cpu_for_all_users_of_an_account_are_those_of_each() -> None:
    accounts = """\
    Cluster|Account|User|ParentName|Partition|Share|GrpTRES|MaxTRES|QOS|Def QOS
    hall|root||||1||||
    hall| builds||root||1|cpu=256,mem=1T||normal|
    hall|  builds|ada|||1|cpu=64,mem=128G|||
    hall|  builds|bob|||1|cpu=64,mem=128G|||
    """
    conf = "PreemptType=preempt/none\nNodeName=n1 CPUs=96 RealMemory=1000\nPartitionName=all Nodes=n1\n"
    found = imported("slurm", {"slurm.conf": conf, "assoc.txt": accounts})
    assert quota(found, "builds") == {
        "cpu": {"max": 256, "perUser": 64},
        "memory": {"max": "1Ti", "perUser": "128Gi"},
    }


COHORT = """\
    apiVersion: kueue.x-k8s.io/v1beta1
    kind: Cohort
    metadata: {name: all}
    spec:
      resourceGroups:
        - coveredResources: [cpu]
          flavors: [{name: any, resources: [{name: cpu, nominalQuota: 32}]}]
    """


def test_a_cohort_of_kueue_shares_its_cpu_and_memory_with_the_queues_below_it() -> None:
    root = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: other}\nspec: {}\n"
    found = imported("kueue", {"cohort.yaml": COHORT, "q.yaml": KUEUE, "other.yaml": root})
    assert unknown(found) == []
    rows = quota(found, "all")
    assert rows["cpu"] == {"guaranteed": 80, "shared": True}
    assert rows["memory"] == {"guaranteed": "256Gi", "shared": True}


def test_queues_of_kai_that_deserve_more_cpu_than_the_queue_above_share_it() -> None:
    child = """\
    apiVersion: scheduling.run.ai/v2
    kind: Queue
    metadata: {name: NAME}
    spec:
      parentQueue: builds
      resources:
        gpu: {quota: 0, limit: -1}
        cpu: {quota: 48000, limit: -1}
        memory: {quota: 64000, limit: -1}
    """
    files = {f"{name}.yaml": child.replace("NAME", name) for name in ("one", "two")}
    found = imported("kai", {"q.yaml": KAI, **files}, only="H100")
    assert quota(found, "builds")["cpu"] == {"guaranteed": 64, "shared": True}
    assert "shared" not in quota(found, "builds")["memory"]
    assert [quota(found, name)["cpu"] for name in ("one", "two")] == [{"guaranteed": 16}, {"guaranteed": 16}]
