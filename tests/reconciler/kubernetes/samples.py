"""Objects as the API server sends them, written as short as tests can read them: what is not said here is as usual."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.controllers import controller_of
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.podgroups import group_of
from reconciler.kubernetes.objects.queue_names import LocalQueue
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import cluster_of
from solver.policy.namespace_rules import NO_RULES, NamespaceRules

Sent = dict[str, Any]


def node(name: str, gpus: int = 8, **said: Any) -> Sent:
    """A node of H100s, or without GPUs. `labels`, `taints`, `offers` (allocatable), `has` (capacity) add to it."""
    offers = {"cpu": "96", "memory": "1Ti", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    product = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"} if gpus else {}
    offers |= said.get("offers", {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **product, **said.get("labels", {})}},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": said.get("taints", []), **said.get("spec", {})},
        "status": {
            "allocatable": offers,
            "capacity": {**offers, **said.get("has", {})},
            "conditions": [{"type": "Ready", "status": said.get("ready", "True"), "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": "v1.36.2"},
        },
    }


def pod(name: str, gpus: int = 1, on: str = "", **said: Any) -> Sent:
    """A pod of the queue `q` with one container of 1 CPU and 1Gi. `spec`, `status`, `requests`, `labels` and the like add to it."""
    requests = {
        "cpu": "1",
        "memory": "1Gi",
        **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
        **said.get("requests", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": said.get("namespace", "vision"),
            "uid": f"uid-of-{name}",
            "resourceVersion": "7",
            "creationTimestamp": said.get("created", "2026-11-20T08:00:00Z"),
            "labels": {"quorate.dev/queue": "q", **said.get("labels", {})},
            "annotations": said.get("annotations", {}),
            "managedFields": [{"manager": "kubectl"}],
            **said.get("metadata", {}),
        },
        "spec": {
            "schedulerName": "quorate",
            "nodeName": on,
            "containers": [
                {"name": "main", "image": "train:1", "resources": {"requests": requests, "limits": requests}}
            ],
            "restartPolicy": "Never",
            **said.get("spec", {}),
        },
        "status": {
            "phase": said.get("phase", "Running" if on else "Pending"),
            "qosClass": "Guaranteed",
            **said.get("status", {}),
        },
    }


def from_yaml(text: str) -> list[Sent]:
    """Objects of a YAML stream."""
    return list(yaml.safe_load_all(text))


def cluster(
    nodes: Iterable[Sent],
    pods: Iterable[Sent],
    groups: Iterable[Sent] = (),
    controllers: Iterable[Sent] = (),
    namespaces: NamespaceRules = NO_RULES,
    local_queues: Iterable[LocalQueue] = (),
) -> KubernetesCluster:
    """What it all means."""
    return cluster_of(
        [read(sent, KubeNode) for sent in nodes],
        [read(sent, Pod) for sent in pods],
        [group_of(sent) for sent in groups],
        [controller_of(sent) for sent in controllers],
        namespaces=namespaces,
        local_queues=local_queues,
    )


def the_gang(seen: KubernetesCluster, name: str = "") -> PodGang:
    """The only gang, or the one of that name."""
    (found,) = [gang for gang in seen.gangs if name in ("", gang.name)]
    return found


def codes(gang: PodGang) -> list[str]:
    """Why it is refused."""
    return [refusal.code for refusal in gang.refusals]


def queued(said: Mapping[str, Any]) -> Sent:
    """Labels for a pod without a queue of its own."""
    return {"quorate.dev/queue": "", **said}
