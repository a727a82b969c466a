"""Quorate in a namespace of another name, by the chart and by the base: it runs there, and what keeps others out knows it there."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from hack.kubernetes import fence
from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import ComponentMissingError, found, place
from hack.kubernetes.shipped import ACCOUNT, base_objects, installed_by_helm, path_of
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotAllowedError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import LEASES, PODS, Resource
from reconciler.kubernetes.status.queue_status import QUEUES
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import ADMINS, CONFIG_MAPS, NAMESPACES, REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, until_bound

pytestmark = REAL

POLICY = {
    "policies/queues.yaml": (
        "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: research}\n"
        "spec:\n  quota: [{gpuType: H100-SXM5-80GB, guaranteed: 8}]\n  access: {namespaces: [{name: test-*}]}\n"
    ),
}
HERE = "gpus"
REPOSITORY = "https://git.example.com/cluster/policy.git"
DEPLOYMENTS = Resource("apps/v1", "deployments")
OF_THE_TEST = ("--policies-repo", "--branch", "--listen", "--allow-host")
"""Options that the control plane of a test has its own of."""


class Installed(NamedTuple):
    """`own`: what the account and the Deployment are called."""

    cluster: Cluster
    own: str

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{HERE}:{self.own}"

    @property
    def groups(self) -> tuple[str, ...]:
        return ("system:serviceaccounts", f"system:serviceaccounts:{HERE}", "system:authenticated")


@pytest.fixture(scope="module", params=["base", "chart"])
def elsewhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The chart by `helm install`, where there is a helm; the base with the name put in place, as the page says."""
    with running(found(place()), tmp_path_factory.mktemp("elsewhere")) as cluster:
        installed = Installed(cluster, "quorate" if request.param == "base" else "gpu-scheduler")
        if request.param == "base":
            asyncio.run(made(cluster, base_objects(HERE)))
        else:
            by_helm(cluster, installed.own, HERE)
        asyncio.run(in_force(installed))
        yield installed


def by_helm(cluster: Cluster, own: str, namespace: str) -> None:
    values = {"policies.repo": REPOSITORY, "fullnameOverride": own}
    try:
        installed_by_helm(cluster.kubeconfig("admin", ADMINS), values, namespace)
    except ComponentMissingError as missing:
        pytest.skip(str(missing))


async def made(cluster: Cluster, objects: tuple[dict[str, Any], ...]) -> None:
    async with session(cluster) as api:
        for each in sorted(objects, key=lambda each: each["kind"] != "Namespace"):
            await api.create(path_of(each), each)


async def in_force(installed: Installed) -> None:
    async with session(installed.cluster) as admin, as_account(installed) as quorate:
        await fence.until_in_force(admin, quorate)


def as_account(installed: Installed, groups: tuple[str, ...] = ()) -> Any:
    """With the rights that it was given there and no others, unless stated."""
    return session(installed.cluster, installed.account, groups or installed.groups)


@asynccontextmanager
async def started(installed: Installed, plane: ControlPlane, api: Api) -> AsyncIterator[None]:
    """The program with the options of its Deployment, under the account of its pods."""
    deployment = await api.get(DEPLOYMENTS.path(HERE, installed.own), dict[str, Any])
    spec = deployment["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == installed.own
    (container,) = spec["containers"]
    command, *options = container["args"]
    assert command == "run"
    given = [option for option in options if not option.startswith(OF_THE_TEST)]
    kubeconfig = installed.cluster.kubeconfig(installed.account, installed.groups)
    await asyncio.to_thread(plane.start, *given, "--kubeconfig", str(kubeconfig))
    yield
    assert await asyncio.to_thread(plane.signal, signal.SIGTERM) == 0


def test_it_runs_there_and_everything_of_its_own_is_there(elsewhere: Installed, plane: ControlPlane) -> None:
    async def story() -> None:
        async with (
            session(elsewhere.cluster) as api,
            gpu_nodes(api, 2, "elsewhere") as nodes,
            started(elsewhere, plane, api),
        ):
            space = await a_namespace(api)
            for index in range(4):
                await api.create(PODS.path(space), a_worker(f"w{index}", "train", 4, gpus=2))
            assert sorted((await until_bound(api, space, 4)).values()) == sorted([*nodes, *nodes])
            lease = await api.get(LEASES.path(HERE, "quorate"), dict[str, Any])
            assert lease["spec"]["holderIdentity"]
            async with asyncio.timeout(SOON_S):
                while not await shown(api):
                    await asyncio.sleep(0.05)
                while await may_use_the_queue(api, "default"):
                    await asyncio.sleep(0.05)
            assert await may_use_the_queue(api, space)
            spaces = await api.get(NAMESPACES.path(), dict[str, Any])
            assert names.NAMESPACE not in {each["metadata"]["name"] for each in spaces["items"]}

    asyncio.run(story())


async def shown(api: Api) -> bool:
    """The copy of the policy, what it says of namespaces, and the queue as an object."""
    maps = await api.get(CONFIG_MAPS.path(HERE), dict[str, Any])
    queues = await api.get(QUEUES.path(), dict[str, Any])
    there = {each["metadata"]["name"] for each in maps["items"]}
    return {"quorate-policy", "quorate-policy-namespaces"} <= there and len(queues["items"]) == 1


async def may_use_the_queue(api: Api, space: str) -> bool:
    """By the admission policy, which reads what the policy in Git says of namespaces from the ConfigMap there."""
    try:
        await api.create(f"{PODS.path(space)}?dryRun=All", a_worker("tried", "tried", 1))
    except NotAllowedError as refused:
        return "'quorate-namespaces'" not in str(refused)
    return True


def test_what_keeps_others_out_knows_quorate_by_that_name_and_by_no_other(elsewhere: Installed) -> None:
    """Each as somebody whom roles allow everything, so that only the admission policies stand in the way."""

    async def story() -> None:
        cluster = elsewhere.cluster
        async with (
            session(cluster) as admin,
            as_account(elsewhere, ADMINS) as quorate,
            session(cluster, ACCOUNT) as usual,
        ):
            space = await a_namespace(admin)
            await admin.create(PODS.path(space), a_worker("w", "g", 1))
            theirs = a_worker("theirs", "g", 1)
            theirs["spec"]["schedulerName"] = "default-scheduler"
            await admin.create(PODS.path(space), theirs)
            noted = {"metadata": {"annotations": {names.ATTEMPT: "1"}}}
            with pytest.raises(NotAllowedError, match="Only Quorate writes its annotations"):
                await usual.patch(PODS.path(space, "w"), noted)
            await refused_as_led_by_another(quorate, space)
            leads = {"metadata": {"annotations": {"quorate.dev/leader": "another", "quorate.dev/epoch": "7"}}}
            await quorate.patch(PODS.path(space, "w"), leads)
            with pytest.raises(NotAllowedError, match="Quorate changes and deletes only pods"):
                await quorate.patch(PODS.path(space, "theirs"), leads)
            copy = {"metadata": {"name": "quorate-policy-mine"}}
            with pytest.raises(NotAllowedError, match="Only Quorate writes this ConfigMap"):
                await usual.create(CONFIG_MAPS.path(HERE), copy)
            await quorate.create(CONFIG_MAPS.path(HERE), copy)
            queue = {"apiVersion": QUEUES.version, "kind": "Queue", "metadata": {"name": "forged"}}
            with pytest.raises(NotAllowedError, match="written by Quorate alone"):
                await usual.create(QUEUES.path(), queue)
            await quorate.create(f"{QUEUES.path()}?dryRun=All", queue)
            with pytest.raises(NotAllowedError, match="neither binds nor evicts pods of its own namespace"):
                await quorate.create(PODS.path(HERE, "any", "binding"), a_binding("any", leads))

    asyncio.run(story())


async def refused_as_led_by_another(quorate: Api, space: str) -> None:
    """The fence reads the Lease of that namespace."""
    path = LEASES.path(HERE)
    lease = {"metadata": {"name": "quorate"}, "spec": {"holderIdentity": "another", "leaseTransitions": 7}}
    if any(each["metadata"]["name"] == "quorate" for each in (await quorate.get(path, dict[str, Any]))["items"]):
        await quorate.patch(LEASES.path(HERE, "quorate"), {"spec": lease["spec"]})
    else:
        await quorate.create(path, lease)
    stamped = {"metadata": {"annotations": {"quorate.dev/leader": "me", "quorate.dev/epoch": "1"}}}
    async with asyncio.timeout(SOON_S):
        while True:
            with pytest.raises(NotAllowedError) as refused:
                await quorate.patch(PODS.path(space, "w"), stamped)
            if "which is another in epoch 7" in str(refused.value):
                return
            await asyncio.sleep(0.05)


def a_binding(pod: str, stamped: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": pod, "labels": {names.FENCED: "true"}, **stamped["metadata"]}
    return {"metadata": metadata, "target": {"kind": "Node", "name": "none"}}


def test_a_second_one_in_the_same_cluster_is_refused(elsewhere: Installed) -> None:
    """Two would bind the same pods: the admission policies are there once, and the release that has them is named."""
    if elsewhere.own == "quorate":
        pytest.skip("helm knows nothing of what kubectl installed")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        by_helm(elsewhere.cluster, "other", "other-gpus")
    assert "invalid ownership metadata" in refused.value.stderr
