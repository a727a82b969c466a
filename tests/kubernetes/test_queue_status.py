"""Queues as objects on a real API server: what people see of them, that only changes are written, and by Quorate alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotAllowedError, RefusedError
from reconciler.kubernetes.status.queue_status import QUEUES, QueueStatusWriter
from reconciler.kubernetes.status.queues import PolicyState, QueueObject, queues_of
from reconciler.kubernetes.status.turns import WriteSchedule
from reconciler.model.clock import SystemClock
from solver.model.quantities import Cpu, Duration, Memory
from solver.model.workload import QueueName
from solver.policy.host_share import CpuQuota, MemoryQuota
from solver.policy.policy import Policy, Queue, policy_of
from tests.kubernetes.installing import ACCOUNT, with_queues
from tests.kubernetes.sessions import REAL, audited, session
from tests.reconciler.kubernetes.test_queues import policy, world

pytestmark = REAL


@pytest.fixture
def cluster(fenced: Cluster) -> Cluster:
    """With the rights that are shipped."""
    return fenced


def leading() -> None:
    """Nobody else does."""


def telling(api: Api, quiet_ms: int = 0, budget: int = 100) -> QueueStatusWriter:
    return QueueStatusWriter(api, leading, SystemClock(), WriteSchedule(Duration(quiet_ms), budget))


@asynccontextmanager
async def quorate(cluster: Cluster) -> AsyncIterator[Api]:
    """As Quorate, with the rights that this takes and no more; there are no queues at the beginning."""
    async with session(cluster) as admin, session(cluster, ACCOUNT, ()) as api:
        await with_queues(admin)
        await telling(api).tell({})
        yield api


def wanted(policy: Policy, revision: str = "abc123", stalled: str = "") -> dict[str, QueueObject]:
    return queues_of(world(), policy, PolicyState(revision, stalled))


async def there(api: Api) -> dict[str, dict[str, Any]]:
    listed = await api.get(QUEUES.path(), dict[str, Any])
    return {queue["metadata"]["name"]: queue for queue in listed["items"]}


def condition(queue: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [one for one in queue["status"]["conditions"] if one["type"] == kind]
    return dict(found)


def test_queues_are_what_kubectl_prints(cluster: Cluster) -> None:
    async def story() -> None:
        async with quorate(cluster) as api:
            await telling(api).tell(wanted(policy()))
            accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            async with aiohttp.ClientSession() as plain:
                way = await api._credentials.transport()
                async with plain.get(way.server + QUEUES.path(), headers=accept, ssl=way.ssl_context) as answer:
                    table = await answer.json()
            names = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
            assert names == ["Name", "Parent", "Guaranteed", "Used", "Borrowed", "Pending", "Ready"]
            shown = {
                row["cells"][0]: dict(zip([c["name"] for c in table["columnDefinitions"]], row["cells"], strict=True))
                for row in table["rows"]
            }
            assert [shown["q"][name] for name in names] == ["q", "org", 4, 6, 2, 8.5, "True"]
            assert (shown["q"]["Revision"], shown["q"]["Jobs"], shown["q"]["Waiting"]) == ("abc123", 1, 2)

    asyncio.run(story())


def test_only_what_changed_is_written(cluster: Cluster) -> None:
    async def story() -> None:
        async with quorate(cluster) as api:
            told = telling(api)
            assert await told.tell(wanted(policy())) == (2, 0)
            written = writes(cluster)
            assert await told.tell(wanted(policy())) == (0, 0)
            assert await telling(api).tell(wanted(policy())) == (0, 0)  # who leads next
            assert writes(cluster) == written
            before = condition((await there(api))["q"], "Ready")
            assert await told.tell(wanted(policy(), revision="def456", stalled="PlanDrift")) == (2, 0)
            queue = (await there(api))["q"]
            assert queue["metadata"]["annotations"]["quorate.dev/policy-revision"] == "def456"
            assert condition(queue, "Stalled")["status"] == "True"
            assert condition(queue, "Ready") == before

    asyncio.run(story())


def test_cpu_and_memory_are_written_as_they_are_and_taken_away_with_the_last_quota_of_them(cluster: Cluster) -> None:
    async def story() -> None:
        rows = (CpuQuota(Cpu(8_000), None, Cpu(4_000)), MemoryQuota(Memory(2**38)))
        async with quorate(cluster) as api:
            told, with_rows = telling(api), wanted(policy(host_quota=rows))
            assert await told.tell(with_rows) == (2, 0)
            assert (await there(api))["q"]["status"]["host"] == with_rows["q"].figures["host"]
            assert await telling(api).tell(with_rows) == (0, 0)
            assert await told.tell(wanted(policy())) == (2, 0)
            assert "host" not in (await there(api))["q"]["status"]

    asyncio.run(story())


def test_figures_rest_and_holds_do_not(cluster: Cluster) -> None:
    async def story() -> None:
        fewer = policy_of((Queue(QueueName("org")), Queue(QueueName("q"), QueueName("org"))))
        async with quorate(cluster) as api:
            slow = telling(api, quiet_ms=60_000)
            await slow.tell(wanted(policy()))
            assert await slow.tell(wanted(fewer)) == (0, 2)
            held = wanted(policy(stop_policy="Hold"))
            assert await slow.tell(held) == (1, 1)  # the figures of the other
            assert condition((await there(api))["q"], "Ready")["reason"] == "Hold"

    asyncio.run(story())


def test_a_queue_that_is_gone_or_a_root_now_is_seen_so(cluster: Cluster) -> None:
    async def story() -> None:
        async with quorate(cluster) as api:
            told = telling(api)
            await told.tell(wanted(policy()))
            await told.tell(wanted(policy_of((Queue(QueueName("q")),))))
            found = await there(api)
            assert list(found) == ["q"]
            assert "parent" not in found["q"]["status"]

    asyncio.run(story())


def test_nobody_else_writes_queues(cluster: Cluster) -> None:
    async def story() -> None:
        async with quorate(cluster) as api, session(cluster) as admin:
            await telling(api).tell(wanted(policy()))
            for attempt in (
                admin.create(
                    QUEUES.path(), {"apiVersion": "quorate.dev/v1", "kind": "Queue", "metadata": {"name": "mine"}}
                ),
                admin.patch(QUEUES.path(name="q"), {"metadata": {"labels": {"a": "b"}}}),
                admin.patch(QUEUES.path(name="q", subresource="status"), {"status": {"parent": "none"}}),
                admin.delete(QUEUES.path(name="q")),
            ):
                with pytest.raises(NotAllowedError, match="Change the Queue document in the policy repository"):
                    await attempt

    asyncio.run(story())


def test_what_was_changed_behind_its_back_is_read_anew(cluster: Cluster) -> None:
    async def story() -> None:
        async with quorate(cluster) as api:
            told = telling(api)
            await told.tell(wanted(policy()))
            await api.delete(QUEUES.path(name="q"))
            again = wanted(policy(), revision="def456")
            assert await told.tell(again) == (1, 1)
            assert await told.tell(again) == (1, 0)
            assert sorted(await there(api)) == ["org", "q"]

    asyncio.run(story())


def test_a_status_that_the_definition_does_not_know_is_refused(cluster: Cluster) -> None:
    """The definition is as strict as the server lets it be: what is written is what it says."""

    async def story() -> None:
        async with quorate(cluster) as api:
            await telling(api).tell(wanted(policy()))
            with pytest.raises(RefusedError, match="status"):
                await api.patch(
                    QUEUES.path(name="q", subresource="status"), {"status": {"gpus": [{"gpuType": "H100"}]}}
                )

    asyncio.run(story())


def writes(cluster: Cluster) -> int:
    paths = [
        QUEUES.path(),
        *(QUEUES.path(name=name, subresource=sub) for name in ("q", "org") for sub in ("", "status")),
    ]
    return sum(event["verb"] in ("create", "patch", "delete") for path in paths for event in audited(cluster, path))
