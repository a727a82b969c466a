"""YuniKorn's tree: what each field becomes, and configurations as they are found in public, of which none is left unknown."""

from __future__ import annotations

import pytest

from tests.reconciler.importers.imports import documents, entry, imported, quota, unknown

GPUS = """\
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: yunikorn-configs, namespace: yunikorn}
    data:
      service.schedulingInterval: 1s
      queues.yaml: |
        partitions:
          - name: default
            queues:
              - name: root
                submitacl: '*'
                queues:
                  - name: search
                    resources:
                      guaranteed: {memory: 400Gi, vcore: 40500m, nvidia.com/gpu: 8}
                      max: {nvidia.com/gpu: 16}
                    limits:
                      - limit: each user
                        users: ['*']
                        maxresources: {nvidia.com/gpu: 4, memory: 1G}
                    properties:
                      application.sort.policy: fifo
                      application.sort.priority: disabled
                      preemption.delay: 30s
                  - name: Ad_hoc
                    adminacl: 'ada,bob admins'
                    submitacl: ' guests'
    """


def test_a_leaf_that_is_guaranteed_nothing_says_so_and_a_parent_has_the_sum() -> None:
    found = imported("yunikorn", {"config.yaml": GPUS}, only="H100")
    assert quota(found, "root") == {"H100": {"guaranteed": 8}}
    assert quota(found, "ad-hoc") == {"H100": {"guaranteed": 0}}
    assert quota(found, "search") == {
        "H100": {"guaranteed": 8, "max": 16, "perUser": 4},
        "cpu": {"guaranteed": "40500m"},
        "memory": {"guaranteed": "400Gi", "perUser": 10**9},
    }


def test_access_lists_are_users_a_blank_and_groups() -> None:
    queues = documents(imported("yunikorn", {"config.yaml": GPUS}, only="H100"), "Queue")
    assert queues["root"]["access"] == {"submitters": ["group:*"]}
    assert queues["ad-hoc"]["access"] == {
        "submitters": ["group:guests"],
        "admins": ["user:ada", "user:bob", "group:admins"],
    }


def test_order_and_delays_are_the_queues_and_lines_those_of_the_map() -> None:
    found = imported("yunikorn", {"config.yaml": GPUS}, only="H100")
    assert documents(found, "Queue")["search"]["ordering"] == {"by": "fifo"}
    assert documents(found, "Queue")["search"]["preemptAfter"] == "30s"
    assert "# From queue root.Ad_hoc, config.yaml:25." in found.files["policies/queues/ad-hoc.yaml"]
    assert entry(found, "data.service.schedulingInterval").outcome == "dropped"
    assert unknown(found) == []


@pytest.mark.parametrize(
    ("policy", "outcome", "fields"),
    [
        ("default", "carried", {}),
        ("Disabled", "changed", {"preemptWithin": "never", "reclaimedFor": "guaranteed"}),
        ("fence", "dropped", {}),
        ("fenced", "dropped", {}),
    ],
)
def test_how_a_queue_preempts_and_is_preempted(policy: str, outcome: str, fields: dict[str, str]) -> None:
    text = """\
        partitions:
          - name: default
            queues: [{name: team, properties: {preemption.policy: %s}}, {name: other}]
        """
    found = imported("yunikorn", {"queues.yaml": text % policy})
    spec = documents(found, "Queue")["team"]
    assert {key: spec[key] for key in ("preemptWithin", "reclaimedFor") if key in spec} == fields
    (noted,) = (each for each in found.report.entries if each.field.endswith("preemption.policy"))
    assert noted.outcome == outcome


# As found in public; facts restated.


def test_two_partitions_with_rules_and_limits_of_some_users() -> None:
    text = """\
        partitions:
          - name: default
            nodesortpolicy: {type: binpacking}
            placementrules:
              - name: User
                create: true
                parent: {name: Provided, create: false}
                filter: {type: allow, groups: [sandbox]}
              - {name: Provided, create: true}
            limits:
              - {limit: for a user, users: [user1], maxresources: {memory: 10000, vcore: 10}}
              - {limit: for a group, groups: [sandbox], maxapplications: 10}
            queues:
              - name: root
                queues:
                  - name: advertisement
                    resources: {guaranteed: {memory: 500000, vcore: 50000}, max: {memory: 800000, vcore: 80000}}
                  - name: search
                    resources: {guaranteed: {memory: 400000, vcore: 40000}}
                  - name: sandbox
                    parent: true
                    submitacl: ' sandbox'
                    resources: {guaranteed: {memory: 100000}, max: {memory: 100000}}
          - name: gpu
            queues:
              - {name: production, adminacl: admin admin, maxapplications: 10}
              - {name: test, properties: {x: y}, limits: [{limit: l, users: [u], maxresources: {gpu: 50}}]}
        """
    found = imported("yunikorn", {"queues.yaml": text})
    assert unknown(found) == []
    assert set(documents(found, "Queue")) == {"advertisement", "search", "sandbox"}
    assert quota(found, "advertisement")["cpu"] == {"guaranteed": 50000, "max": 80000}
    assert entry(found, "partitions[1]").outcome == "dropped"
    assert entry(found, "partitions[0].placementrules[0]").outcome == "dropped"


def test_limits_of_users_and_groups_at_every_level() -> None:
    text = """\
        partitions:
          - name: default
            queues:
              - name: root
                limits:
                  - {limit: , users: [john, sue], maxapplications: 10, maxresources: {memory: 10000, vcore: 10}}
                  - {limit: , users: [bob], maxapplications: 100}
                queues:
                  - name: level1
                    limits:
                      - {limit: , users: [user@domain], maxapplications: 10}
                      - {limit: , groups: ['*'], maxapplications: 10}
                    queues:
                      - {name: level2-2, limits: [{limit: , users: [user@domain], maxapplications: 1}]}
                      - {name: level2-3}
        """
    found = imported("yunikorn", {"limit.yaml": text})
    assert unknown(found) == []
    parents = {name: spec.get("parent") for name, spec in documents(found, "Queue").items()}
    assert parents == {"root": None, "level1": "root", "level2-2": "level1", "level2-3": "level1"}
    assert {each.outcome for each in found.report.entries if ".limits" in each.field} == {"carried", "dropped"}


def test_teams_in_a_defaults_map_with_cpu_by_another_name() -> None:
    text = """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: yunikorn-defaults, namespace: yunikorn-system}
        data:
          queues.yaml: |
            partitions:
              - name: default
                preemption: {enabled: false}
                queues:
                  - name: root
                    submitacl: "*"
                    queues:
                      - name: spark
                        resources:
                          guaranteed: {cpu: 10, memory: 20Gi}
                          max: {cpu: 50, memory: 100Gi}
                        queues:
                          - name: team-a
                            resources: {guaranteed: {cpu: 5, memory: 10Gi}, max: {cpu: 20, memory: 40Gi}}
                            childtemplate: {maxapplications: 10, properties: {application.sort.policy: fair}}
        """
    found = imported("yunikorn", {"defaults.yaml": text})
    assert unknown(found) == []
    assert quota(found, "team-a") == {
        "cpu": {"guaranteed": 5, "max": 20},
        "memory": {"guaranteed": "10Gi", "max": "40Gi"},
    }
    assert documents(found, "SchedulingPolicy")["default"]["evictions"] == {"perRound": 0, "movesPerRound": 0}
