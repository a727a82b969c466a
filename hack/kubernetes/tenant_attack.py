"""What a tenant tries that may make and change pods in one namespace, to use another team's queue; for hack.kubernetes.attack."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from hack.kubernetes.fence import IN_FORCE_S, LOOK_EVERY_S
from hack.kubernetes.shipped import NAMESPACE
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import KubernetesError
from reconciler.kubernetes.control.namespace_publication import CONFIG_MAPS, NAME
from reconciler.kubernetes.objects.queue_names import LocalQueue
from reconciler.kubernetes.objects.resource import PODS, Resource
from reconciler.kubernetes.status.namespace_parameters import parameters_of
from solver.model.workload import QueueName
from solver.policy.policy import NamespaceAccess, PriorityClass, Queue, QueueAccess, policy_of

RBAC = "rbac.authorization.k8s.io/v1"
NAMESPACES = Resource("v1", "namespaces")
ACCOUNTS = Resource("v1", "serviceaccounts")
SPACE = "vision"
OWN, KUEUE = "quorate.dev/queue", "kueue.x-k8s.io/queue-name"

Verdict = Literal["refused", "accepted"]
Deed = Callable[[Api], Awaitable[object]]


class Attempt(NamedTuple):
    """`want`: what the API server has to say to it. `deed` asks as the account."""

    what: str
    want: Verdict
    deed: Deed


class Answer(NamedTuple):
    """What the API server said to an attempt: "" where it did what was asked."""

    attempt: Attempt
    refusal: str

    @property
    def is_right(self) -> bool:
        """It was refused, or accepted, as it has to be."""
        return bool(self.refusal) is (self.attempt.want == "refused")


async def attempted(account: Api, attempts: tuple[Attempt, ...]) -> tuple[Answer, ...]:
    """Every attempt, one after the other."""
    return tuple([Answer(attempt, await refusal(account, attempt.deed)) for attempt in attempts])


async def refusal(account: Api, deed: Deed) -> str:
    """What the API server says against it; "": it did it."""
    try:
        await deed(account)
    except KubernetesError as error:
        return str(error)
    return ""


def _queue(name: str, *entries: NamespaceAccess) -> Queue:
    return Queue(QueueName(name), access=QueueAccess(namespaces=entries))


POLICY = policy_of(
    (
        _queue("vision", NamespaceAccess(SPACE, ("batch",), default=True, local_queues=("main",))),
        _queue("language", NamespaceAccess("language", local_queues=("theirs",))),
        _queue("shared"),
    ),
    (PriorityClass("batch"), PriorityClass("production", 1000)),
)
LOCAL = (LocalQueue("language", "their-queue", "language"), LocalQueue(SPACE, "sly", "language"))


def _pod(name: str, labels: dict[str, str] | None = None, notes: dict[str, str] | None = None, **spec: Any) -> Deed:
    container = {"name": "main", "image": "good"}
    meta = {"name": name, "labels": labels or {}, "annotations": notes or {}}
    body = {"metadata": meta, "spec": {"schedulerName": "quorate", "containers": [container], **spec}}
    return lambda api: api.create(PODS.path(SPACE), body)


def _change(name: str, part: str = "", **metadata: Any) -> Deed:
    return lambda api: api.patch(PODS.path(SPACE, name, part), {"metadata": metadata})


def tenants_attempts() -> tuple[Attempt, ...]:
    """In an order in which none takes away what a later one needs."""
    high = {OWN: "vision", "quorate.dev/priority-class": "production"}
    config = {"metadata": {"name": NAME}, "data": {"unlisted": "allowed"}}

    def refused(what: str, deed: Deed) -> Attempt:
        return Attempt(f"tenant: {what}", "refused", deed)

    def accepted(what: str, deed: Deed) -> Attempt:
        return Attempt(f"tenant: {what}", "accepted", deed)

    return (
        accepted("make a pod in the queue of its namespace", _pod("own", {OWN: "vision"})),
        accepted("make one that names no queue", _pod("default")),
        accepted("make one by the name that its namespace has for the queue", _pod("main", {KUEUE: "main"})),
        accepted("make one of a class that it may have", _pod("batch", high | {"quorate.dev/priority-class": "batch"})),
        refused("make a pod in another team's queue", _pod("x", {OWN: "language"})),
        refused("make one in a queue that lists nobody", _pod("x", {OWN: "shared"})),
        refused("name that queue in an annotation", _pod("x", {}, {OWN: "language"})),
        refused("name it behind an empty label", _pod("x", {OWN: ""}, {OWN: "language"})),
        refused("name it as Kueue does", _pod("x", {KUEUE: "language"})),
        refused("name it as KAI does", _pod("x", {"kai.scheduler/queue": "language"})),
        refused("name it as Volcano does", _pod("x", {}, {"scheduling.volcano.sh/queue-name": "language"})),
        refused("use another namespace's LocalQueue", _pod("x", {KUEUE: "their-queue"})),
        refused("use a name that the policy gives another namespace", _pod("x", {KUEUE: "theirs"})),
        refused("make a LocalQueue of its own to another team's queue, and use it", _pod("x", {KUEUE: "sly"})),
        refused("have a class that it may not", _pod("x", high)),
        refused("name such a class in an annotation", _pod("x", {OWN: "vision"}, {"kueue.x-k8s.io/priority-class": "production"})),
        refused("give a pod that is there another queue", _change("own", labels={OWN: "language"})),
        refused("give it another one by an annotation", _change("default", annotations={OWN: "language"})),
        refused("give it another one by way of its status", _change("own", "status", labels={OWN: "language"})),
        refused("give a pod that is there another class", _change("own", labels=high)),
        refused("write what the policy says of namespaces", lambda api: api.patch(CONFIG_MAPS.path(NAMESPACE, NAME), config)),
        accepted("change a label of its own", _change("own", labels={"app": "mine"})),
        accepted("make a pod of another scheduler", _pod("other", {OWN: "language"}, schedulerName="default-scheduler")),
    )  # fmt: skip


async def prepare_tenant(admin: Api, quorate: Api) -> None:
    """A namespace with an account that may make and change pods there, and what the policy says of it, as Quorate writes that."""
    for space in (SPACE, "language"):
        await admin.create(NAMESPACES.path(), {"metadata": {"name": space}})
    await admin.create(ACCOUNTS.path(SPACE), {"metadata": {"name": "tenant"}})
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "create", "patch", "delete"]}]
    await admin.create(Resource(RBAC, "roles").path(SPACE), {"metadata": {"name": "tenant"}, "rules": rules})
    binding = {
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": SPACE}],
    }
    await admin.create(Resource(RBAC, "rolebindings").path(SPACE), binding)
    data = {"metadata": {"name": NAME}, "data": parameters_of(POLICY, LOCAL)}
    await quorate.create(CONFIG_MAPS.path(NAMESPACE), data)


async def until_restricted(tenant: Api) -> None:
    """Returns when the policy of namespaces refuses what it is to refuse. Raises TimeoutError."""
    probe = {"metadata": {"name": "probe", "labels": {OWN: "language"}}}
    spec = {"schedulerName": "quorate", "containers": [{"name": "main", "image": "good"}]}
    path = f"{PODS.path(SPACE)}?dryRun=All"
    async with asyncio.timeout(IN_FORCE_S):
        while "quorate-namespaces" not in await refusal(tenant, lambda api: api.create(path, {**probe, "spec": spec})):
            await asyncio.sleep(LOOK_EVERY_S)
