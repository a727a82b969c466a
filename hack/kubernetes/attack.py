"""What a thief of the token of Quorate's account can do: `python -m hack.kubernetes.attack` tries it, and prints each answer.

The manifests are installed on an API server of its own. The token is a real one of the service account, and the thief has taken
Quorate's Lease, as the account may. Exit code 1 where something was accepted that should not be, or refused that Quorate does.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import click
import yaml

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from hack.kubernetes.fence import IN_FORCE_S, LOOK_EVERY_S
from hack.kubernetes.shipped import NAMESPACE, base_objects, path_of
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.leader import LEASE, Leadership
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import KubernetesError, NotFoundError, RefusedError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import LEASES, NODES, PODS, VOLUME_CLAIMS, Resource
from reconciler.kubernetes.status.events import EVENTS
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch

CLAIMS = Resource("resource.k8s.io/v1", "resourceclaims")
CONFIG_MAPS = Resource("v1", "configmaps")
NAMESPACES = Resource("v1", "namespaces")
SECRETS = Resource("v1", "secrets")
ACCOUNTS = Resource("v1", "serviceaccounts")
POLICIES = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
POLICY_BINDINGS = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings")

THIEF = Leadership("thief", Epoch(1_000_000), 0)
SYSTEM, TENANT, SHARED, EXCLUDED = "kube-system", "tenant", "shared", "excluded"
NODE = "n1"

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


def notes(**annotations: str) -> dict[str, Any]:
    """A change of annotations of quorate.dev, signed by the leader that the thief has made itself."""
    return {"annotations": {f"quorate.dev/{key}": value for key, value in annotations.items()} | THIEF.stamp}


def attempts() -> tuple[Attempt, ...]:
    """In an order in which none takes away what a later one needs."""
    return (*_at_pods(), *_at_bindings(), *_at_nodes(), *_at_others(), *_of_quorate())


def _patch(path: str, body: dict[str, Any]) -> Deed:
    return lambda api: api.patch(path, body)


def _create(path: str, body: dict[str, Any]) -> Deed:
    return lambda api: api.create(path, body)


def _at_pods() -> list[Attempt]:
    image = {"metadata": notes(), "spec": {"containers": [{"name": "main", "image": "evil"}]}}
    own = PODS.path(TENANT, "waits")
    told = {"metadata": notes(), "spec": {"tolerations": [{"operator": "Exists"}]}}
    scheduled = [{"type": "Ready", "status": "False", "reason": "Evil"}]
    return [
        Attempt(
            "change the image of a hostPID pod of kube-system", "refused", _patch(PODS.path(SYSTEM, "agent"), image)
        ),
        Attempt("annotate that pod", "refused", _patch(PODS.path(SYSTEM, "agent"), {"metadata": notes(attempt="1")})),
        Attempt("change the image of another scheduler's pod", "refused", _patch(PODS.path(TENANT, "web"), image)),
        Attempt("change the image of a pod of Quorate's", "refused", _patch(own, image)),
        Attempt("make a pod of Quorate's tolerate everything", "refused", _patch(own, told)),
        Attempt(
            "label a pod of Quorate's as one of a Service",
            "refused",
            _patch(own, {"metadata": {**notes(), "labels": {"app": "bank"}}}),
        ),
        Attempt(
            "write another's annotation of a pod of Quorate's",
            "refused",
            _patch(own, {"metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "x", **THIEF.stamp}}}),
        ),
        Attempt(
            "give a pod of Quorate's a finalizer",
            "refused",
            _patch(own, {"metadata": {**notes(), "finalizers": ["evil.example/stays"]}}),
        ),
        Attempt(
            "say that a pod of another scheduler is not ready",
            "refused",
            _patch(PODS.path(TENANT, "web", "status"), {"status": {"conditions": scheduled}}),
        ),
        Attempt(
            "say that a pod of Quorate's is not ready",
            "refused",
            _patch(PODS.path(TENANT, "waits", "status"), {"status": {"conditions": scheduled}}),
        ),
        Attempt(
            "say that a pod of Quorate's has failed",
            "refused",
            _patch(PODS.path(TENANT, "waits", "status"), {"status": {"phase": "Failed"}}),
        ),
        Attempt(
            "give a pod of Quorate's another address",
            "refused",
            _patch(
                PODS.path(TENANT, "waits", "status"), {"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}}
            ),
        ),
        Attempt(
            "write what is remembered of a pod by way of its status",
            "refused",
            _patch(PODS.path(TENANT, "waits", "status"), {"metadata": notes(evict="forged")}),
        ),
        Attempt("delete a pod of kube-system", "refused", _delete(SYSTEM, "agent")),
        Attempt("delete another scheduler's pod", "refused", _delete(TENANT, "web")),
        Attempt(
            "make a pod",
            "refused",
            _create(
                PODS.path(SYSTEM),
                {"metadata": {"name": "new"}, "spec": {"containers": [{"name": "main", "image": "evil"}]}},
            ),
        ),
        Attempt(
            "run a command in a pod",
            "refused",
            _create(f"{PODS.path(SYSTEM, 'agent', 'exec')}?command=id&stdout=1", {}),
        ),
        Attempt(
            "add a container to a running pod",
            "refused",
            _patch(
                PODS.path(SYSTEM, "agent", "ephemeralcontainers"),
                {"spec": {"ephemeralContainers": [{"name": "e", "image": "evil"}]}},
            ),
        ),
    ]


def _delete(space: str, name: str) -> Deed:
    async def deed(api: Api) -> object:
        pod = await api.get(PODS.path(space, name), dict[str, Any])
        version = pod["metadata"]["resourceVersion"]
        return await api.delete(PODS.path(space, name), {"preconditions": {"resourceVersion": version}})

    return deed


def _binding(space: str, name: str, *, dry: bool = False, **more: Any) -> Deed:
    meta = {"name": name, "labels": {names.FENCED: "true"}, **notes(), **more}
    path = PODS.path(space, name, "binding") + ("?dryRun=All" if dry else "")
    return _create(path, {"metadata": meta, "target": {"kind": "Node", "name": NODE}})


def _eviction(space: str, name: str, *, labelled: bool = True, **more: Any) -> Deed:
    labels = {names.FENCED: "true"} if labelled else {}
    meta = {"name": name, "namespace": space, "labels": labels, **notes()}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, **more}
    return _create(PODS.path(space, name, "eviction"), body)


def _at_bindings() -> list[Attempt]:
    bank = {names.FENCED: "true", "app": "bank"}
    return [
        Attempt("bind a waiting pod of kube-system to a node of one's choice", "refused", _binding(SYSTEM, "waits")),
        Attempt(
            "bind another scheduler's pod in a namespace labelled quorate.dev/shared",
            "refused",
            _binding(SHARED, "theirs"),
        ),
        Attempt("bind a pod of Quorate's with a label of a Service", "refused", _binding(TENANT, "waits", labels=bank)),
        Attempt("evict a pod of kube-system", "refused", _eviction(SYSTEM, "agent")),
        Attempt("evict another scheduler's pod", "refused", _eviction(TENANT, "web")),
        Attempt(
            "evict it without the label by which it is judged", "refused", _eviction(TENANT, "web", labelled=False)
        ),
        Attempt("evict Quorate's own pods", "refused", _eviction(NAMESPACE, "quorate-0")),
        Attempt("bind in a namespace labelled quorate.dev/excluded", "refused", _binding(EXCLUDED, "theirs")),
        # What no policy can tell apart at a price that Bindings can pay: docs/kubernetes-rights.md.
        Attempt(
            "bind another scheduler's waiting pod in a namespace without a label",
            "accepted",
            _binding(TENANT, "theirs"),
        ),
    ]


def _at_nodes() -> list[Attempt]:
    at = NODES.path("", NODE)
    taint = [{"key": "evil", "effect": "NoExecute"}]
    return [
        Attempt(
            "taint a node, so that its pods have to leave",
            "refused",
            _patch(at, {"metadata": notes(), "spec": {"taints": taint}}),
        ),
        Attempt("cordon a node", "refused", _patch(at, {"metadata": notes(), "spec": {"unschedulable": True}})),
        Attempt(
            "label a node as one of the control plane",
            "refused",
            _patch(at, {"metadata": {**notes(), "labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        ),
        Attempt(
            "write another's annotation of a node",
            "refused",
            _patch(at, {"metadata": {"annotations": {"csi.volume.kubernetes.io/nodeid": "{}", **THIEF.stamp}}}),
        ),
        Attempt(
            "say that a node has more GPUs",
            "refused",
            _patch(NODES.path("", NODE, "status"), {"status": {"capacity": {"nvidia.com/gpu": "99"}}}),
        ),
    ]


def _at_others() -> list[Attempt]:
    claim, volume = CLAIMS.path(TENANT, "gpu"), VOLUME_CLAIMS.path(TENANT, "data")
    signers = {"metadata": {"name": "signers"}, "data": {"allowed-signers": "thief"}}
    return [
        Attempt(
            "replace the signers whose commits are followed",
            "refused",
            _patch(CONFIG_MAPS.path(NAMESPACE, "signers"), signers),
        ),
        Attempt(
            "delete the root certificates of Quorate's namespace",
            "refused",
            lambda api: api.delete(CONFIG_MAPS.path(NAMESPACE, "kube-root-ca.crt")),
        ),
        Attempt(
            "change a ConfigMap of another namespace",
            "refused",
            _patch(CONFIG_MAPS.path(TENANT, "settings"), {"data": {"a": "b"}}),
        ),
        Attempt("read Secrets", "refused", lambda api: api.get(SECRETS.path(NAMESPACE), dict[str, Any])),
        Attempt(
            "make a token of another account",
            "refused",
            _create(ACCOUNTS.path(SYSTEM, "default", "token"), {"spec": {}}),
        ),
        Attempt(
            "give a claim another's finalizer",
            "refused",
            _patch(claim, {"metadata": {**notes(), "finalizers": ["evil.example/stays"]}}),
        ),
        Attempt(
            "write another's annotation of a claim",
            "refused",
            _patch(claim, {"metadata": {"annotations": {"a": "b", **THIEF.stamp}}}),
        ),
        Attempt(
            "ask for more storage",
            "refused",
            _patch(volume, {"metadata": notes(), "spec": {"resources": {"requests": {"storage": "9Ti"}}}}),
        ),
        Attempt(
            "move a volume that is being made for a node to another",
            "refused",
            _patch(
                VOLUME_CLAIMS.path(TENANT, "made"),
                {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n2", **THIEF.stamp}}},
            ),
        ),
        Attempt("write an Event in a kubelet's name", "refused", _create(EVENTS.path(TENANT), _event("kubelet"))),
        Attempt("take the scope away", "refused", lambda api: api.delete(POLICY_BINDINGS.path("", "quorate-scope"))),
        Attempt(
            "change the fence",
            "refused",
            _patch(POLICIES.path("", "quorate-fence"), {"spec": {"failurePolicy": "Ignore"}}),
        ),
        Attempt(
            "take a namespace's label away",
            "refused",
            _patch(NAMESPACES.path("", SHARED), {"metadata": {"labels": {"quorate.dev/shared": None}}}),
        ),
    ]


def _event(controller: str) -> dict[str, Any]:
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": TENANT, "name": "waits"}
    return {
        "metadata": {"name": f"waits.{controller.partition('.')[0]}", "namespace": TENANT},
        "eventTime": "2026-11-28T00:00:00.000000Z",
        "reportingController": controller,
        "reportingInstance": "one",
        "action": "Evict",
        "reason": "Evicted",
        "regarding": regarding,
        "note": "said",
        "type": "Normal",
    }


def _of_quorate() -> list[Attempt]:
    """What Quorate does, and a thief so may do to jobs of Quorate's."""
    waits = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]
    mig = {**notes(mig="{}"), "labels": {names.MIG_CONFIG: "all-1g.10gb", names.MIG_STATE: None}}
    kept = {"metadata": {**notes(), "finalizers": ["resource.kubernetes.io/delete-protection"]}}
    selected = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": NODE, **THIEF.stamp}}}
    return [
        Attempt(
            "annotate a pod of Quorate's",
            "accepted",
            _patch(PODS.path(TENANT, "waits"), {"metadata": notes(promise="p")}),
        ),
        Attempt(
            "say why it waits",
            "accepted",
            _patch(PODS.path(TENANT, "waits", "status"), {"status": {"conditions": waits, "nominatedNodeName": NODE}}),
        ),
        Attempt("bind it", "accepted", _binding(TENANT, "waits")),
        Attempt("bind one in a namespace labelled quorate.dev/shared", "accepted", _binding(SHARED, "ours")),
        Attempt("evict it", "accepted", _eviction(TENANT, "waits")),
        Attempt("delete one that was never bound", "accepted", _delete(TENANT, "late")),
        Attempt("have a node partitioned", "accepted", _patch(NODES.path("", NODE), {"metadata": mig})),
        Attempt("protect a claim that it allocates", "accepted", _patch(CLAIMS.path(TENANT, "gpu"), kept)),
        Attempt(
            "say for which node a volume is to be made",
            "accepted",
            _patch(VOLUME_CLAIMS.path(TENANT, "data"), selected),
        ),
        Attempt("write an Event", "accepted", _create(EVENTS.path(TENANT), _event("quorate.dev/scheduler"))),
        Attempt(
            "write the copy of the policy",
            "accepted",
            _create(CONFIG_MAPS.path(NAMESPACE), {"metadata": {"name": "quorate-policy-thief"}}),
        ),
    ]


async def prepare(admin: Api) -> None:
    """A cluster with what is attacked, before policies keep it out."""
    await admin.create(NODES.path(), {"metadata": {"name": NODE}})
    await admin.create(NAMESPACES.path(), {"metadata": {"name": TENANT}})
    for space in (SHARED, EXCLUDED):
        labels = {f"quorate.dev/{space}": "true"}
        await admin.create(NAMESPACES.path(), {"metadata": {"name": space, "labels": labels}})
    for space, name, scheduler, more in (
        (SYSTEM, "agent", "default-scheduler", {"hostPID": True, "nodeName": NODE}),
        (SYSTEM, "waits", "quorate", {}),
        (NAMESPACE, "quorate-0", "default-scheduler", {"nodeName": NODE}),
        (TENANT, "web", "default-scheduler", {"nodeName": NODE}),
        (TENANT, "waits", "quorate", {}),
        (TENANT, "late", "quorate", {}),
        (TENANT, "theirs", "default-scheduler", {}),
        (EXCLUDED, "theirs", "default-scheduler", {}),
        (SHARED, "theirs", "default-scheduler", {}),
        (SHARED, "ours", "quorate", {}),
    ):
        container: dict[str, Any] = {"name": "main", "image": "good"}
        if space == NAMESPACE:
            safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
            container |= {"securityContext": {**safe, "seccompProfile": {"type": "RuntimeDefault"}}}
        spec = {"schedulerName": scheduler, "containers": [container], **more}
        # As if the thief had been there before there was a scope: what is stamped so the fence lets go.
        meta = {"name": name, "annotations": THIEF.stamp}
        await admin.create(PODS.path(space), {"metadata": meta, "spec": spec})
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    await admin.create(CLAIMS.path(TENANT), {"metadata": {"name": "gpu"}, "spec": {"devices": {"requests": requests}}})
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await admin.create(VOLUME_CLAIMS.path(TENANT), {"metadata": {"name": "data"}, "spec": storage})
    made = {"name": "made", "annotations": {"volume.kubernetes.io/selected-node": NODE}}
    await admin.create(VOLUME_CLAIMS.path(TENANT), {"metadata": made, "spec": storage})
    for space, name in ((NAMESPACE, "signers"), (NAMESPACE, "kube-root-ca.crt"), (TENANT, "settings")):
        await admin.create(CONFIG_MAPS.path(space), {"metadata": {"name": name}, "data": {"a": "a"}})


async def take_the_lease(thief: Api) -> None:
    """As the account may: whoever has its token leads. Returns when the fence has seen it."""
    spec = {"holderIdentity": THIEF.holder, "leaseTransitions": THIEF.epoch, "leaseDurationSeconds": 3600}
    try:
        await thief.create(LEASES.path(NAMESPACE), {"metadata": {"name": LEASE}, "spec": spec})
    except RefusedError:
        await thief.patch(LEASES.path(NAMESPACE, LEASE), {"spec": spec})
    async with asyncio.timeout(IN_FORCE_S):
        while True:
            try:
                await _binding(TENANT, "nobody")(thief)
            except NotFoundError:
                return
            except RefusedError:
                await asyncio.sleep(LOOK_EVERY_S)


async def attacked(thief: Api) -> tuple[Answer, ...]:
    """Every attempt, one after the other."""
    return tuple([Answer(attempt, await refusal(thief, attempt.deed)) for attempt in attempts()])


@asynccontextmanager
async def with_a_token(cluster: Cluster, admin: Api, folder: Path) -> AsyncIterator[Api]:
    """A session by a token of the service account, as a pod of Quorate has one."""
    path = ACCOUNTS.path(NAMESPACE, "quorate", "token")
    token = (await admin.create(path, {"spec": {"expirationSeconds": 3600}}))["status"]["token"]
    written = yaml.safe_load(cluster.kubeconfig("thief").read_text())
    written["users"][0]["user"] = {"token": token}
    kubeconfig = folder / "thief.kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(written))
    async with _session(kubeconfig) as thief:
        yield thief


@asynccontextmanager
async def _session(kubeconfig: Path) -> AsyncIterator[Api]:
    clock = SystemClock()
    async with Api(from_kubeconfig(kubeconfig, clock), RateLimiter(10_000, 10_000, clock), Random(1)) as api:
        yield api


async def attacks(cluster: Cluster, folder: Path) -> tuple[Answer, ...]:
    """What became of each attempt on a cluster with nothing in it. Raises TimeoutError where policies do not come into force."""
    async with _session(cluster.kubeconfig("admin", ("system:masters",))) as admin:
        namespace, *others = sorted(base_objects(), key=lambda each: each["kind"] != "Namespace")
        await admin.create(path_of(namespace), namespace)
        await prepare(admin)
        for each in others:
            await admin.create(path_of(each), each)
        async with with_a_token(cluster, admin, folder) as thief:
            await take_the_lease(thief)
            await until_scoped(thief)
            return await attacked(thief)


async def until_scoped(thief: Api) -> None:
    """Returns when each part of the scope refuses what it is to refuse. Raises TimeoutError."""
    foreign = _patch(f"{PODS.path(TENANT, 'web')}?dryRun=All", {"metadata": notes()})
    dry = {"dryRun": ["All"]}
    tries = (foreign, _eviction(TENANT, "web", deleteOptions=dry), _binding(SHARED, "theirs", dry=True))
    async with asyncio.timeout(IN_FORCE_S):
        for deed in tries:
            while "quorate-scope" not in await refusal(thief, deed):
                await asyncio.sleep(LOOK_EVERY_S)


async def refusal(thief: Api, deed: Deed) -> str:
    """What the API server says against it; "": it did it."""
    try:
        await deed(thief)
    except KubernetesError as error:
        return str(error)
    return ""


@click.command()
def main() -> None:
    """Prints each attempt and what the API server answered to it."""
    with tempfile.TemporaryDirectory() as name, running(found(place()), Path(name), audited=False) as cluster:
        answers = asyncio.run(attacks(cluster, Path(name)))
    for answer in answers:
        mark = "ok   " if answer.is_right else "WRONG"
        click.echo(f"{mark} {answer.attempt.what}: {'refused' if answer.refusal else 'accepted'}")
        if answer.refusal:
            click.echo(f"        {answer.refusal.partition(': ')[2]}")
    sys.exit(0 if all(answer.is_right for answer in answers) else 1)


if __name__ == "__main__":
    main()
