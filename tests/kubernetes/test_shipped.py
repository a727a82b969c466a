"""What deploy/ installs: the chart and the base say the same, a real API server takes it, and it is no more than it should be."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.components import ComponentMissingError
from hack.kubernetes.shipped import (
    ACCOUNT,
    BASE,
    DEPLOY,
    GROUPS,
    NAMESPACE,
    base_objects,
    charted,
    keyed,
    kustomized,
    notes,
    objects_in,
    path_of,
)
from hack.release.packages import chart as archive
from hack.release.source import Source
from hack.release.version import ROOT, version
from reconciler.kubernetes.client.refusals import NotAllowedError
from reconciler.kubernetes.objects.resource import NODES, Resource
from tests.kubernetes.fencing import as_quorate
from tests.kubernetes.sessions import CONFIG_MAPS, REAL, a_namespace, session

REPOSITORY = "https://git.example.com/cluster/policy.git"
REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews")
Objects = dict[tuple[str, str, str], dict[str, Any]]


def chart(namespace: str = NAMESPACE, release: str = "quorate", **values: object) -> Objects:
    """As helm renders it, `image__digest` being image.digest; the test is skipped where there is no helm."""
    given = {"policies.repo": REPOSITORY, **{key.replace("__", "."): value for key, value in values.items()}}
    try:
        return keyed(charted(given, namespace, release))
    except ComponentMissingError as missing:
        pytest.skip(str(missing))


def base(folder: Path = BASE) -> Objects:
    """As kustomize renders it; the test is skipped where there is no kustomize."""
    try:
        return keyed(kustomized(folder))
    except ComponentMissingError as missing:
        pytest.skip(str(missing))


def container(objects: Objects) -> dict[str, Any]:
    (each,) = objects["Deployment", NAMESPACE, "quorate"]["spec"]["template"]["spec"]["containers"]
    return dict(each)


def without_namespace(objects: Objects) -> Objects:
    """Helm makes that by itself (--create-namespace)."""
    return {key: each for key, each in objects.items() if key[0] != "Namespace"}


@pytest.mark.kubernetes
def test_kustomize_changes_nothing_of_the_base() -> None:
    assert base() == keyed(base_objects())


@pytest.mark.kubernetes
def test_the_chart_says_the_same_as_the_base() -> None:
    assert chart() == without_namespace(base())


@pytest.mark.kubernetes
def test_observing_the_chart_says_the_same_as_the_overlay_and_both_only_read() -> None:
    observing = chart(observe=True)
    assert observing == without_namespace(base(DEPLOY / "observe"))
    assert "--observe" in container(observing)["args"]
    assert "--mirror-policy" not in container(observing)["args"]
    assert "--mirror-policy" not in container(chart(policies__mirror=False))["args"]
    rules = [rule for each in observing.values() for rule in each.get("rules", ())]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}


@pytest.mark.kubernetes
@pytest.mark.parametrize(
    ("observe", "said"), [(False, "It schedules pods with `schedulerName: quorate`"), (True, "changes nothing")]
)
def test_the_chart_says_what_it_will_do(observe: bool, said: str) -> None:
    try:
        told = notes({"policies.repo": REPOSITORY, "observe": observe})
    except ComponentMissingError as missing:
        pytest.skip(str(missing))
    assert f"follows main of {REPOSITORY}" in told
    assert said in told
    assert ("It schedules" in told) is not observe


@pytest.mark.kubernetes
def test_each_value_of_the_chart_does_what_it_says() -> None:
    plain = container(chart())
    assert plain["image"] == f"quorate:{version()}"
    digest = f"sha256:{'a' * 64}"
    assert container(chart(image__digest=digest))["image"] == f"quorate@{digest}"
    assert container(chart(policies__cluster="berlin"))["args"] == [*plain["args"], "--cluster=berlin"]
    assert container(chart(extraArgs=["--poll=10s"]))["args"] == [*plain["args"], "--poll=10s"]
    assert "--qps=50" in container(chart(kubernetes__qps=50))["args"]
    assert "--allow-host=quorate.example" in container(chart(api__hosts=["quorate.example"]))["args"]
    signed = container(chart(policies__allowedSignersConfigMap="signers"))
    assert "--allowed-signers=/etc/quorate/signers/allowed-signers" in signed["args"]
    assert {"name": "signers", "mountPath": "/etc/quorate/signers", "readOnly": True} in signed["volumeMounts"]
    assert ("NetworkPolicy", NAMESPACE, "quorate") not in chart(networkPolicy__enabled=False)
    (role, _) = execs = objects_in((DEPLOY / "exec/rights.yaml").read_text())
    assert set(chart(exec__enabled=True)) - set(chart()) == set(keyed(execs))
    assert role["rules"][0]["resources"] == ["pods/exec"]
    undisrupted = set(chart()) - set(chart(podDisruptionBudget__enabled=False))
    assert undisrupted == {("PodDisruptionBudget", NAMESPACE, "quorate")}
    unfenced = set(chart()) - set(chart(fence__enabled=False))
    assert unfenced == set(keyed(objects_in((BASE / "fence.yaml").read_text())))
    unscoped = set(chart()) - set(chart(scope__enabled=False))
    assert unscoped == set(keyed(objects_in((BASE / "scope.yaml").read_text())))
    newer = charted({"policies.repo": REPOSITORY}, serves=[MUTATING])
    of_label = set(keyed(objects_in((DEPLOY / "pod-label" / "policy.yaml").read_text())))
    assert set(keyed(newer)) - set(chart()) == of_label
    assert not of_label & set(keyed(charted({"policies.repo": REPOSITORY, "scope.enabled": False}, serves=[MUTATING])))
    deployment = chart(state__existingClaim="history", replicas=1)["Deployment", NAMESPACE, "quorate"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert {"name": "state", "persistentVolumeClaim": {"claimName": "history"}} in deployment["spec"]["template"][
        "spec"
    ]["volumes"]


MUTATING = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
"""Kubernetes 1.36 serves it."""
OAUTH2: dict[str, Any] = {
    "tokenUrl": "https://login.example.com/token",
    "clientId": {"secret": {"name": "quorate-metrics", "key": "id"}},
    "clientSecret": {"name": "quorate-metrics", "key": "secret"},
}
PLACED: dict[str, Any] = {
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "quorate"}},
        }
    ],
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "nodeSelector": {"infra": "yes"},
}
"""What a PodSpec says under the same names."""
MORE: dict[str, Any] = {
    "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/etc/certificates/ca.crt"}],
    "extraVolumes": [{"name": "certificates", "configMap": {"name": "company", "optional": True}}],
    "extraVolumeMounts": [{"name": "certificates", "mountPath": "/etc/certificates", "readOnly": True}],
    "podLabels": {"team": "platform"},
    "podAnnotations": {"note": "a: b"},
    "image.pullSecrets": ["registry"],
}


@pytest.mark.kubernetes
def test_what_a_site_adds_comes_beside_what_is_there() -> None:
    plain = chart()["Deployment", NAMESPACE, "quorate"]["spec"]["template"]
    added = chart(**PLACED, **MORE)["Deployment", NAMESPACE, "quorate"]["spec"]["template"]
    assert {name: added["spec"][name] for name in PLACED} == PLACED
    assert "podAntiAffinity" in plain["spec"]["affinity"]
    assert added["spec"]["volumes"] == [*plain["spec"]["volumes"], *MORE["extraVolumes"]]
    assert added["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert added["metadata"]["labels"] == {**plain["metadata"]["labels"], **MORE["podLabels"]}
    assert added["metadata"]["annotations"] == MORE["podAnnotations"]
    (before,), (after,) = plain["spec"]["containers"], added["spec"]["containers"]
    assert after["env"] == [*before["env"], *MORE["extraEnv"]]
    assert after["volumeMounts"] == [*before["volumeMounts"], *MORE["extraVolumeMounts"]]


@pytest.mark.kubernetes
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"podLabels": {"app.kubernetes.io/name": "other"}}, "/podLabels"),
        ({"extraEnv": [{"value": "nameless"}]}, "/extraEnv/0"),
        ({"policies__repo": ""}, "/policies/repo"),
        ({"policies__repo": "https://token@git.example.com/policy.git"}, "/policies/repo"),
        ({"image__digest": "latest"}, "/image/digest"),
        ({"obzerve": True}, "obzerve"),
        ({"serviceMonitor__interval": "soon"}, "/serviceMonitor/interval"),
        ({"serviceMonitor__oauth2": OAUTH2, "serviceMonitor__authorization": {"type": "Bearer"}}, "/serviceMonitor"),
        ({"fullnameOverride": "GPUs"}, "/fullnameOverride"),
        ({"fullnameOverride": "a" * 53}, "/fullnameOverride"),
        ({"state__existingClaim": "history"}, "state.existingClaim: one pod can use it"),
    ],
)
def test_the_chart_refuses_values(values: dict[str, Any], said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        chart(**values)
    assert said in refused.value.stderr


@pytest.mark.kubernetes
def test_a_service_monitor_is_there_when_it_is_asked_for_and_finds_the_metrics() -> None:
    key = ("ServiceMonitor", "gpus", "quorate")
    assert key not in chart("gpus")
    asked: dict[str, Any] = {"serviceMonitor__enabled": True, "serviceMonitor__labels": {"release": "prometheus"}}
    everything = chart("gpus", **asked, serviceMonitor__interval="30s", serviceMonitor__oauth2=OAUTH2)
    assert set(everything) - set(chart("gpus")) == {key}
    monitor, service = everything[key], everything["Service", "gpus", "quorate"]
    assert monitor["metadata"]["labels"] == {**service["metadata"]["labels"], "release": "prometheus"}
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert monitor["spec"]["endpoints"] == [{"port": "api", "path": "/metrics", "interval": "30s", "oauth2": OAUTH2}]
    assert "api" in {port["name"] for port in service["spec"]["ports"]}
    (plain,) = chart("gpus", serviceMonitor__enabled=True)[key]["spec"]["endpoints"]
    assert plain == {"port": "api", "path": "/metrics"}
    assert key in chart("gpus", observe=True, serviceMonitor__enabled=True)


@pytest.mark.kubernetes
@pytest.mark.parametrize("observe", [False, True])
def test_the_chart_in_another_namespace_is_the_base_with_its_name_in_place_of_the_usual(observe: bool) -> None:
    elsewhere = chart(namespace="gpus", observe=observe)
    there = keyed(json.loads(json.dumps([*chart(observe=observe).values()]).replace(NAMESPACE, "gpus")))
    assert elsewhere == there
    if not observe:
        assert elsewhere == without_namespace(keyed(base_objects("gpus")))


RENAMED = ("quorate", "quorate-read", "quorate-write", "quorate-exec")
"""What has its name for this installation alone. The rest there is once in a cluster, or once in the namespace."""


def renamed(part: Any, own: str) -> Any:
    """The same objects with names of their own: of them, of roles, of the account, and of the Service where it is asked."""
    if isinstance(part, list):
        return [renamed(each, own) for each in part]
    if isinstance(part, str):
        said = part.replace(f"{NAMESPACE}:quorate'", f"{NAMESPACE}:{own}'").replace(
            f'{NAMESPACE}:quorate"', f'{NAMESPACE}:{own}"'
        )
        return said.replace(f"=quorate.{NAMESPACE}.svc", f"={own}.{NAMESPACE}.svc")
    if not isinstance(part, dict):
        return part
    changed = {key: renamed(value, own) for key, value in part.items()}
    if "serviceAccountName" in changed:
        changed["serviceAccountName"] = own
    for each in (changed.get("metadata", {}), changed.get("roleRef", {}), *changed.get("subjects", ())):
        if each.get("name") in RENAMED:
            each["name"] = own + each["name"].removeprefix("quorate")
    return changed


@pytest.mark.kubernetes
@pytest.mark.parametrize(
    ("release", "values", "own"),
    [
        ("quorate", {"fullnameOverride": "gpu-scheduler"}, "gpu-scheduler"),
        ("prod", {}, "prod-quorate"),
        ("quorate-prod", {}, "quorate-prod"),
        ("prod", {"nameOverride": "q"}, "prod-q"),
    ],
)
def test_an_installation_has_the_name_of_its_release_or_its_own(release: str, values: Any, own: str) -> None:
    everything: Any = {"exec__enabled": True, "networkPolicy__egress": [{}]}
    plain = json.dumps([*chart(**everything).values()]).replace('"quorate-egress"', f'"{own}-egress"')
    label = values.get("nameOverride", "quorate")
    called = plain.replace('"app.kubernetes.io/name": "quorate"', f'"app.kubernetes.io/name": "{label}"')
    assert chart(release=release, **everything, **values) == keyed(renamed(json.loads(called), own))
    told = notes({"policies.repo": REPOSITORY, "observe": True, **values}, "gpus", release)
    assert f"kubectl -n gpus exec deploy/{own} -- quorate status" in told


def documented(file: str) -> str:
    """What docs/kubernetes-install.md writes into a file of that name."""
    page = (DEPLOY.parent / "docs" / "kubernetes-install.md").read_text()
    (content,) = re.findall(rf"^cat > {re.escape(file)} <<'EOF'\n(.*?)^EOF$", page, re.MULTILINE | re.DOTALL)
    return str(content)


@pytest.mark.kubernetes
def test_the_overlay_of_the_documentation_does_what_it_says(tmp_path: Path) -> None:
    overlay, link = documented("kustomization.yaml"), "https://github.com/you/quorate//deploy/kubernetes"
    assert link in overlay
    (tmp_path / "kustomization.yaml").write_text(
        overlay.replace(link, os.path.relpath(BASE, tmp_path)).replace("...", "a" * 64)
    )
    plain, changed = container(base()), container(base(tmp_path))
    assert changed["image"] == f"registry.example/quorate@sha256:{'a' * 64}"
    assert changed["args"] == [*plain["args"], "--cluster=berlin"]
    assert [each["name"] for each in changed["env"]] == [each["name"] for each in plain["env"]]
    assert changed["env"][0]["value"] == REPOSITORY


class TestInstalled:
    pytestmark = REAL

    def test_the_server_takes_what_the_walkthrough_writes(self, shipped: Cluster) -> None:
        page = (DEPLOY.parent / "docs" / "kubernetes-install.md").read_text()
        (patch,) = re.findall(r"patch node \$node --subresource=status --type=merge \\\n    -p '(.*?)'", page)
        (job,) = objects_in(documented("gang.yaml"))

        async def story() -> None:
            async with session(shipped) as api:
                job["metadata"]["namespace"] = await a_namespace(api)
                await api.create(path_of(job), job)
                await api.create(NODES.path(), {"metadata": {"name": "quorate-worker"}})
                await api.patch(NODES.path("", "quorate-worker", "status"), json.loads(patch))
                node = await api.get(NODES.path("", "quorate-worker"), dict[str, Any])
                assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"

        asyncio.run(story())

    def test_the_server_takes_the_pod_too_under_the_rules_of_its_namespace(self, shipped: Cluster) -> None:
        async def story() -> None:
            async with session(shipped) as api:
                template = keyed(base_objects())["Deployment", NAMESPACE, "quorate"]["spec"]["template"]
                pod = {"apiVersion": "v1", "kind": "Pod", **template}
                pod["metadata"] = {**template["metadata"], "name": "quorate-1", "namespace": NAMESPACE}
                made = await api.create(path_of(pod), pod)
                assert made["spec"]["priority"] == 2_000_000_000
                loose = {**pod, "metadata": {**pod["metadata"], "name": "loose"}}
                loose["spec"] = {**template["spec"], "hostNetwork": True}
                with pytest.raises(NotAllowedError, match="restricted"):
                    await api.create(path_of(loose), loose)

        asyncio.run(story())

    def test_the_server_takes_the_rules_of_what_is_reached(self, shipped: Cluster) -> None:
        rules = [{"ports": [{"port": 443, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]
        key = ("NetworkPolicy", NAMESPACE, "quorate-egress")
        assert key not in chart()
        policy = chart(networkPolicy__egress=rules)[key]

        async def story() -> None:
            async with session(shipped) as api:
                made = await api.create(path_of(policy, dryRun="All"), policy)
                assert made["spec"]["egress"] == rules
                assert made["spec"]["policyTypes"] == ["Egress"]

        asyncio.run(story())

    def test_the_server_takes_what_a_site_adds(self, shipped: Cluster) -> None:
        deployment = chart(**PLACED, **MORE)["Deployment", NAMESPACE, "quorate"]
        deployment["metadata"]["name"] = "with-all"

        async def story() -> None:
            async with session(shipped) as api:
                made = await api.create(path_of(deployment, dryRun="All"), deployment)
                assert made["spec"]["template"]["spec"]["volumes"][-1]["name"] == "certificates"

        asyncio.run(story())

    @pytest.mark.parametrize("resource", ["secrets", "configmaps", "serviceaccounts", "clusterroles"])
    def test_it_may_not_read_what_it_does_not_need(self, shipped: Cluster, resource: str) -> None:
        async def story() -> None:
            async with session(shipped) as api:
                for verb, namespace in (("get", ""), ("list", "default")):
                    asked = {"verb": verb, "resource": resource, "namespace": namespace}
                    review = {"spec": {"user": ACCOUNT, "groups": list(GROUPS), "resourceAttributes": asked}}
                    assert not (await api.create(REVIEWS.path(), review))["status"]["allowed"]

        asyncio.run(story())

    def test_nobody_else_writes_the_copy_of_the_policy(self, shipped: Cluster) -> None:
        labelled = {"labels": {"quorate.dev/policy-mirror": "part"}}

        async def story() -> None:
            async with session(shipped) as admin, as_quorate(shipped) as quorate:
                there = CONFIG_MAPS.path(NAMESPACE)
                await admin.create(there, {"metadata": {"name": "free"}, "data": {"a": "b"}})
                copy = {"metadata": {"name": "quorate-policy-1", **labelled}, "data": {"a": "b"}}
                for forged in (
                    copy,
                    {"metadata": {"name": "mine", **labelled}},
                    {"metadata": {"name": "quorate-policy"}},
                ):
                    with pytest.raises(NotAllowedError, match="Change the policy in its Git repository"):
                        await admin.create(there, forged)
                await quorate.create(there, copy)
                for change in ({"data": {"a": "c"}}, {"metadata": {"labels": None}}):
                    with pytest.raises(NotAllowedError, match="Change the policy in its Git repository"):
                        await admin.patch(f"{there}/quorate-policy-1", change)
                with pytest.raises(NotAllowedError, match="Change the policy in its Git repository"):
                    await admin.patch(f"{there}/free", {"metadata": labelled})
                await admin.delete(f"{there}/quorate-policy-1")

        asyncio.run(story())


@pytest.mark.kubernetes
def test_the_chart_of_a_release_is_the_chart(tmp_path: Path) -> None:
    released = archive(Source(ROOT, version(), "c" * 40, 1_795_958_501), tmp_path)
    values = {"policies": {"repo": REPOSITORY}}
    assert charted(values, chart=released) == charted(values)
