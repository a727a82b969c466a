"""Requests for nodes as they are sent: a ProvisioningRequest, and a PodTemplate for each kind of pod that waits. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.provisioning.decisions import Asking
from solver.model.document import digest
from solver.policy.node_requests import Provisioning

Sent = Mapping[str, Any]

_OF_POD: Final = (
    "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "runtimeClassName", "hostNetwork",
    "priorityClassName", "overhead", "resources", "resourceClaims",
)  # fmt: skip
"""What of a pod's spec says on which nodes it may be, and what it takes there. What it runs is nobody's business here."""
_OF_CONTAINER: Final = ("name", "image", "resources", "ports", "restartPolicy")


def name_of(asking: Asking) -> str:
    """The same for the same try, so that to ask twice is harmless."""
    return f"quorate-{digest([asking.job, asking.wants])[7:17]}-{asking.tries}"


def template_of(asking: Asking, number: int, pod: Sent) -> dict[str, Any]:
    """The PodTemplate of one of its kinds of pods, owned by that pod: it goes with it, should nothing else take it away."""
    spec: dict[str, Any] = {key: pod["spec"][key] for key in _OF_POD if pod["spec"].get(key)}
    for kind in ("initContainers", "containers"):
        containers = [{key: one[key] for key in _OF_CONTAINER if one.get(key)} for one in pod["spec"].get(kind) or ()]
        if containers:
            spec[kind] = containers
    labels = dict(pod["metadata"].get("labels") or {})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    return {
        "metadata": _metadata(asking, f"{name_of(asking)}-{number}") | {"ownerReferences": [owner]},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }


def request_of(asking: Asking, rules: Provisioning, kind: Resource) -> dict[str, Any]:
    """The ProvisioningRequest."""
    name = name_of(asking)
    metadata = _metadata(asking, name)
    metadata["annotations"] = {
        names.PROVISIONING_JOB: asking.job,
        names.PROVISIONING_FOR: asking.wants,
        names.PROVISIONING_TRY: str(asking.tries),
        names.PROVISIONING_NODES: str(asking.nodes),
    }
    sets = [
        {"podTemplateRef": {"name": f"{name}-{number}"}, "count": many} for number, (_, many) in enumerate(asking.pods)
    ]
    valid = {"ValidUntilSeconds": str(-(-rules.valid_for // 1000))} if rules.valid_for is not None else {}
    return {
        "apiVersion": kind.version,
        "kind": "ProvisioningRequest",
        "metadata": metadata,
        "spec": {
            "provisioningClassName": rules.class_name,
            "podSets": sets,
            **({"parameters": valid} if valid else {}),
        },
    }


def _metadata(asking: Asking, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": asking.namespace, "labels": {names.PROVISIONING: "true"}}
