"""What a thief of Quorate's token can do, and a tenant: `python -m hack.kubernetes.attack` tries it, and prints each answer.

The manifests are installed on an API server of its own. The token is a real one of the service account, and the thief has taken
Quorate's Lease, as the account may. Exit code 1 where something was accepted that should not be, or refused that Quorate does.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import click
import yaml

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from hack.kubernetes.fence import IN_FORCE_S, LOOK_EVERY_S, install_pod_label
from hack.kubernetes.shipped import NAMESPACE, base_objects, path_of
from hack.kubernetes.tenant_attack import (
    SPACE,
    Answer,
    Attempt,
    Deed,
    attempted,
    prepare_tenant,
    refusal,
    tenants_attempts,
    until_restricted,
)
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.leader import LEASE, Leadership
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import NotFoundError, RefusedError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import LEASES, NODES, PODS, VOLUME_CLAIMS, Resource
from reconciler.kubernetes.provisioning.requests import TEMPLATES
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


def notes(**annotations: str) -> dict[str, Any]:
    """A change of annotations of quorate.dev, signed by the leader that the thief has made itself."""
    return {"annotations": {f"quorate.dev/{key}": value for key, value in annotations.items()} | THIEF.stamp}


def attempts() -> tuple[Attempt, ...]:
    """In an order in which none takes away what a later one needs."""
    return (
        *_at_pods(), *_at_status(), *_at_lives(), *_at_bindings(), *_at_nodes(), *_at_secrets(), *_at_claims(), *_at_policies(),
        *_of_quorate(),
    )  # fmt: skip


def _patch(path: str, body: dict[str, Any]) -> Deed:
    return lambda api: api.patch(path, body)


def _create(path: str, body: dict[str, Any]) -> Deed:
    return lambda api: api.create(path, body)


def _refused(what: str, deed: Deed) -> Attempt:
    return Attempt(what, "refused", deed)


def _accepted(what: str, deed: Deed) -> Attempt:
    return Attempt(what, "accepted", deed)


def _at_pods() -> list[Attempt]:
    image = {"metadata": notes(), "spec": {"containers": [{"name": "main", "image": "evil"}]}}
    own = PODS.path(TENANT, "waits")
    told = {"metadata": notes(), "spec": {"tolerations": [{"operator": "Exists"}]}}
    return [
        _refused("change the image of a hostPID pod of kube-system", _patch(PODS.path(SYSTEM, "agent"), image)),
        _refused("annotate that pod", _patch(PODS.path(SYSTEM, "agent"), {"metadata": notes(attempt="1")})),
        _refused("change the image of another scheduler's pod", _patch(PODS.path(TENANT, "web"), image)),
        _refused("change the image of a pod of Quorate's", _patch(own, image)),
        _refused("make a pod of Quorate's tolerate everything", _patch(own, told)),
        _refused(
            "label a pod of Quorate's as one of a Service",
            _patch(own, {"metadata": {**notes(), "labels": {"app": "bank"}}}),
        ),
        _refused(
            "write another's annotation of a pod of Quorate's",
            _patch(own, {"metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "x", **THIEF.stamp}}}),
        ),
        _refused(
            "give a pod of Quorate's a finalizer",
            _patch(own, {"metadata": {**notes(), "finalizers": ["evil.example/stays"]}}),
        ),
    ]


def _at_status() -> list[Attempt]:
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Evil"}]}}
    status = PODS.path(TENANT, "waits", "status")
    address = {"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}}
    return [
        _refused(
            "say that a pod of another scheduler is not ready", _patch(PODS.path(TENANT, "web", "status"), not_ready)
        ),
        _refused("say that a pod of Quorate's is not ready", _patch(status, not_ready)),
        _refused(
            "say that a pod of Quorate's has failed",
            _patch(status, {"status": {"phase": "Failed"}}),
        ),
        _refused(
            "give a pod of Quorate's another address",
            _patch(status, address),
        ),
        _refused(
            "write what is remembered of a pod by way of its status",
            _patch(status, {"metadata": notes(evict="forged")}),
        ),
    ]


def _at_lives() -> list[Attempt]:
    pod = {"metadata": {"name": "new"}, "spec": {"containers": [{"name": "main", "image": "evil"}]}}
    more = {"spec": {"ephemeralContainers": [{"name": "e", "image": "evil"}]}}
    return [
        _refused("delete a pod of kube-system", _delete(SYSTEM, "agent")),
        _refused("delete another scheduler's pod", _delete(TENANT, "web")),
        _refused("make a pod", _create(PODS.path(SYSTEM), pod)),
        _refused("run a command in a pod", _create(f"{PODS.path(SYSTEM, 'agent', 'exec')}?command=id&stdout=1", {})),
        _refused("add a container to a running pod", _patch(PODS.path(SYSTEM, "agent", "ephemeralcontainers"), more)),
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
        _refused("bind a waiting pod of kube-system to a node of one's choice", _binding(SYSTEM, "waits")),
        _refused("bind another scheduler's pod in a namespace labelled quorate.dev/shared", _binding(SHARED, "theirs")),
        _refused("bind a pod of Quorate's with a label of a Service", _binding(TENANT, "waits", labels=bank)),
        _refused("evict a pod of kube-system", _eviction(SYSTEM, "agent")),
        _refused("evict another scheduler's pod", _eviction(TENANT, "web")),
        _refused("evict it without the label by which it is judged", _eviction(TENANT, "web", labelled=False)),
        _refused("evict Quorate's own pods", _eviction(NAMESPACE, "quorate-0")),
        _refused("bind in a namespace labelled quorate.dev/excluded", _binding(EXCLUDED, "theirs")),
        # What no policy can tell apart at a price that Bindings can pay: docs/kubernetes-rights.md.
        _accepted("bind another scheduler's waiting pod in a namespace without a label", _binding(TENANT, "theirs")),
    ]


def _at_nodes() -> list[Attempt]:
    at = NODES.path("", NODE)
    taint = [{"key": "evil", "effect": "NoExecute"}]
    return [
        _refused(
            "taint a node, so that its pods have to leave", _patch(at, {"metadata": notes(), "spec": {"taints": taint}})
        ),
        _refused("cordon a node", _patch(at, {"metadata": notes(), "spec": {"unschedulable": True}})),
        _refused(
            "label a node as one of the control plane",
            _patch(at, {"metadata": {**notes(), "labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        ),
        _refused(
            "write another's annotation of a node",
            _patch(at, {"metadata": {"annotations": {"csi.volume.kubernetes.io/nodeid": "{}", **THIEF.stamp}}}),
        ),
        _refused(
            "say that a node has more GPUs",
            _patch(NODES.path("", NODE, "status"), {"status": {"capacity": {"nvidia.com/gpu": "99"}}}),
        ),
    ]


def _at_secrets() -> list[Attempt]:
    signers = {"metadata": {"name": "signers"}, "data": {"allowed-signers": "thief"}}
    return [
        _refused(
            "replace the signers whose commits are followed", _patch(CONFIG_MAPS.path(NAMESPACE, "signers"), signers)
        ),
        _refused(
            "delete the root certificates of Quorate's namespace",
            lambda api: api.delete(CONFIG_MAPS.path(NAMESPACE, "kube-root-ca.crt")),
        ),
        _refused(
            "change a ConfigMap of another namespace",
            _patch(CONFIG_MAPS.path(TENANT, "settings"), {"data": {"a": "b"}}),
        ),
        _refused("read Secrets", lambda api: api.get(SECRETS.path(NAMESPACE), dict[str, Any])),
        _refused("make a token of another account", _create(ACCOUNTS.path(SYSTEM, "default", "token"), {"spec": {}})),
    ]


def _at_claims() -> list[Attempt]:
    claim, volume = CLAIMS.path(TENANT, "gpu"), VOLUME_CLAIMS.path(TENANT, "data")
    return [
        _refused(
            "give a claim another's finalizer",
            _patch(claim, {"metadata": {**notes(), "finalizers": ["evil.example/stays"]}}),
        ),
        _refused(
            "write another's annotation of a claim",
            _patch(claim, {"metadata": {"annotations": {"a": "b", **THIEF.stamp}}}),
        ),
        _refused(
            "ask for more storage",
            _patch(volume, {"metadata": notes(), "spec": {"resources": {"requests": {"storage": "9Ti"}}}}),
        ),
        _refused(
            "move a volume that is being made for a node to another",
            _patch(
                VOLUME_CLAIMS.path(TENANT, "made"),
                {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n2", **THIEF.stamp}}},
            ),
        ),
    ]


def _at_policies() -> list[Attempt]:
    return [
        _refused("write an Event in a kubelet's name", _create(EVENTS.path(TENANT), _event("kubelet"))),
        _refused(
            "make a PodTemplate that no request of Quorate's names",
            _create(TEMPLATES.path(TENANT), _template("mine", {})),
        ),
        _refused(
            "make a PodTemplate in kube-system",
            _create(TEMPLATES.path(SYSTEM), _template("quorate-mine", {names.PROVISIONING: "true"})),
        ),
        _refused("take the scope away", lambda api: api.delete(POLICY_BINDINGS.path("", "quorate-scope"))),
        _refused("change the fence", _patch(POLICIES.path("", "quorate-fence"), {"spec": {"failurePolicy": "Ignore"}})),
        _refused(
            "take a namespace's label away",
            _patch(NAMESPACES.path("", SHARED), {"metadata": {"labels": {"quorate.dev/shared": None}}}),
        ),
    ]


def _template(name: str, labels: dict[str, str]) -> dict[str, Any]:
    containers = [{"name": "main", "image": "evil.example/any"}]
    return {"metadata": {"name": name, "labels": labels}, "template": {"spec": {"containers": containers}}}


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
        _accepted("annotate a pod of Quorate's", _patch(PODS.path(TENANT, "waits"), {"metadata": notes(promise="p")})),
        _accepted(
            "say why it waits",
            _patch(PODS.path(TENANT, "waits", "status"), {"status": {"conditions": waits, "nominatedNodeName": NODE}}),
        ),
        _accepted("bind it", _binding(TENANT, "waits")),
        _accepted("bind one in a namespace labelled quorate.dev/shared", _binding(SHARED, "ours")),
        _accepted("evict it", _eviction(TENANT, "waits")),
        _accepted("delete one that was never bound", _delete(TENANT, "late")),
        _accepted("have a node partitioned", _patch(NODES.path("", NODE), {"metadata": mig})),
        _accepted("protect a claim that it allocates", _patch(CLAIMS.path(TENANT, "gpu"), kept)),
        _accepted("say for which node a volume is to be made", _patch(VOLUME_CLAIMS.path(TENANT, "data"), selected)),
        _accepted("write an Event", _create(EVENTS.path(TENANT), _event("quorate.dev/scheduler"))),
        _accepted(
            "write the copy of the policy",
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


@asynccontextmanager
async def with_a_token(
    cluster: Cluster, admin: Api, folder: Path, namespace: str = NAMESPACE, account: str = "quorate"
) -> AsyncIterator[Api]:
    """A session by a token of a service account, as a pod of it has one; Quorate's where nothing else is said."""
    path = ACCOUNTS.path(namespace, account, "token")
    token = (await admin.create(path, {"spec": {"expirationSeconds": 3600}}))["status"]["token"]
    written = yaml.safe_load(cluster.kubeconfig(account).read_text())
    written["users"][0]["user"] = {"token": token}
    kubeconfig = folder / f"{account}.kubeconfig"
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
    """What became of each attempt, a tenant's and a thief's, on a cluster with nothing in it.

    Raises TimeoutError where policies do not come into force.
    """
    async with _session(cluster.kubeconfig("admin", ("system:masters",))) as admin:
        namespace, *others = sorted(base_objects(), key=lambda each: each["kind"] != "Namespace")
        await admin.create(path_of(namespace), namespace)
        await prepare(admin)
        for each in others:
            await admin.create(path_of(each), each)
        await install_pod_label(admin)
        async with with_a_token(cluster, admin, folder) as thief:
            await take_the_lease(thief)
            await until_scoped(thief)
            await prepare_tenant(admin, thief)
            async with with_a_token(cluster, admin, folder, SPACE, "tenant") as tenant:
                await until_restricted(tenant)
                of_tenant = await attempted(tenant, tenants_attempts())
            return (*of_tenant, *await attempted(thief, attempts()))


async def until_scoped(thief: Api) -> None:
    """Returns when each part of the scope refuses what it is to refuse. Raises TimeoutError."""
    foreign = _patch(f"{PODS.path(TENANT, 'web')}?dryRun=All", {"metadata": notes()})
    dry = {"dryRun": ["All"]}
    tries = (foreign, _eviction(TENANT, "web", deleteOptions=dry), _binding(SHARED, "theirs", dry=True))
    async with asyncio.timeout(IN_FORCE_S):
        for deed in tries:
            while "quorate-scope" not in await refusal(thief, deed):
                await asyncio.sleep(LOOK_EVERY_S)


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
