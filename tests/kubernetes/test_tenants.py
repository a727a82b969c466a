"""Tenants on a real API server: which queues and classes pods of a namespace may name, by what the policy in force says in Git."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest
import structlog

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import NAMESPACE
from reconciler.control.control import PolicyInForce
from reconciler.documents.files import Files
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import ConflictError, NotAllowedError, NotFoundError, RefusedError
from reconciler.kubernetes.control.namespace_publication import NAME, NamespacePublication
from reconciler.kubernetes.objects.queue_names import LocalQueue
from reconciler.kubernetes.objects.resource import PODS, Resource
from reconciler.kubernetes.status.namespace_parameters import BYTES_MAX, WORDS_MAX
from reconciler.kubernetes.status.policy_mirror import PolicyMirror
from reconciler.kubernetes.status.policy_parts import PolicyRevision, copy_of
from reconciler.protocols.backend import Epoch
from solver.model.workload import QueueName
from solver.policy.policy import (
    NamespaceAccess,
    NamespaceSelector,
    Policy,
    PriorityClass,
    Queue,
    QueueAccess,
    SchedulingPolicy,
    policy_of,
)
from tests.kubernetes.fencing import as_quorate, led_by
from tests.kubernetes.installing import granted
from tests.kubernetes.sessions import CONFIG_MAPS, NAMESPACES, REAL, SOON_S, session

pytestmark = REAL

PATH = CONFIG_MAPS.path(NAMESPACE, NAME)
CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses")
LEADER = Leadership("one", Epoch(1), 0.0)
TENANT = "tenant"
VISION, LAB, GUESTS = "tenant-vision", "tenant-lab-1", "tenant-guests"
SPEECH, SPEECH_GPU, TIER = "labelled-speech", "labelled-speech-gpu", "labelled-tier"
LABELS = {
    SPEECH: {"team": "speech"},
    SPEECH_GPU: {"team": "speech", "example.com/tier": ""},
    TIER: {"example.com/tier": "", "team": "speeches"},
}
TEAM, TEAM_AND_TIER = NamespaceSelector(LABELS[SPEECH]), NamespaceSelector(LABELS[SPEECH_GPU])
OWN, KUEUE = "quorate.dev/queue", "kueue.x-k8s.io/queue-name"
LOCAL = (
    LocalQueue(LAB, "theirs", "research-vision"),
    LocalQueue(VISION, "sly", "product"),
    LocalQueue(VISION, "team", "research-vision"),
)


def queue(name: str, *entries: NamespaceAccess, parent: str | None = None) -> Queue:
    above = QueueName(parent) if parent else None
    return Queue(QueueName(name), above, access=QueueAccess(namespaces=entries))


POLICY = policy_of(
    (
        queue("research", NamespaceAccess("tenant-lab-*", ("batch",))),
        queue("research-vision", NamespaceAccess(VISION, default=True, local_queues=("main",)), parent="research"),
        queue("research-language", parent="research"),
        queue("product", NamespaceAccess("tenant-prod")),
        queue("speech", NamespaceAccess(selector=TEAM, priority_classes=("batch",), local_queues=("said",))),
        queue("speech-gpu", NamespaceAccess(selector=TEAM_AND_TIER, local_queues=("said",))),
        queue("open"),
    ),
    (PriorityClass("batch"), PriorityClass("training")),
)
CLOSED = policy_of(POLICY.queues, POLICY.priority_classes, SchedulingPolicy(unlisted_namespaces="refused"))


class Lease:
    """Always ours."""

    def leadership(self) -> Leadership:
        return LEADER


class InForce:
    """One policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def current(self) -> PolicyInForce:
        return PolicyInForce("1" * 40, self._policy, ())


async def publish(quorate: Api, policy: Policy, local: tuple[LocalQueue, ...] = ()) -> None:
    """One look of the keeper."""

    async def sleep(_: float) -> None:
        raise asyncio.CancelledError

    keeper = NamespacePublication(InForce(policy), lambda: local, NAMESPACE, structlog.get_logger(), sleep)
    with suppress(asyncio.CancelledError):
        await keeper.run(quorate, Lease())


def a_pod(name: str, labels: dict[str, str], notes: dict[str, str] | None = None, **spec: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    meta = {"name": name, "labels": labels, "annotations": notes or {}}
    return {"metadata": meta, "spec": {"schedulerName": "quorate", "containers": [container], **spec}}


async def answer(tenant: Api, space: str, pod: dict[str, Any]) -> str:
    """What the server says against making it; "": it would."""
    try:
        await tenant.create(f"{PODS.path(space)}?dryRun=All", pod)
    except RefusedError as error:
        return str(error)
    return ""


async def until_said(tenant: Api, space: str, labels: dict[str, str], words: str) -> None:
    """A ConfigMap is in force a moment after it was written. `words` "": such a pod is let in."""
    async with asyncio.timeout(SOON_S):
        while True:
            said = await answer(tenant, space, a_pod("probe", labels))
            if words in said and bool(words) == bool(said):
                return
            await asyncio.sleep(0.05)


class Sessions(NamedTuple):
    """Of an administrator, of Quorate, and of a tenant that makes and changes pods, and their status as a kubelet would."""

    admin: Api
    quorate: Api
    tenant: Api


@asynccontextmanager
async def tenants(cluster: Cluster) -> AsyncIterator[Sessions]:
    """With namespaces and their accounts; nothing of it is in force afterwards."""
    async with session(cluster) as admin, as_quorate(cluster) as quorate, session(cluster, TENANT, ()) as tenant:
        for space in (VISION, LAB, GUESTS, *LABELS):
            with suppress(ConflictError):
                await admin.create(NAMESPACES.path(), {"metadata": {"name": space, "labels": LABELS.get(space, {})}})
        rules = [
            {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "create", "patch", "delete"]}
        ]
        with suppress(ConflictError):
            await granted(admin, TENANT, rules)
        try:
            yield Sessions(admin, quorate, tenant)
        finally:
            with suppress(NotFoundError):
                await admin.delete(PATH)
            await until_said(tenant, GUESTS, {OWN: "product"}, "")


CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "its queue": (VISION, a_pod("p", {OWN: "research-vision"}), ""),
    "none, so its default": (VISION, a_pod("p", {}), ""),
    "another's queue": (
        VISION,
        a_pod("p", {OWN: "product"}),
        "namespace tenant-vision may not use queue product, only research-vision. Name one of these, or list the namespace "
        "in access.namespaces of the queue, in Git.",
    ),
    "a queue beside": (VISION, a_pod("p", {OWN: "research-language"}), "may not use queue research-language, only"),
    "a queue above": (VISION, a_pod("p", {OWN: "research"}), "may not use queue research, only research-vision"),
    "a queue that lists nobody": (VISION, a_pod("p", {OWN: "open"}), "may not use queue open, only research-vision"),
    "a queue that is not there": (VISION, a_pod("p", {OWN: "visoin"}), "may not use queue visoin, only"),
    "an annotation": (VISION, a_pod("p", {}, {OWN: "product"}), "may not use queue product"),
    "an annotation behind an empty label": (VISION, a_pod("p", {OWN: ""}, {OWN: "product"}), "queue product"),
    "an annotation of KAI": (VISION, a_pod("p", {}, {"kai.scheduler/queue": "product"}), "queue product"),
    "a label of Volcano": (VISION, a_pod("p", {"volcano.sh/queue-name": "product"}), "may not use queue product"),
    "an annotation of Volcano": (
        VISION,
        a_pod("p", {}, {"scheduling.volcano.sh/queue-name": "product"}),
        "may not use queue product",
    ),
    "one that does not count": (VISION, a_pod("p", {OWN: "research-vision", KUEUE: "product"}), ""),
    "one that counts": (VISION, a_pod("p", {OWN: "product", KUEUE: "main"}), "may not use queue product"),
    "its queue in Kueue's label": (VISION, a_pod("p", {KUEUE: "research-vision"}), ""),
    "a name of the policy": (VISION, a_pod("p", {KUEUE: "main"}), ""),
    "its LocalQueue": (VISION, a_pod("p", {KUEUE: "team"}), ""),
    "its LocalQueue in our label": (VISION, a_pod("p", {OWN: "team"}), "may not use queue team"),
    "another namespace's LocalQueue": (VISION, a_pod("p", {KUEUE: "theirs"}), "may not use queue theirs, only"),
    "a name of the policy, elsewhere": (LAB, a_pod("p", {KUEUE: "main"}), "may not use queue main, only"),
    "its LocalQueue to another's queue": (VISION, a_pod("p", {KUEUE: "sly"}), "may not use queue product, only"),
    "another scheduler's pod": (VISION, a_pod("p", {OWN: "product"}, schedulerName="other"), ""),
    "any class": (VISION, a_pod("p", {OWN: "research-vision", "quorate.dev/priority-class": "training"}), ""),
    "its class": (LAB, a_pod("p", {OWN: "research-language", "quorate.dev/priority-class": "batch"}), ""),
    "another class": (
        LAB,
        a_pod("p", {OWN: "research-language", "quorate.dev/priority-class": "training"}),
        "namespace tenant-lab-1 may not use queue research-language for priority class training, only for batch.",
    ),
    "another class in Kueue's annotation": (
        LAB,
        a_pod("p", {OWN: "research-vision"}, {"kueue.x-k8s.io/priority-class": "training"}),
        "for priority class training, only for batch",
    ),
    "another class of the cluster": (
        LAB,
        a_pod("p", {OWN: "research-vision"}, priorityClassName="training"),
        "for priority class training, only for batch",
    ),
    "a class that is no policy's": (
        LAB,
        a_pod("p", {OWN: "research-vision"}, priorityClassName="system-node-critical"),
        "",
    ),
    "a queue of nobody's": (GUESTS, a_pod("p", {OWN: "open"}), ""),
    "a closed queue": (
        GUESTS,
        a_pod("p", {OWN: "product"}),
        "queue product is open to listed namespaces alone, and tenant-guests is not among them.",
    ),
    "a queue below a closed one": (GUESTS, a_pod("p", {OWN: "research-language"}), "open to listed namespaces alone"),
    "its label's queue": (SPEECH, a_pod("p", {OWN: "speech"}), ""),
    "its label's queue for another class": (
        SPEECH,
        a_pod("p", {OWN: "speech", "quorate.dev/priority-class": "training"}),
        "may not use queue speech for priority class training, only for batch",
    ),
    "a queue of one label more": (
        SPEECH,
        a_pod("p", {OWN: "speech-gpu"}),
        "namespace labelled-speech may not use queue speech-gpu, only speech for batch.",
    ),
    "a queue of both its labels": (SPEECH_GPU, a_pod("p", {OWN: "speech-gpu"}), ""),
    "a queue of one of its labels": (SPEECH_GPU, a_pod("p", {OWN: "speech"}), ""),
    "its label's name for a queue": (SPEECH, a_pod("p", {KUEUE: "said"}), ""),
    "the name by most of its labels": (
        SPEECH_GPU,
        a_pod("p", {KUEUE: "said", "quorate.dev/priority-class": "training"}),
        "",
    ),
    "a queue of a label's other value": (TIER, a_pod("p", {OWN: "speech-gpu"}), "open to listed namespaces alone"),
    "a queue that is nowhere": (GUESTS, a_pod("p", {OWN: "nowhere"}), ""),
}


def test_a_tenants_pods_name_the_queues_and_classes_of_their_namespace(fenced: Cluster) -> None:
    async def story() -> dict[str, str]:
        async with tenants(fenced) as of:
            with suppress(ConflictError):
                await of.admin.create(CLASSES.path(), {"metadata": {"name": "training"}, "value": 1})
            before = [await answer(of.tenant, space, pod) for space, pod, _ in CASES.values()]
            assert before == [""] * len(CASES), "without a ConfigMap pods are let in"
            await publish(of.quorate, POLICY, LOCAL)
            await until_said(of.tenant, VISION, {OWN: "product"}, "only research-vision")
            said = {name: await answer(of.tenant, space, pod) for name, (space, pod, _) in CASES.items()}
            await of.admin.delete(CLASSES.path("", "training"))
            return said

    said = asyncio.run(story())
    wrong = {
        name: said[name]
        for name, (_, _, want) in CASES.items()
        if want not in said[name] or bool(want) != bool(said[name])
    }
    assert wrong == {}
    assert all("'quorate-namespaces'" in one for one in said.values() if one)


def test_a_pod_that_is_there_is_not_given_another_queue_by_its_tenant(fenced: Cluster) -> None:
    async def story() -> None:
        async with tenants(fenced) as of:
            await publish(of.quorate, POLICY, LOCAL)
            await until_said(of.tenant, VISION, {OWN: "product"}, "only research-vision")
            at, status = PODS.path(VISION, "changed"), PODS.path(VISION, "changed", "status")
            await of.tenant.create(PODS.path(VISION), a_pod("changed", {OWN: "research-vision"}))
            foreign: Iterable[dict[str, Any]] = (
                {"labels": {OWN: "product"}},
                {"labels": {OWN: None, KUEUE: "sly"}},
                {"labels": {OWN: None}, "annotations": {OWN: "research-language"}},
            )
            for change in foreign:
                with pytest.raises(RefusedError, match="tenant-vision may not use queue"):
                    await of.tenant.patch(at, {"metadata": change})
                with suppress(RefusedError):
                    await of.tenant.patch(status, {"metadata": change})
                there = await of.admin.get(at, dict[str, Any])
                assert there["metadata"]["labels"] == {OWN: "research-vision"}
                assert "annotations" not in there["metadata"]
            await of.tenant.create(PODS.path(VISION), a_pod("noted", {}, {OWN: "research-vision"}))
            with pytest.raises(RefusedError, match="tenant-vision may not use queue product"):
                await of.tenant.patch(PODS.path(VISION, "noted"), {"metadata": {"annotations": {OWN: "product"}}})
            await of.tenant.delete(PODS.path(VISION, "noted"), {"gracePeriodSeconds": 0})
            for own in ({KUEUE: "team"}, {OWN: None}, {"app": "mine", KUEUE: None}):
                await of.tenant.patch(at, {"metadata": {"labels": own}})
            await of.tenant.delete(at, {"gracePeriodSeconds": 0})

    asyncio.run(story())


def test_what_runs_is_written_to_as_before_when_its_namespace_is_taken_out(fenced: Cluster) -> None:
    async def story() -> None:
        await led_by(fenced, None)
        async with tenants(fenced) as of:
            await of.tenant.create(PODS.path(VISION), a_pod("stays", {OWN: "product"}))
            await publish(of.quorate, CLOSED)
            await until_said(of.tenant, VISION, {OWN: "product"}, "only research-vision")
            running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
            await of.tenant.patch(PODS.path(VISION, "stays", "status"), running)
            mine = {
                "metadata": {"labels": {"app": "mine"}, "annotations": {"a": "b"}, "finalizers": ["mine.example/a"]}
            }
            await of.tenant.patch(PODS.path(VISION, "stays"), mine)
            await of.quorate.patch(
                PODS.path(VISION, "stays"), {"metadata": {"annotations": {"quorate.dev/promise": "p"}}}
            )
            await of.tenant.patch(PODS.path(VISION, "stays"), {"metadata": {"finalizers": None}})
            await of.tenant.delete(PODS.path(VISION, "stays"), {"gracePeriodSeconds": 0})
            nobody = "no queue lists namespace tenant-guests, and such namespaces may use none."
            for labels in ({OWN: "open"}, {}):
                assert nobody in await answer(of.tenant, GUESTS, a_pod("p", labels))
            assert await answer(of.tenant, VISION, a_pod("p", {})) == ""

    asyncio.run(story())


def test_what_is_kept_follows_the_policy_and_is_quorates_alone(fenced: Cluster) -> None:
    async def story() -> None:
        async with tenants(fenced) as of:
            with pytest.raises(NotAllowedError):
                await of.tenant.create(CONFIG_MAPS.path(NAMESPACE), {"metadata": {"name": NAME}})
            with pytest.raises(RefusedError, match="Only Quorate writes this ConfigMap"):
                await of.admin.create(CONFIG_MAPS.path(NAMESPACE), {"metadata": {"name": NAME}})
            await publish(of.quorate, POLICY, LOCAL)
            written = await of.admin.get(PATH, dict[str, Any])
            await publish(of.quorate, POLICY, LOCAL)
            assert (await of.admin.get(PATH, dict[str, Any])) == written, "what is as it is to be is not written again"
            mirror, files = PolicyMirror(of.quorate, NAMESPACE, Lease()), Files({"policies/a.yaml": b"a"})
            for commit in ("a" * 40, "b" * 40):
                await mirror.show(copy_of(PolicyRevision(commit, None, files)))
            assert (await of.admin.get(PATH, dict[str, Any])) == written, (
                "it is no part of the copy that gives way to another"
            )
            await publish(of.quorate, CLOSED)
            data = (await of.admin.get(PATH, dict[str, Any]))["data"]
            assert data["unlisted"] == "refused"
            assert f"\n{LAB} theirs=research-vision\n" in written["data"]["localNames"]
            assert LAB not in data["localNames"]
            await of.admin.delete(PATH)
            await publish(of.quorate, CLOSED)
            assert (await of.admin.get(PATH, dict[str, Any]))["data"] == data
            await publish(of.quorate, policy_of((queue("open"),)))
            with pytest.raises(NotFoundError):
                await of.admin.get(PATH, dict[str, Any])

    asyncio.run(story())


def test_as_much_as_is_ever_written_is_judged_within_the_budget(fenced: Cluster) -> None:
    long = "-".join(["x" * 9] * 4)
    words = [f"{long}-{number}" for number in range(WORDS_MAX)]
    data = {
        "unlisted": "refused",
        "namespaces": f"\n{VISION} {' '.join(words)}\n",
        "beginnings": " ".join(f"o-{word}*=q" for word in words[1:]) + " tenant-*=research-vision:batch",
        "sharedNames": " ".join(f"t*/{number}=q" for number in range(WORDS_MAX)),
        "selectors": "".join(f"\nlabel-{number}=x,team=a q" for number in range(WORDS_MAX)) + "\n",
        "selectedNames": f"\ntier=gpu {' '.join(f'{number}=q' for number in range(WORDS_MAX - 1))}\n",
        "classes": " ".join(f"class-{number}" for number in range(WORDS_MAX)),
        "closed": " ".join(f"queue-{number}" for number in range(WORDS_MAX)),
    }
    size = sum(len(key) + len(value) for key, value in data.items())
    # Before the line that is looked for, the rest of what fits.
    data["namespaces"] = (
        "".join(f"\nn-{word} q" for word in (words * 2)[: (BYTES_MAX - size) // 50]) + data["namespaces"]
    )
    assert 0.95 * BYTES_MAX < sum(len(key) + len(value) for key, value in data.items()) <= BYTES_MAX

    async def story() -> None:
        async with tenants(fenced) as of:
            await of.quorate.create(CONFIG_MAPS.path(NAMESPACE), {"metadata": {"name": NAME}, "data": data})
            await until_said(of.tenant, VISION, {KUEUE: "product"}, "may not use queue product, only xxxxxxxxx-")
            assert await answer(of.tenant, VISION, a_pod("p", {KUEUE: f"{long}-{WORDS_MAX - 1}"})) == ""
            training = {KUEUE: "research-vision", "quorate.dev/priority-class": "training"}
            assert "only for batch" in await answer(of.tenant, LAB, a_pod("p", training))

    asyncio.run(story())
