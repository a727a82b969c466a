"""The mirror of a real API server: all that rounds go by is there, and stays so whatever comes, goes or is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client import kind_watch
from reconciler.kubernetes.client.informer import Key
from reconciler.kubernetes.client.refusals import NotAllowedError
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.resource import NODES, PODS, Resource
from tests.kubernetes.mirrored import CRDS, a_definition, a_mirror, mirrored, seen
from tests.kubernetes.proxied import cuttable
from tests.kubernetes.sessions import REAL, a_namespace, session, until
from tests.reconciler.kubernetes import samples

pytestmark = REAL

KUBERNETES_GROUPS = Resource("scheduling.k8s.io/v1alpha2", "podgroups")
VOLCANO = Resource("scheduling.volcano.sh/v1beta1", "podgroups")
ROLES, ROLE_BINDINGS = (
    Resource("rbac.authorization.k8s.io/v1", plural) for plural in ("clusterroles", "clusterrolebindings")
)


def a_node(name: str) -> samples.Sent:
    node = samples.node(name, gpus=8)
    return {
        **node,
        "spec": {},
        "status": {key: node["status"][key] for key in ("allocatable", "capacity", "conditions")},
    }


def a_pod(name: str, **said: Any) -> samples.Sent:
    pod = samples.pod(name, 1, **said)
    meta = {key: pod["metadata"][key] for key in ("name", "labels", "annotations")}
    for container in pod["spec"]["containers"]:
        container["resources"]["limits"] = container["resources"]["requests"]
    return {"metadata": meta, "spec": {key: value for key, value in pod["spec"].items() if value}}


def gangs_of(mirror: ClusterCache, namespace: str) -> dict[str, PodGang]:
    return {gang.name: gang for gang in mirror.cluster().gangs if gang.name.startswith(f"{namespace}.")}


def test_a_gang_is_known_by_its_pods_and_its_group(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            namespace = await a_namespace(api)
            await api.create(NODES.path(), a_node("mirror-n1"))
            async with mirrored(api) as mirror:
                assert "mirror-n1" in [node.name for node in mirror.cluster().nodes]
                group = {"schedulingGroup": {"podGroupName": "train"}}
                for name in ("a", "b"):
                    await api.create(PODS.path(namespace), a_pod(name, spec=group))
                await seen(
                    mirror, lambda: len(mirror.cluster().gangs) > 0 and namespace in str(gangs_of(mirror, namespace))
                )
                spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
                await api.create(KUBERNETES_GROUPS.path(namespace), {"metadata": {"name": "train"}, "spec": spec})
                name = f"{namespace}.podgroup.train"
                await seen(mirror, lambda: gangs_of(mirror, namespace)[name].job is not None)
                raw = mirror.pods.get(Key(namespace, "a"))
                assert raw is not None
                assert raw.metadata.uid in {member.uid for member in gangs_of(mirror, namespace)[name].members}
                for pod in ("a", "b"):
                    await api.delete(PODS.path(namespace, pod), {"gracePeriodSeconds": 0})
                await seen(mirror, lambda: not gangs_of(mirror, namespace))

    asyncio.run(story())


def test_nodes_that_an_autoscaler_makes_join_and_leave(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, mirrored(api) as mirror:

            def there() -> list[str]:
                return [node.name for node in mirror.cluster().nodes if node.name.startswith("scaled-")]

            for name in ("scaled-1", "scaled-2"):
                await api.create(NODES.path(), a_node(name))
            await seen(mirror, lambda: there() == ["scaled-1", "scaled-2"])
            await api.delete(NODES.path("", "scaled-1"))
            await seen(mirror, lambda: there() == ["scaled-2"])
            await api.delete(NODES.path("", "scaled-2"))
            await seen(mirror, lambda: not there())

    asyncio.run(story())


def test_a_kind_that_is_installed_later_is_followed_and_one_that_is_removed_is_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind_watch, "AGAIN_S", 0.2)

    async def story() -> None:
        async with session(cluster) as api:
            namespace = await a_namespace(api)
            with capture_logs() as logs:
                async with mirrored(api) as mirror:
                    volcano = next(each for each in mirror.standing() if each.resource == VOLCANO)
                    assert (volcano.listed_at, volcano.objects, "404" in volcano.problem) == (None, 0, True)
                    written = {"scheduling.k8s.io/group-name": "train"}
                    await api.create(PODS.path(namespace), a_pod("a", annotations=written))
                    await api.create(
                        CRDS.path(), a_definition(VOLCANO.version.split("/")[0], "v1beta1", "PodGroup", "podgroups")
                    )
                    await until(lambda: any(s.resource == VOLCANO and not s.problem for s in mirror.standing()))
                    group = {
                        "apiVersion": VOLCANO.version, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": {"minMember": 1},
                    }  # fmt: skip
                    await api.create(VOLCANO.path(namespace), group)
                    name = f"{namespace}.volcano.train"
                    await seen(mirror, lambda: gangs_of(mirror, namespace)[name].job is not None)
                    await api.delete(CRDS.path("", f"podgroups.{VOLCANO.version.split('/')[0]}"))
                    await seen(mirror, lambda: gangs_of(mirror, namespace)[name].missing is not None)
                    await api.delete(PODS.path(namespace, "a"), {"gracePeriodSeconds": 0})
            said = [
                line for line in logs if line["event"] == "kind-not-followed" and line["version"] == VOLCANO.version
            ]
            assert 1 <= len(said) <= 3, "once while it is not there, not each time that it is looked for"

    asyncio.run(story())


def test_without_the_right_to_read_what_is_needed_it_ends_and_without_others_it_says_so_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind_watch, "AGAIN_S", 0.05)

    async def story() -> None:
        async with session(cluster) as api, session(cluster, "stranger", ()) as stranger:
            with pytest.raises(NotAllowedError):
                await a_mirror(stranger).run()
            rules = [
                {"apiGroups": ["", "policy", "scheduling.k8s.io"], "verbs": ["list", "watch"], "resources": resources}
                for resources in (["nodes", "pods", "poddisruptionbudgets", "priorityclasses"],)
            ]
            await api.create(ROLES.path(), {"metadata": {"name": "needed"}, "rules": rules})
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "needed"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
            await api.create(
                ROLE_BINDINGS.path(), {"metadata": {"name": "needed"}, "roleRef": role, "subjects": [subject]}
            )
            with capture_logs() as logs:
                async with session(cluster, "reader", ()) as reader, mirrored(reader) as mirror:
                    await asyncio.sleep(0.3)
                    problems = [each for each in mirror.standing() if each.problem]
            assert problems
            assert not any(each.needed for each in problems)
            assert all("403" in each.problem for each in problems)
            assert len([line for line in logs if line["event"] == "kind-not-followed"]) == len(problems)

    asyncio.run(story())


def test_how_far_each_kind_is_followed_is_said(cluster: Cluster) -> None:
    async def story() -> None:
        async with (
            cuttable(cluster) as way,
            session(cluster, kubeconfig=way.kubeconfig) as api,
            mirrored(api) as mirror,
        ):
            pods = mirror.pods.standing()
            assert PODS in [each.resource for each in mirror.standing()]
            assert (pods.resource, pods.needed, pods.problem, pods.absent) == (PODS, True, "", False)
            assert pods.objects == len(list(mirror.pods.items()))
            assert pods.listed_at is not None
            assert pods.revision
            assert pods.silent_s is not None
            way.cut()  # others may have broken before: the server breaks watches off when a kind becomes known to it
            await until(lambda: mirror.pods.standing().breaks > pods.breaks)

    asyncio.run(story())
