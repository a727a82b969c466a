"""Installs what `deploy/kubernetes` has for the cluster, once, however many tests want it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import yaml

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import ConflictError, NotAllowedError, NotFoundError
from reconciler.kubernetes.objects.resource import PODS, Resource
from tests.kubernetes.sessions import SOON_S

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
PLURALS: Final = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
}
ACCOUNT: Final = "system:serviceaccount:quorate-system:quorate"
"""As whom Quorate runs where it is installed as shipped."""


async def installed(api: Api, file: str) -> None:
    """All objects of a file, which are cluster-wide."""
    for wanted in yaml.safe_load_all((DEPLOY / file).read_text()):
        resource = Resource(wanted["apiVersion"], PLURALS[wanted["kind"]])
        try:
            await api.create(resource.path() + "?fieldValidation=Strict", wanted)
        except ConflictError:
            continue


async def with_queues(api: Api) -> None:
    """The definition of queues is served, and nobody but Quorate may write them."""
    await installed(api, "crd-queues.yaml")
    queues = Resource("quorate.dev/v1", "queues")
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                probe: dict[str, Any] = {"apiVersion": queues.version, "kind": "Queue", "metadata": {"name": "probe"}}
                await api.create(queues.path() + "?dryRun=All", probe)
            except NotFoundError:
                pass
            except NotAllowedError:
                return
            await asyncio.sleep(0.1)


async def emptied(api: Api, space: str) -> None:
    """No pod is left in a namespace: what other tests run as sees the whole cluster."""
    for pod in (await api.get(PODS.path(space), dict[str, Any]))["items"]:
        await api.delete(PODS.path(space, pod["metadata"]["name"]), {"gracePeriodSeconds": 0})


async def granted(api: Api, user: str, rules: list[dict[str, Any]]) -> None:
    """Exactly these rights, in the whole cluster."""
    rbac = "rbac.authorization.k8s.io"
    name = user.replace(":", "-")
    subject = {"kind": "User", "name": user, "apiGroup": rbac}
    role = {"kind": "ClusterRole", "name": name, "apiGroup": rbac}
    version = f"{rbac}/v1"
    try:
        await api.create(Resource(version, "clusterroles").path(), {"metadata": {"name": name}, "rules": rules})
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        await api.create(Resource(version, "clusterrolebindings").path(), binding)
    except ConflictError:
        return


def rule(group: str, resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
