"""Claims get their devices and lose them again, on a real API server, whatever comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hack.kubernetes import devices
from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.binding import Binder, GangBinding, PodBinding
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import NotFoundError, RefusedError
from reconciler.kubernetes.dra.check import violations
from reconciler.kubernetes.dra.claim_status import Allotment, ClaimRelease, claims_of, readiness, releases
from reconciler.kubernetes.dra.claims import Claims
from reconciler.kubernetes.dra.wire import CLAIMS, FINALIZER, ResourceClaim, ResourceSlice
from reconciler.kubernetes.objects.remarks import Missing
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import Pod, read
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName
from tests.kubernetes.claiming import (
    NOW,
    Breaking,
    allotment,
    consumer,
    leading,
    made_claim,
    made_pod,
    publish,
    using,
)
from tests.kubernetes.fencing import as_quorate, led_by
from tests.kubernetes.sessions import NAMESPACES, REAL, a_namespace, session

pytestmark = REAL

SLICES = devices.mig_slices("n1", gpus=2)


async def _claim(api: Api, claim: ResourceClaim) -> ResourceClaim:
    return await api.get(CLAIMS.path(*claim.key), ResourceClaim)


async def _begun(api: Api, name: str = "c") -> tuple[str, ResourceClaim, Pod]:
    """A claim and a pod that uses it."""
    namespace = await a_namespace(api)
    claim = await made_claim(api, namespace, devices.an_instance(name))
    return namespace, claim, await made_pod(api, namespace, using("p", name))


async def _over(api: Api, pod: Pod) -> Pod:
    """The pod once its kubelet has said so."""
    await api.patch(PODS.path(*pod.key, "status"), {"status": {"phase": "Succeeded"}})
    return await api.get(PODS.path(*pod.key), Pod)


def test_a_claim_is_allotted_its_pod_bound_and_all_given_back(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            await publish(api, SLICES)
            _, claim, pod = await _begun(api)
            claims = Claims(api, leading())
            done = await claims.allot(allotment(claim, pod, SLICES))
            assert done.answer == "done", done.why
            has = await _claim(api, claim)
            assert has == done.claim
            assert has.metadata.finalizers == (FINALIZER,)
            assert has.status.allocation
            assert [one.device for one in has.status.allocation.devices.results] == ["gpu-0-mig-1g10gb-19-6"]
            assert has.status.reserved_for == (consumer(pod),)
            assert violations([has], [read(part, ResourceSlice) for part in SLICES]) == ()
            # Once more: nothing is written.
            again = await claims.allot(allotment(has, pod, SLICES)._replace(claim=claim))
            assert (again.answer, (await _claim(api, claim)).metadata.resource_version) == (
                "done",
                has.metadata.resource_version,
            )
            binding = PodBinding(*pod.key, pod.metadata.uid, pod.metadata.resource_version, NodeName("n1"))
            (bound,) = await Binder(api, leading(), SystemClock()).bind([GangBinding(JobName("j"), 1, (binding,))])
            assert bound.is_whole
            there = await api.get(PODS.path(*pod.key), Pod)
            assert releases([has], {there.metadata.uid: there}, (), Instant.parse(NOW)) == ()
            over = await _over(api, there)
            (release,) = releases([has], {over.metadata.uid: over}, (), Instant.parse(NOW))
            assert (await claims.release(release)).answer == "done"
            free = await _claim(api, claim)
            assert (free.status.allocation, free.status.reserved_for, free.metadata.finalizers) == (None, (), ())

    asyncio.run(story())


def test_a_claim_that_others_write_to_is_read_again_but_one_with_other_devices_is_not_theirs(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            _, claim, pod = await _begun(api)
            claims = Claims(api, leading())
            await api.patch(CLAIMS.path(*claim.key), {"metadata": {"labels": {"somebody": "else"}}})
            wanted = allotment(claim, pod, SLICES)
            done = await claims.allot(wanted)
            assert done.answer == "done", done.why
            assert done.claim is not None
            other = allotment(claim, pod, SLICES, [done.claim])
            refused = await claims.allot(other)
            assert (refused.answer, refused.why.endswith("it has other devices")) == ("conflict", True)
            # What was seen before somebody reserved it is not given back.
            stale = ClaimRelease(claim=done.claim, keep=(), why="")
            second = await made_pod(api, claim.metadata.namespace, using("q", "c"))
            joined = await claims.allot(Allotment(done.claim, consumer(second), None))
            assert (joined.answer, len(joined.claim.status.reserved_for) if joined.claim else 0) == ("done", 2)
            assert (await claims.release(stale)).answer == "conflict"
            assert (await _claim(api, claim)).status.allocation == done.claim.status.allocation

    asyncio.run(story())


def test_pods_that_share_a_claim_leave_it_one_by_one(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            namespace, claim, pod = await _begun(api)
            claims = Claims(api, leading())
            first = await claims.allot(allotment(claim, pod, SLICES))
            assert first.claim is not None
            second = await made_pod(api, namespace, using("q", "c"))
            both = await claims.allot(Allotment(first.claim, consumer(second), None))
            assert both.claim is not None
            over = await _over(api, pod)
            pods = {each.metadata.uid: each for each in (over, second)}
            (release,) = releases([both.claim], pods, {second.metadata.uid}, Instant.parse(NOW))
            assert release.keep == (consumer(second),)
            left = await claims.release(release)
            assert left.claim is not None
            assert left.claim.status.reserved_for == (consumer(second),)
            assert left.claim.status.allocation == first.claim.status.allocation

    asyncio.run(story())


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("broken", [1, 2])
def test_whoever_leads_next_goes_on_or_gives_back(cluster: Cluster, broken: int, is_done: bool) -> None:
    """The leader is gone after the first or second write, which was done or not."""

    async def story() -> None:
        async with session(cluster, kind=Breaking) as gone, session(cluster) as api:
            _, claim, pod = await _begun(api)
            assert isinstance(gone, Breaking)
            gone.broken, gone.is_done = broken, is_done
            wanted = allotment(claim, pod, SLICES)
            outcome = await Claims(gone, leading()).allot(wanted)
            has_devices = (broken, is_done) == (2, True)
            # The one whose answer was lost has looked, and seen that it was done.
            assert outcome.answer == ("done" if has_devices else "unknown")
            found = await _claim(api, claim)
            assert (found.status.allocation is not None) == has_devices
            later = Claims(api, leading(2, "quorate-2"))
            if has_devices:
                # Nobody binds the pod: a new leader knows nothing of it.
                (release,) = releases([found], {pod.metadata.uid: pod}, (), Instant.parse(NOW))
                assert (await later.release(release)).answer == "done"
                assert (await _claim(api, claim)).status.allocation is None
            assert (await later.allot(wanted)).answer == "done"

    asyncio.run(story())


def test_a_deleted_claim_stays_until_its_devices_are_free(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            _, claim, pod = await _begun(api)
            claims = Claims(api, leading())
            assert (await claims.allot(allotment(claim, pod, SLICES))).answer == "done"
            await api.delete(CLAIMS.path(*claim.key))
            await api.delete(PODS.path(*pod.key), {"gracePeriodSeconds": 0})
            leaving = await _claim(api, claim)
            assert leaving.metadata.deletion_timestamp
            assert (await claims.allot(allotment(claim, pod, SLICES))).answer == "gone"
            (release,) = releases([leaving], {}, (), Instant.parse(NOW))
            assert (await claims.release(release)).answer == "done"
            with pytest.raises(NotFoundError):
                await _claim(api, claim)
            assert (await claims.allot(allotment(claim, pod, SLICES))).answer == "gone"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("told", "state"),
    [({"attached": "True"}, "ready"), ({"attached": "False"}, "waiting"), ({"attached": "True", "lost": "True"}, "failed")],
)  # fmt: skip
def test_a_pod_waits_until_the_driver_says_that_its_device_is_ready(
    cluster: Cluster, told: dict[str, str], state: str
) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            _, claim, pod = await _begun(api)
            slices = devices.mig_slices("n1", gpus=1)
            for part in slices:
                for device in part["spec"].get("devices", ()):
                    device |= {"bindingConditions": ["attached"], "bindingFailureConditions": ["lost"]}
            claims = Claims(api, leading())
            done = await claims.allot(allotment(claim, pod, slices))
            assert done.claim is not None, done.why
            now = Instant.parse(NOW)
            assert readiness(done.claim, now).state == "waiting"
            assert readiness(done.claim, Instant(int(now) + 601_000)).state == "failed"
            assert done.claim.status.allocation
            (result,) = done.claim.status.allocation.devices.results
            conditions = [
                {"type": name, "status": status, "reason": "Tested", "message": "", "lastTransitionTime": NOW}
                for name, status in told.items()
            ]
            status = {"driver": result.driver, "pool": result.pool, "device": result.device, "conditions": conditions}
            await api.patch(CLAIMS.path(*claim.key, "status"), {"status": {"devices": [status]}})
            found = await _claim(api, claim)
            assert readiness(found, now).state == state
            given_back = releases([found], {pod.metadata.uid: pod}, {pod.metadata.uid}, now)
            assert bool(given_back) == (state == "failed")
            for release in given_back:
                assert (await claims.release(release)).answer == "done"
                assert (await _claim(api, claim)).status.devices == ()

    asyncio.run(story())


def test_claims_made_of_templates_are_found_by_the_status_of_their_pod(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            namespace = await a_namespace(api)
            pod = using("p")
            pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
            seen = await made_pod(api, namespace, pod)
            waiting = claims_of(seen, {})
            assert isinstance(waiting, Missing)
            assert "one-gpu" in str(waiting)
            owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": seen.metadata.uid, "controller": True}
            body = devices.an_instance("p-gpu-x7k2p")
            body["metadata"]["ownerReferences"] = [owner]
            claim = await made_claim(api, namespace, body)
            made = [{"name": "gpu", "resourceClaimName": "p-gpu-x7k2p"}]
            await api.patch(PODS.path(*seen.key, "status"), {"status": {"resourceClaimStatuses": made}})
            seen = await api.get(PODS.path(*seen.key), Pod)
            assert claims_of(seen, {claim.key: claim}) == (claim,)

    asyncio.run(story())


@pytest.mark.parametrize("deed", ["allot", "release"])
def test_the_fence_refuses_who_no_longer_leads(fenced: Cluster, deed: str) -> None:
    async def story() -> None:
        old, new = Leadership("quorate-1", Epoch(1), 1e12), Leadership("quorate-2", Epoch(2), 1e12)
        async with session(fenced) as api, as_quorate(fenced) as quorate:
            _, claim, pod = await _begun(api)
            wanted = allotment(claim, pod, SLICES)
            if deed == "release":
                await led_by(fenced, old)
                given = await Claims(quorate, lambda: old).allot(wanted)
                assert given.claim is not None, given.why
                claim = given.claim
            await led_by(fenced, new)
            release = ClaimRelease(claim, (), "")
            write: Callable[[Leadership], Any] = lambda lead: (  # noqa: E731
                Claims(quorate, lambda: lead).allot(wanted)
                if deed == "allot"
                else Claims(quorate, lambda: lead).release(release)
            )
            assert (await write(old)).answer == "stale-leader"
            assert (await _claim(api, claim)).metadata.resource_version == claim.metadata.resource_version
            if deed == "allot":
                # Somebody else has written to it since: the one who leads reads it, and writes again.
                await api.patch(CLAIMS.path(*claim.key), {"metadata": {"labels": {"somebody": "else"}}})
            assert (await write(new)).answer == "done"

    asyncio.run(story())


def test_what_the_server_would_refuse_is_told(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, session(cluster, "nobody", ()) as nobody:
            _, claim, pod = await _begun(api)
            wanted = allotment(claim, pod, SLICES)
            refused = await Claims(nobody, leading()).allot(wanted)
            assert (refused.answer, "403" in refused.why) == ("refused", True)
            assert wanted.allocation is not None
            (result,) = wanted.allocation["devices"]["results"]
            wrong = {**wanted.allocation, "devices": {"results": [{**result, "request": "another"}]}}
            assert (await Claims(api, leading()).allot(wanted._replace(allocation=wrong))).answer == "refused"
            assert (await _claim(api, claim)).status.allocation is None

    asyncio.run(story())


def test_the_server_takes_all_that_the_devices_of_the_tests_publish(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            await publish(api, [*devices.mig_slices("full-node", with_media=True), *devices.plain_slices("plain-node")])
            with pytest.raises(RefusedError):
                await publish(api, [devices.slice_of("x", 0, 1, {"devices": [], "sharedCounters": []})])
            await api.get(NAMESPACES.path("", "default"), dict[str, Any])

    asyncio.run(story())
