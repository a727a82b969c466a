"""Kueue on a cluster for tests: its kinds as they are served, its own manager where it is built, and what stands in for it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from hack.kubernetes import guard
from hack.kubernetes.certificates import LOOPBACK, Authority, write_private
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.components import Place
from hack.ports import free_ports
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects.flavors import CLUSTER_QUEUES, RESOURCE_FLAVORS
from reconciler.kubernetes.objects.queue_names import LOCAL_QUEUES
from reconciler.kubernetes.objects.resource import PODS, Resource
from reconciler.kubernetes.objects.workloads import WORKLOADS
from tests.kubernetes.controllers import CONTROLLERS, controllers_command, without_jobs
from tests.kubernetes.mirrored import a_definition
from tests.kubernetes.sessions import ADMINS

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
JOBS = Resource("batch/v1", "jobs")
LOCAL = LOCAL_QUEUES.resources[0]
CLASS = {"quorate.dev/priority-class": "batch"}
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
MANAGER = "kueue"

_NAMESPACED = {"Workload": "workloads", "LocalQueue": "localqueues"}
_OTHERS = {
    "ClusterQueue": "clusterqueues",
    "ResourceFlavor": "resourceflavors",
    "Cohort": "cohorts",
    "AdmissionCheck": "admissionchecks",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Topology": "topologies",
    "MultiKueueConfig": "multikueueconfigs",
    "MultiKueueCluster": "multikueueclusters",
    "ProvisioningRequestConfig": "provisioningrequestconfigs",
}
_BY_TYPE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_CONDITIONS = {
    "type": "array",
    "items": {**_OPEN, "properties": {"type": {"type": "string"}}, "required": ["type"]},
    **_BY_TYPE,
}


_IN_AN_ETC_OF_ITS_OWN = (
    'mount -t tmpfs none /etc && mkdir -p /etc/kueue/metrics && ln -s "$0" /etc/kueue/metrics/certs && exec "$@"'
)


def kueue_definitions() -> list[dict[str, Any]]:
    """Its kinds, with what of their schemas matters to how they are written: a status of its own, and conditions by their types."""
    status = {**_OPEN, "properties": {"conditions": _CONDITIONS}}
    schema = {"openAPIV3Schema": {**_OPEN, "properties": {"status": status}}}
    found = []
    for scope, kinds in (("Namespaced", _NAMESPACED), ("Cluster", _OTHERS)):
        for kind, plural in kinds.items():
            made = a_definition(GROUP, VERSION, kind, plural)
            made["spec"]["scope"] = scope
            made["spec"]["versions"][0] |= {"schema": schema, "subresources": {"status": {}}}
            found.append(made)
    return found


@asynccontextmanager
async def queues(api: Api, space: str, queue: str, flavor: str, labels: Mapping[str, str]) -> AsyncIterator[None]:
    """A ClusterQueue on hold, so that Kueue itself admits nothing of it, and a LocalQueue `team` that leads there."""
    quotas = [{"name": name, "nominalQuota": "1000000"} for name in ("cpu", "memory", "nvidia.com/gpu")]
    group = {
        "coveredResources": ["cpu", "memory", "nvidia.com/gpu"],
        "flavors": [{"name": flavor, "resources": quotas}],
    }
    spec = {
        "resourceGroups": [group],
        "namespaceSelector": {},
        "stopPolicy": "Hold",
        "queueingStrategy": "BestEffortFIFO",
    }
    head = {"apiVersion": f"{GROUP}/{VERSION}"}
    await api.create(
        RESOURCE_FLAVORS[0].path(),
        {**head, "kind": "ResourceFlavor", "metadata": {"name": flavor}, "spec": {"nodeLabels": labels}},
    )
    await api.create(
        CLUSTER_QUEUES[0].path(), {**head, "kind": "ClusterQueue", "metadata": {"name": queue}, "spec": spec}
    )
    local = {**head, "kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {"clusterQueue": queue}}
    await api.create(LOCAL.path(space), local)
    try:
        yield
    finally:
        # What is admitted and has no pods would keep GPUs free on the nodes of the next test.
        for workload in (await api.get(WORKLOADS[0].path(space), dict[str, Any]))["items"]:
            at = WORKLOADS[0].path(space, workload["metadata"]["name"])
            with suppress(NotFoundError):
                await api.delete(at)
                await api.patch(at, {"metadata": {"finalizers": None}})
        await without_jobs(api, space)
        for path in (CLUSTER_QUEUES[0].path("", queue), RESOURCE_FLAVORS[0].path("", flavor)):
            await api.patch(path, {"metadata": {"finalizers": None}})
            await api.delete(path)


def a_job(name: str, parallelism: int, gpus: int = 1, **said: Any) -> dict[str, Any]:
    """Suspended, as Kueue's webhook makes jobs that name a LocalQueue."""
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    spec: dict[str, Any] = {"schedulerName": "quorate", "restartPolicy": "Never", "containers": [container]}
    spec |= {"terminationGracePeriodSeconds": 0}
    size = {"parallelism": parallelism, "completions": parallelism, "suspend": True}
    meta = {"name": name, "labels": {QUEUE_LABEL: "team"}}
    return {"metadata": meta, "spec": {**size, "template": {"metadata": {"labels": CLASS}, "spec": {**spec, **said}}}}


@asynccontextmanager
async def real(
    where: Place, cluster: Cluster, folder: Path, frameworks: Sequence[str] = ("batch/job",), jobs: bool = True
) -> AsyncIterator[None]:
    """Kueue's own manager for these kinds, without its webhooks, and Kubernetes' controller of `jobs` where none runs yet."""
    health, webhook = free_ports(2)
    certificate, key = Authority().server()
    (folder / "certificates").mkdir()
    write_private(folder / "certificates" / "tls.crt", certificate)
    write_private(folder / "certificates" / "tls.key", key)
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": webhook, "certDir": str(folder / "certificates")},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": list(frameworks)},
        "featureGates": {"VisibilityOnDemand": False},
    }
    (folder / "kueue.yaml").write_text(yaml.safe_dump(config))
    admin = str(cluster.kubeconfig("kueue", ADMINS))
    commands = {
        # Certificates of its metrics are read from there, whether it serves any or not: in an /etc of its own.
        MANAGER: [
            *("unshare", "-rm", "sh", "-c", _IN_AN_ETC_OF_ITS_OWN, str(folder / "certificates")),
            *(
                "env",
                f"KUBECONFIG={admin}",
                str(where.path(MANAGER)),
                f"--config={folder / 'kueue.yaml'}",
                "--zap-log-level=3",
            ),
        ],
        **({CONTROLLERS: controllers_command(cluster, folder)} if jobs else {}),
    }
    guarded = guard.start(commands, folder, signal.SIGKILL)
    try:
        yield
    finally:
        await asyncio.to_thread(guard.stop, guarded)


class Imitation:
    """Kueue's integration of batch Jobs and the controller of Jobs, as far as they answer a Workload. No queue, no quota."""

    def __init__(self, api: Api, space: str) -> None:
        self._api = api
        self._space = space

    async def suspended(self, job: dict[str, Any], **said: Any) -> dict[str, Any]:
        """The job, and the Workload that is made for it; `said`: more of its spec."""
        made = await self._api.create(JOBS.path(self._space), job)
        meta, template = made["metadata"], made["spec"]["template"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        pod_set = {"name": "main", "count": made["spec"]["parallelism"], "template": template}
        workload = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Workload",
            "metadata": {"name": f"job-{meta['name']}", "ownerReferences": [owner]},
            "spec": {"queueName": "team", "podSets": [pod_set], "active": True, **said},
        }
        return await self._api.create(WORKLOADS[0].path(self._space), workload)

    async def status(self, job: str) -> dict[str, Any]:
        """Of its Workload."""
        found = await self._api.get(WORKLOADS[0].path(self._space, f"job-{job}"), dict[str, Any])
        return dict(found.get("status", {}))

    async def follow(self) -> None:
        """For ever: what is admitted is not suspended, and has its pods; what is evicted is, and has none, nor an admission."""
        while True:
            for workload in (await self._api.get(WORKLOADS[0].path(self._space), dict[str, Any]))["items"]:
                await self._followed(workload)
            await asyncio.sleep(0.05)

    async def _followed(self, workload: dict[str, Any]) -> None:
        job = workload["metadata"]["ownerReferences"][0]["name"]
        conditions = {one["type"]: one["status"] for one in workload.get("status", {}).get("conditions", ())}
        made = await self._api.get(JOBS.path(self._space, job), dict[str, Any])
        if conditions.get("Evicted") == "True":
            await self._stopped(workload, made)
        elif conditions.get("Admitted") == "True" and made["spec"]["suspend"]:
            assigned = workload["status"]["admission"]["podSetAssignments"][0]
            await self._api.patch(JOBS.path(self._space, job), {"spec": {"suspend": False}})
            for number in range(assigned["count"]):
                labels = {"batch.kubernetes.io/job-name": job, **CLASS}
                pod = {
                    "metadata": {"generateName": f"{job}-{number}-", "labels": labels},
                    "spec": made["spec"]["template"]["spec"],
                }
                await self._api.create(PODS.path(self._space), pod)

    async def _stopped(self, workload: dict[str, Any], job: dict[str, Any]) -> None:
        await self._api.patch(JOBS.path(self._space, job["metadata"]["name"]), {"spec": {"suspend": True}})
        for pod in (await self._api.get(PODS.path(self._space), dict[str, Any]))["items"]:
            if pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == job["metadata"]["name"]:
                await self._api.delete(PODS.path(self._space, pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
        if workload["status"].get("admission"):
            now = workload["status"]["conditions"][0]["lastTransitionTime"]
            pending = [
                {"type": kind, "status": "False", "reason": "Pending", "message": "", "lastTransitionTime": now}
                for kind in ("QuotaReserved", "Admitted")
            ]
            meta = {key: workload["metadata"][key] for key in ("name", "namespace", "resourceVersion")}
            body = {
                "apiVersion": workload["apiVersion"],
                "kind": "Workload",
                "metadata": meta,
                "status": {"conditions": pending},
            }
            try:
                await self._api.apply(WORKLOADS[0].path(self._space, meta["name"], "status"), body, "kueue-admission")
            except ConflictError:
                return  # looked at again
