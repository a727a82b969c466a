"""The fence on a real API server: who is refused what, and who is not touched by it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import QUORATE, policies
from reconciler.kubernetes.client.leader import LEASE, NAMESPACE, Leadership
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError, RefusedError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import LEASES, NODES, PODS, Resource
from reconciler.protocols.backend import Epoch
from tests.kubernetes.fencing import as_mighty_quorate, led_by
from tests.kubernetes.sessions import REAL, a_namespace, a_pod, session

pytestmark = REAL

CLAIMS = Resource("resource.k8s.io/v1", "resourceclaims")
LEADER = Leadership("a", Epoch(7), 0)
STALE = [
    Leadership("a", Epoch(6), 0),
    Leadership("b", Epoch(7), 0),
    Leadership("b", Epoch(8), 0),
    Leadership("", Epoch(7), 0),
]
Deed = Callable[[Leadership | None], Awaitable[Any]]


def a_binding(name: str, lead: Leadership | None, **labels: str) -> dict[str, Any]:
    meta = {"name": name, "annotations": lead.stamp if lead else {}, "labels": labels}
    return {"metadata": meta, "target": {"kind": "Node", "name": "n1"}}


def an_eviction(lead: Leadership | None) -> dict[str, Any]:
    labels = {names.FENCED: "true"}
    return {"metadata": {"name": "evicted", "annotations": lead.stamp if lead else {}, "labels": labels}}


async def refused(deed: Awaitable[Any], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        await deed


def test_quorate_writes_only_as_the_leader_of_now(fenced: Cluster) -> None:
    async def story() -> None:
        async with session(fenced) as admin, as_mighty_quorate(fenced) as api:
            await led_by(fenced, LEADER)
            space = await a_namespace(admin)
            for name in ("bound", "legacy", "noted", "evicted"):
                await admin.create(PODS.path(space), a_pod(name))
            await admin.create(NODES.path(), {"metadata": {"name": "noted"}})
            claim = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
            await admin.create(CLAIMS.path(space), {"metadata": {"name": "c"}, "spec": claim})
            result = {"request": "r", "driver": "d.example", "pool": "p", "device": "d"}
            status = {"status": {"allocation": {"devices": {"results": [result]}}}}

            def stamped(lead: Leadership | None) -> dict[str, Any]:
                return {"metadata": {"annotations": lead.stamp if lead else {"quorate.dev/some": "thing"}}}

            def managed(lead: Leadership | None) -> str:
                return f"?fieldManager={lead.field_manager}" if lead else ""

            fenced_label = {names.FENCED: "true"}
            legacy = f"/api/v1/namespaces/{space}/bindings"
            deeds: list[Deed] = [
                lambda lead: api.create(PODS.path(space, "bound", "binding"), a_binding("bound", lead, **fenced_label)),
                lambda lead: api.create(legacy, a_binding("legacy", lead, **fenced_label)),
                lambda lead: api.patch(PODS.path(space, "noted"), stamped(lead)),
                lambda lead: api.patch(NODES.path("", "noted"), stamped(lead)),
                lambda lead: api.create(PODS.path(space, "evicted", "eviction"), an_eviction(lead)),
                lambda lead: api.patch(CLAIMS.path(space, "c"), stamped(lead)),
                lambda lead: api.patch(CLAIMS.path(space, "c", "status") + managed(lead), status),
            ]
            for deed in deeds:
                for lead in (None, *STALE):
                    await refused(deed(lead), "'quorate-fence' .*not written by the leader, which is a in epoch 7")
            for deed in deeds:
                await deed(LEADER)
            with pytest.raises(NotFoundError):
                await admin.get(PODS.path(space, "evicted"), dict[str, Any])
            for name in ("bound", "legacy"):
                pod = await admin.get(PODS.path(space, name), dict[str, Any])
                assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"]) == ("n1", LEADER.stamp)

    asyncio.run(story())


def test_quorate_deletes_only_what_the_leader_of_now_has_written_and_as_it_was_written(fenced: Cluster) -> None:
    async def story() -> None:
        async with session(fenced) as admin, as_mighty_quorate(fenced) as api:
            await led_by(fenced, LEADER)
            space = await a_namespace(admin)
            path = PODS.path(space, "p")
            made = await admin.create(PODS.path(space), a_pod("p"))

            def deleted(of: dict[str, Any], **only_if: str) -> Awaitable[Any]:
                return api.delete(path, {"preconditions": {"uid": of["metadata"]["uid"], **only_if}})

            def version_of(pod: dict[str, Any]) -> dict[str, str]:
                return {"resourceVersion": pod["metadata"]["resourceVersion"]}

            not_the_leader = "'quorate-fence' .*not written by the leader, which is a in epoch 7"
            await refused(deleted(made, **version_of(made)), not_the_leader)
            for stale in STALE[:3]:
                await led_by(fenced, stale)
                made = await api.patch(path, {"metadata": {"annotations": stale.stamp}})
                await led_by(fenced, LEADER)
                await refused(deleted(made, **version_of(made)), not_the_leader)
            stamped = await api.patch(path, {"metadata": {"annotations": LEADER.stamp}})
            with pytest.raises(ConflictError):
                await deleted(made, **version_of(made))
            await refused(deleted(stamped), "'quorate-fence' .*not deleted by the version")
            await deleted(stamped, **version_of(stamped))
            with pytest.raises(NotFoundError):
                await admin.get(path, dict[str, Any])
            await admin.create(PODS.path(space), a_pod("theirs"))
            await admin.delete(PODS.path(space, "theirs"))

    asyncio.run(story())


def test_nobody_leads_who_has_resigned_and_without_a_lease_quorate_does_not_bind(fenced: Cluster) -> None:
    async def story() -> None:
        async with session(fenced) as admin, as_mighty_quorate(fenced) as api:
            space = await a_namespace(admin)
            for name in ("mine", "theirs"):
                await admin.create(PODS.path(space), a_pod(name))
            nobody = Leadership("", Epoch(7), 0)
            await led_by(fenced, nobody)
            binding = PODS.path(space, "mine", "binding")
            label = {names.FENCED: "true"}
            await refused(api.create(binding, a_binding("mine", nobody, **label)), "which is nobody in epoch 7")
            await led_by(fenced, None)
            await refused(api.create(binding, a_binding("mine", LEADER, **label)), "'quorate-fence' .*no params found")
            # Whatever becomes of Quorate's Lease, other schedulers and controllers go on.
            await admin.create(PODS.path(space, "theirs", "binding"), a_binding("theirs", None))
            await admin.patch(PODS.path(space, "mine"), {"metadata": {"labels": {"a": "b"}}})

    asyncio.run(story())


def test_nobody_evades_the_fence_or_says_in_quorates_place_what_a_pod_holds(fenced: Cluster) -> None:
    async def story() -> None:
        async with session(fenced) as admin, as_mighty_quorate(fenced) as api:
            await led_by(fenced, LEADER)
            space = await a_namespace(admin)
            await admin.create(PODS.path(space), a_pod("p"))
            path = PODS.path(space, "p", "binding")
            await refused(
                api.create(path, a_binding("p", LEADER)), "Quorate's Bindings (and Evictions )?carry the label"
            )
            forged = a_binding("p", None, **{names.FENCED: "true"})
            await refused(admin.create(path, forged), "Only Quorate says what a pod holds|not written by")
            forged = a_binding("p", None)
            forged["metadata"]["annotations"] = {names.DEVICES: "n1/0"}
            await refused(admin.create(path, forged), "Only Quorate says what a pod holds")
            await admin.create(path, a_binding("p", None))

    asyncio.run(story())


def test_in_a_namespace_of_its_own_only_quorate_binds(fenced: Cluster) -> None:
    async def story() -> None:
        async with session(fenced) as admin, as_mighty_quorate(fenced) as api:
            await led_by(fenced, LEADER)
            space = await a_namespace(admin)
            await admin.patch(
                Resource("v1", "namespaces").path("", space), {"metadata": {"labels": {"quorate.dev/only": "true"}}}
            )
            await admin.create(PODS.path(space), a_pod("p"))
            path = PODS.path(space, "p", "binding")
            await refused(admin.create(path, a_binding("p", None)), "only Quorate binds pods")
            await api.create(path, a_binding("p", LEADER, **{names.FENCED: "true"}))

    asyncio.run(story())


RESERVED = [
    "devices",
    "share",
    "sharing",
    "attempt",
    "gang-plan",
    "release",
    "promise",
    "evict",
    "limit",
    "checkpoint-by",
    "epoch",
    "leader",
]


def test_quorates_annotations_of_pods_are_quorates_alone(fenced: Cluster) -> None:
    async def story() -> None:
        async with session(fenced) as admin, as_mighty_quorate(fenced) as api:
            await led_by(fenced, LEADER)
            space = await a_namespace(admin)
            await admin.create(PODS.path(space), a_pod("p"))
            notes = {"metadata": {"annotations": {**LEADER.stamp, names.ATTEMPT: "1"}}}
            await api.patch(PODS.path(space, "p"), notes)
            for word in RESERVED:
                for value in ("forged", None) if word in ("attempt", "epoch", "leader") else ("forged",):
                    change = {"metadata": {"annotations": {f"quorate.dev/{word}": value}}}
                    # A write of a pod's status may change its annotations too.
                    for way in ("", "status"):
                        await refused(
                            admin.patch(PODS.path(space, "p", way), change), "Only Quorate writes its annotations"
                        )
                made = a_pod("forged")
                made["metadata"]["annotations"] = {f"quorate.dev/{word}": "forged"}
                await refused(admin.create(PODS.path(space), made), "Only Quorate writes its annotations")
            await admin.patch(PODS.path(space, "p"), {"metadata": {"annotations": {"quorate.dev/gang": "people's"}}})
            await refused(admin.create(PODS.path(space), a_pod("placed", "n1")), "gets its node from Quorate")
            theirs = {
                "metadata": {"name": "theirs"},
                "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]},
            }
            await admin.create(PODS.path(space), theirs)

    asyncio.run(story())


def test_it_names_the_user_the_lease_and_the_annotations_that_the_code_has() -> None:
    text = "\n".join(str(policy) for policy in policies("fence"))
    assert text.count(QUORATE) == 4
    assert f"'paramRef': {{'name': '{LEASE}', 'namespace': '{NAMESPACE}'" in text
    ours = {names.DEVICES, names.SHARE, names.SHARING, names.ATTEMPT, names.GANG_PLAN, names.RELEASE, *LEADER.stamp}
    assert ours <= {f"quorate.dev/{word}" for word in RESERVED}
    assert LEASES.path(NAMESPACE, LEASE).endswith("/namespaces/quorate-system/leases/quorate")
    assert all(
        policy["spec"].get("failurePolicy", "Fail") == "Fail" for policy in policies("fence", "scope", "namespaces")
    )
