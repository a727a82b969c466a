"""What the API server holds of everything that rounds need, kept by watches, and what it means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from reconciler.kubernetes.client.informer import Change
from reconciler.kubernetes.client.kind_watch import KindWatch, WatchContext, WatchState
from reconciler.kubernetes.dra.pod_claims import PodClaims
from reconciler.kubernetes.dra.wire import CLAIMS, CLASSES, SLICES, DeviceClass, ResourceClaim, ResourceSlice
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.controllers import CONTROLLERS, Controller
from reconciler.kubernetes.objects.disruption import Budget, KubePriorityClass
from reconciler.kubernetes.objects.flavors import (
    CLUSTER_QUEUES,
    RESOURCE_FLAVORS,
    ClusterQueue,
    Flavors,
    ResourceFlavor,
)
from reconciler.kubernetes.objects.held_back import VOLCANO_JOBS, VolcanoJob
from reconciler.kubernetes.objects.object_kinds import ObjectKind
from reconciler.kubernetes.objects.pod_ownership import OURS, PodOwnership
from reconciler.kubernetes.objects.pod_view import PodIndex, PodView
from reconciler.kubernetes.objects.pod_volumes import PodVolumes
from reconciler.kubernetes.objects.podgroups import GROUPS
from reconciler.kubernetes.objects.queue_names import LOCAL_QUEUES, LocalQueue, NamespaceObject
from reconciler.kubernetes.objects.quotas import ResourceQuota
from reconciler.kubernetes.objects.resource import NODES, PODS, VOLUME_CLAIMS, Resource
from reconciler.kubernetes.objects.sharing import PodSharing
from reconciler.kubernetes.objects.start_sequence import StartSequence
from reconciler.kubernetes.objects.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from reconciler.kubernetes.objects.suspended_jobs import SuspendedJobs
from reconciler.kubernetes.objects.wire import KubeNode, Pod
from reconciler.kubernetes.objects.workload_groups import WORKLOAD_GROUPS
from reconciler.kubernetes.objects.workloads import WORKLOADS, Workload
from reconciler.kubernetes.objects.world import ClusterModel
from reconciler.kubernetes.provisioning.requests import KINDS as PROVISIONING_REQUESTS
from reconciler.kubernetes.provisioning.requests import ProvisioningRequest
from solver.model.cluster import Node as SolverNode
from solver.policy.namespace_rules import NamespaceRules
from solver.policy.policy import Policy

T = TypeVar("T")
M = TypeVar("M")
Heard = Callable[[Change[T]], bool]

BUDGETS = Resource("policy/v1", "poddisruptionbudgets")
VOLUMES = Resource("v1", "persistentvolumes")
STORAGE_CLASSES = Resource("storage.k8s.io/v1", "storageclasses")
CSI_NODES = Resource("storage.k8s.io/v1", "csinodes")
CSI_DRIVERS = Resource("storage.k8s.io/v1", "csidrivers")
CAPACITIES = Resource("storage.k8s.io/v1", "csistoragecapacities")
RESOURCE_QUOTAS = Resource("v1", "resourcequotas")
NAMESPACES = Resource("v1", "namespaces")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses")


class ClusterCache:
    """All objects that matter, as the server has them.

    Nodes, pods, PriorityClasses and PodDisruptionBudgets are needed. PodGroups and the controllers whose pods are understood are
    read where they are installed and may be read; so are ResourceClaims, and the devices that drivers publish for them. Further
    kinds are registered by `watch`, before `run`. `whose`: which pods are jobs.
    """

    def __init__(self, context: WatchContext, whose: PodOwnership = OURS) -> None:
        self._context = context
        self._world = ClusterModel(whose)
        self.devices = PodClaims(self._world)
        """What claims have, and may have."""
        self.volumes = PodVolumes(self.devices, self._world.mountable)
        """What volume claims are bound to, and may be."""
        self.suspended = SuspendedJobs(self.volumes, self._world)
        """Jobs of Kueue that wait to be admitted, or for their pods."""
        self._pods = PodIndex()
        self._partitioned: dict[str, KubeNode] = {}
        self._followed: list[KindWatch[Any]] = []
        self.changed = asyncio.Event()
        """Something that rounds could go by is not as it was; to be cleared by the waiting task."""
        self.nodes = self.watch((NODES,), KubeNode, self._node, needed=True)
        self.pods = self.watch((PODS,), Pod, self._pod, needed=True, shared=PodSharing())
        self.watch(
            (PRIORITY_CLASSES,),
            KubePriorityClass,
            lambda one: self._world.priority_class(one.before, one.after),
            needed=True,
        )
        self.watch((RESOURCE_QUOTAS,), ResourceQuota, lambda one: self._world.quota(one.before, one.after))
        self.watch((NAMESPACES,), NamespaceObject, lambda one: self._world.namespace(one.before, one.after))
        self.budgets = self.watch((BUDGETS,), Budget, needed=True)
        self.claims = self.watch((CLAIMS,), ResourceClaim, lambda one: self.devices.claim(one.before, one.after))
        self.watch((SLICES,), ResourceSlice, lambda one: self.devices.slice(one.before, one.after))
        self.watch((CLASSES,), DeviceClass, lambda one: self.devices.device_class(one.before, one.after))
        self._storage = (
            self.watch((VOLUME_CLAIMS,), PersistentVolumeClaim, lambda one: self.volumes.claim(one.before, one.after)),
            self.watch((VOLUMES,), PersistentVolume, lambda one: self.volumes.volume(one.before, one.after)),
            self.watch((STORAGE_CLASSES,), StorageClass, lambda one: self.volumes.storage_class(one.before, one.after)),
            self.watch((CSI_DRIVERS,), CsiDriver, lambda one: self.volumes.driver(one.before, one.after)),
            self.watch((CAPACITIES,), CsiStorageCapacity, lambda one: self.volumes.capacity(one.before, one.after)),
        )
        self.watch((CSI_NODES,), CsiNode, lambda one: self.volumes.csi_node(one.before, one.after))
        self.requests = self.watch(PROVISIONING_REQUESTS, ProvisioningRequest)
        self._watch_meaning(LOCAL_QUEUES, self._world.local_queue)
        for group in GROUPS:
            self._watch_meaning(group, self._world.group)
        self._watch_meaning(WORKLOAD_GROUPS, self._world.workload_groups)
        for controller in CONTROLLERS:
            self._watch_meaning(controller, self._controller)
        self.watch(WORKLOADS, Workload, lambda one: self.suspended.workload(one.before, one.after))
        self.flavors = Flavors()
        """What queues of Kueue count."""
        self.watch(CLUSTER_QUEUES, ClusterQueue, lambda one: self.flavors.queue(one.before, one.after))
        self.watch(RESOURCE_FLAVORS, ResourceFlavor, lambda one: self.flavors.flavor(one.before, one.after))
        self.watch((VOLCANO_JOBS,), VolcanoJob, lambda one: self._world.volcano_job(one.before, one.after))

    def watch(
        self,
        resources: Sequence[Resource],
        kind: type[T],
        heard: Heard[T] | None = None,
        *,
        needed: bool = False,
        shared: Callable[[T], T] = lambda value: value,
    ) -> KindWatch[T]:
        """Follow one more kind, decoded as `kind`; `resources` are its names, the newest first.

        `heard` is told of each change, and says whether it makes a difference; without it every change does. What `needed` means is
        said at `KindWatch`, and what `shared` does at `Informer`.
        """

        def told(changes: Sequence[Change[T]]) -> None:
            if any([heard(change) for change in changes] if heard else changes):  # a list: all of them are to be heard
                self.changed.set()

        followed = KindWatch(self._context, resources, kind, told, needed=needed, shared=shared)
        self._followed.append(followed)
        return followed

    async def run(self) -> None:
        """Follow everything until cancelled. Raises KubernetesError where something that is needed can't be read: a person acts."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for followed in self._followed:
                    tasks.create_task(followed.run())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def ready(self) -> None:
        """Return once everything was read that is there."""
        for followed in self._followed:
            await followed.settled.wait()

    def declare(self, declared: Iterable[SolverNode], policy: Policy) -> None:
        """The nodes, priority classes and namespaces that Git declares now; said by a pass of another revision, before it looks."""
        classes = (known.name for known in policy.priority_classes)
        self._world.declare(declared, classes, NamespaceRules.of(policy))

    @property
    def local_queues(self) -> tuple[LocalQueue, ...]:
        """Those of Kueue, sorted."""
        return self._world.local_queues

    def cluster(self) -> KubernetesCluster:
        """What it all means now."""
        self.volumes.follow(not any(kind.standing().problem for kind in self._storage))
        self.devices.tell()
        return self._world.cluster()

    def start_sequence(self) -> AbstractContextManager[StartSequence]:
        """To put gangs on nodes one after the other, on trial."""
        return self._world.start_sequence()

    def pod_view(self) -> PodView:
        """All pods as the server has them now."""
        return self._pods.view()

    def take_gone(self) -> tuple[Pod, ...]:
        """Pods with GPUs that are gone since this was asked before, as they were last."""
        return self._pods.take_gone()

    @property
    def partitioned_nodes(self) -> Collection[KubeNode]:
        """The nodes of which it was asked that their GPUs are partitioned."""
        return tuple(self._partitioned.values())

    def standing(self) -> tuple[WatchState, ...]:
        """How far each kind is followed."""
        return tuple(followed.standing() for followed in self._followed)

    def _node(self, node: Change[KubeNode]) -> bool:
        self._partitioned.pop(node.key.name, None)
        if node.after and names.MIG in node.after.metadata.annotations:
            self._partitioned[node.key.name] = node.after
        return self.devices.node(node.before, node.after)

    def _pod(self, pod: Change[Pod]) -> bool:
        self._pods.change(pod.before, pod.after)
        return any((self.volumes.pod(pod.before, pod.after), self.suspended.pod(pod.before, pod.after)))

    def _controller(self, before: Controller | None, after: Controller | None) -> bool:
        return any((self._world.controller(before, after), self.suspended.controller(before, after)))

    def _watch_meaning(self, kind: ObjectKind[Any, M], take: Callable[[M | None, M | None], bool]) -> None:
        def heard(change: Change[Any]) -> bool:
            before, after = (known and kind.read(known) for known in (change.before, change.after))
            return take(before, after)

        self.watch(kind.resources, kind.written, heard)
