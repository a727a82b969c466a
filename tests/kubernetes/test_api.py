"""What a real API server answers, and what the client makes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import TRIES_MAX, Api
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import (
    ConflictError,
    NotAllowedError,
    NotFoundError,
    TooManyRequestsError,
    UnreachableError,
)
from reconciler.kubernetes.client.service_account import in_cluster
from reconciler.kubernetes.objects.resource import PODS, Resource
from reconciler.model.clock import SystemClock
from solver.model.quantities import Instant
from tests.kubernetes.sessions import (
    CONFIG_MAPS,
    NAMESPACES,
    REAL,
    SOON_S,
    a_config_map,
    a_namespace,
    a_pod,
    audited,
    session,
)
from tests.kubernetes.test_pace import ManualClock

pytestmark = REAL

POD_GROUPS = Resource("scheduling.k8s.io/v1alpha2", "podgroups")
BUDGETS = Resource("policy/v1", "poddisruptionbudgets")
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io/v1", "flowschemas")
PRIORITY_LEVELS = Resource("flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings")
ACCOUNTS = Resource("v1", "serviceaccounts")


def test_it_is_ready_and_serves_the_kinds_of_a_gang_scheduler(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            kinds = await api.get(POD_GROUPS.path(), dict[str, Any])
            assert kinds["kind"] == "PodGroupList"

    asyncio.run(story())


def test_each_answer_says_what_time_it_is_there(cluster: Cluster) -> None:
    """To the second, and no later than it came: here the server has this machine's clock."""
    told: list[tuple[Instant, Instant]] = []

    def hear(at: Instant, late_ms: float) -> None:
        told.append((at, at.after(int(late_ms) + 1)))

    async def story() -> None:
        async with session(cluster) as api:
            api._told_time = hear
            for _ in range(3):
                before = SystemClock().now()
                await api.get(POD_GROUPS.path(), dict[str, Any])
                at, latest = told[-1]
                assert before - 1_000 <= at <= SystemClock().now() <= latest

    asyncio.run(story())
    assert len(told) == 3


def test_each_refusal_has_its_type(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, session(cluster, "nobody", ()) as nobody:
            there = CONFIG_MAPS.path(await a_namespace(api))
            made = await api.create(there, a_config_map("one", "a"))
            with pytest.raises(ConflictError, match="AlreadyExists"):
                await api.create(there, a_config_map("one", "b"))
            await api.patch(f"{there}/one", {"data": {"value": "b"}})
            with pytest.raises(ConflictError, match="Conflict"):
                await api.replace(f"{there}/one", made)
            with pytest.raises(NotFoundError):
                await api.get(f"{there}/two", dict[str, Any])
            with pytest.raises(NotAllowedError, match="nobody"):
                await nobody.delete(f"{there}/one")
            assert (await api.get(f"{there}/one", dict[str, Any]))["data"] == {"value": "b"}

    asyncio.run(story())


def test_a_binding_of_a_pod_that_was_made_anew_is_a_conflict(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            pods = PODS.path(await a_namespace(api))
            old = await api.create(pods, a_pod("worker"))
            await api.delete(f"{pods}/worker", {"gracePeriodSeconds": 0})
            new = await api.create(pods, a_pod("worker"))

            async def bind(uid: str) -> None:
                target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
                await api.create(
                    f"{pods}/worker/binding", {"metadata": {"name": "worker", "uid": uid}, "target": target}
                )

            with pytest.raises(ConflictError):
                await bind(old["metadata"]["uid"])
            await bind(new["metadata"]["uid"])
            with pytest.raises(ConflictError):
                await bind(new["metadata"]["uid"])

    asyncio.run(story())


def test_an_eviction_that_a_budget_forbids_is_asked_for_once(cluster: Cluster) -> None:
    """No controller runs here that would count the budget, which forbids everything until then."""

    async def story() -> None:
        async with session(cluster) as api:
            namespace = await a_namespace(api)
            labelled = {"labels": {"app": "a"}}
            pod = a_pod("worker", "n1")
            await api.create(PODS.path(namespace), {**pod, "metadata": {**pod["metadata"], **labelled}})
            budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
            await api.create(BUDGETS.path(namespace), {"metadata": {"name": "one"}, "spec": budget})
            running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await api.patch(PODS.path(namespace, "worker", "status"), {"status": running})
            eviction = PODS.path(namespace, "worker", "eviction")
            with pytest.raises(TooManyRequestsError) as refused:
                await api.create(
                    eviction, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "worker"}}
                )
            assert refused.value.budget
            assert refused.value.retry_after_s > 0
            assert len(audited(cluster, eviction)) == 1

    asyncio.run(story())


def test_a_busy_server_is_asked_again_and_each_write_is_done_once(cluster: Cluster) -> None:
    """The server takes one request of this account at a time, and refuses what comes meanwhile."""

    async def story() -> None:
        rests: list[float] = []
        in_turn = asyncio.Lock()

        async def rest(seconds: float) -> None:
            rests.append(seconds)
            async with in_turn:
                await asyncio.sleep(0.05)

        async with session(cluster) as admin, session(cluster, "crowd", (), sleep=rest) as api:
            there = CONFIG_MAPS.path(await a_namespace(admin))
            await _one_at_a_time(admin, "crowd")
            written = 0
            async with asyncio.timeout(SOON_S):
                while not await _may_read(api):  # what was set up is in force a moment later
                    await asyncio.sleep(0.02)
                rests.clear()
                while not rests:
                    names = [f"c{number}" for number in range(written, written + 20)]
                    await asyncio.gather(*(api.create(there, a_config_map(name, "a")) for name in names))
                    written += len(names)
            answers = [event["responseStatus"]["code"] for event in audited(cluster, there)]
            assert answers.count(201) == written
            assert answers.count(429) == len(rests) == len(answers) - written
            assert min(rests) >= 1  # what the server says in Retry-After

    asyncio.run(story())


async def _may_read(api: Api) -> bool:
    try:
        await api.get(NAMESPACES.path("", "default"), dict[str, Any])
    except NotAllowedError:
        return False
    return True


async def _one_at_a_time(admin: Api, user: str) -> None:
    """Rights, but not by its group: who is in system:masters is never refused. And a priority level without seats."""
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
    await admin.create(ROLE_BINDINGS.path(), {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]})
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    level = {"metadata": {"name": user}, "spec": {"type": "Limited", "limited": limited}}
    await admin.create(PRIORITY_LEVELS.path(), level)
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": user},
        "matchingPrecedence": 2,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [everything]}],
    }
    await admin.create(FLOW_SCHEMAS.path(), {"metadata": {"name": user}, "spec": spec})


def test_the_pace_holds_for_all_requests_and_none_goes_uncounted(cluster: Cluster) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with session(cluster, pace=RateLimiter(10, 5, clock, clock.sleep)) as api:
            namespace = await a_namespace(api)
            one = CONFIG_MAPS.path(namespace, "one")
            await api.create(CONFIG_MAPS.path(namespace), a_config_map("one", "a"))
            await asyncio.gather(*(api.patch(one, {"data": {"value": str(number)}}) for number in range(38)))
        assert len(audited(cluster, one)) == 38
        assert clock.now_s == pytest.approx((2 + 38 - 5) / 10)

    asyncio.run(story())


def test_a_server_that_is_not_there_is_asked_for_reads_and_told_apart_from_one_that_breaks_off(
    cluster: Cluster,
) -> None:
    async def story() -> None:
        tries = 0

        async def rest(_: float) -> None:
            nonlocal tries
            tries += 1

        content = json.loads(cluster.kubeconfig("admin", ("system:masters",)).read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{_closed_port()}"
        elsewhere = cluster.folder / "elsewhere.kubeconfig"
        elsewhere.write_text(json.dumps(content))
        async with session(cluster, kubeconfig=elsewhere, sleep=rest) as api:
            with pytest.raises(UnreachableError) as silent:
                await api.create("/api/v1/namespaces", {})
        assert not silent.value.sent
        assert tries == TRIES_MAX - 1

    asyncio.run(story())


def _closed_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_pods_own_account_is_enough_to_speak(cluster: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(cluster) as admin:
            namespace = await a_namespace(admin)
            await admin.create(ACCOUNTS.path(namespace), {"metadata": {"name": "scheduler"}})
            asked = await admin.create(ACCOUNTS.path(namespace, "scheduler", "token"), {"spec": {}})
        (tmp_path / "token").write_text(asked["status"]["token"])
        (tmp_path / "ca.crt").write_bytes(cluster.authority.pem)
        address = urlsplit(cluster.server)
        environment = {
            "KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port),
        }  # fmt: skip
        clock = SystemClock()
        credentials = in_cluster(environment, clock, tmp_path)
        async with Api(credentials, RateLimiter(100, 100, clock), Random(1)) as api:
            with pytest.raises(NotAllowedError, match=f"system:serviceaccount:{namespace}:scheduler"):
                await api.get(PODS.path(), dict[str, Any])

    asyncio.run(story())
