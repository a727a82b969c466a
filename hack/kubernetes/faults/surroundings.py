"""What is in a cluster beside its scheduler: kubelets, the collector of pods whose node is gone, and the controllers of gangs.

They speak to the API server itself, so that whatever goes wrong on the scheduler's way is no excuse for what is seen in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import structlog

from hack.kubernetes.faults.member import FIRST, POOL, QUEUE, URGENT
from hack.kubernetes.faults.world import GPUS_PER_NODE, Gang
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Informer
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS

LOOK_EVERY_S = 0.03
LEAVES_WITHIN_S = 0.3
"""So long at most a kubelet takes to end a pod, and the collector to notice one whose node is gone (there 40 s and more)."""
GRACE_S = 1
"""A pod that is deleted goes on holding what it has until its kubelet has ended it."""


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class _Status(msgspec.Struct, rename="camel", frozen=True):
    phase: str = "Pending"


class SeenPod(msgspec.Struct, frozen=True):
    """As far as these look at it."""

    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()

    @property
    def gang(self) -> str:
        """Whose it is."""
        return self.metadata.annotations.get(names.GANG, "")

    @property
    def is_leaving(self) -> bool:
        """It was asked to."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_over(self) -> bool:
        """It has ended, and holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def devices(self) -> tuple[str, ...]:
        """What it holds by its annotation."""
        return tuple(name for name in self.metadata.annotations.get(names.DEVICES, "").split(",") if name)


@dataclass
class Surroundings:
    """One namespace and some nodes. `work` for as long as they are to live; the other methods say what happens to them."""

    api: Api
    namespace: str
    chance: Random
    nodes: set[str] = field(default_factory=set)
    """That are there."""
    gangs: dict[str, Gang] = field(default_factory=dict)
    """That are wanted, and have not ended."""
    pods: dict[str, SeenPod] = field(default_factory=dict)
    """By name, as they were seen last; a name has one pod at a time."""
    _whole: dict[str, float] = field(default_factory=dict)
    """When gangs were first seen to be whole."""
    _anew: set[str] = field(default_factory=set)
    """Gangs all of whose pods are to go before they come again."""
    _deeds: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def work(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            while True:
                for name, pod in list(self.pods.items()):
                    self._as_kubelet(name, pod)
                for gang in list(self.gangs.values()):
                    self._as_controller(gang)
                await asyncio.sleep(LOOK_EVERY_S)

    async def add_node(self, name: str) -> None:
        """It is there and ready."""
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", names.GPU: str(GPUS_PER_NODE)}
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        labels = {names.PRODUCT: "NVIDIA-H100-80GB-HBM3", names.POOL: POOL}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        await self.api.create(NODES.path(), {"metadata": {"name": name, "labels": labels}, "status": status})
        self.nodes.add(name)

    async def remove_node(self, name: str) -> None:
        """It is gone, and its pods are collected soon."""
        self.nodes.discard(name)
        with suppress(NotFoundError):
            await self.api.delete(NODES.path("", name))

    def want(self, gang: Gang) -> None:
        """Somebody wants it to run."""
        self.gangs[gang.name] = gang

    def want_no_more(self, gang: str) -> None:
        """Somebody deletes it."""
        self.gangs.pop(gang, None)
        for name, pod in self._of(gang):
            if not pod.is_leaving:
                self._do(f"delete {name}", self._deleted(name))

    async def empty(self) -> None:
        """Nothing of it stays behind."""
        self.gangs.clear()
        for node in list(self.nodes):
            await self.remove_node(node)
        async with asyncio.TaskGroup() as tasks:
            for name in list(self.pods):
                tasks.create_task(self._deleted(name, grace_s=0))

    async def _watch(self) -> None:
        watched = Informer(self.api, PODS, SeenPod, self.chance, structlog.get_logger())
        async with aclosing(watched.changes()) as batches:
            async for changes in batches:
                for key, _, after in changes:
                    if key.namespace != self.namespace:
                        continue
                    if after is None:
                        self.pods.pop(key.name, None)
                    else:
                        self.pods[key.name] = after

    def _as_kubelet(self, name: str, pod: SeenPod) -> None:
        """And as the collector."""
        if not pod.spec.node_name:
            return
        if pod.spec.node_name not in self.nodes or pod.is_leaving:
            self._do(f"end {name}", self._ended(name, pod))
        elif pod.status.phase == "Pending":
            self._do(f"run {name}", self._in_phase(name, "Running"))

    def _as_controller(self, gang: Gang) -> None:
        there = dict(self._of(gang.name))
        wanted = [f"{gang.name}-{number}" for number in range(gang.size)]
        if len(there) == gang.size and all(
            pod.status.phase == "Running" and not pod.is_leaving for pod in there.values()
        ):
            self._run_whole(gang)
        elif there and all(pod.is_over for pod in there.values()) and len(there) == gang.size:
            self.gangs.pop(gang.name)
        elif gang.name in self._anew:
            self._clear(gang.name, there)
        elif any(self._is_doing(f"create {name}") for name in wanted):
            return
        elif there and (len(there) < gang.size or any(pod.is_leaving for pod in there.values())):
            self._mend(gang, there, wanted)
        elif not there:
            self._create(gang, wanted)

    def _run_whole(self, gang: Gang) -> None:
        now_s = asyncio.get_running_loop().time()
        since_s = self._whole.setdefault(gang.name, now_s)
        if gang.lives_s is not None and now_s - since_s > gang.lives_s:
            for name, _ in self._of(gang.name):
                self._do(f"succeed {name}", self._in_phase(name, "Succeeded"))

    def _mend(self, gang: Gang, there: dict[str, SeenPod], wanted: Iterable[str]) -> None:
        if any(pod.is_over for pod in there.values()):
            return  # it is ending
        if gang.refills and gang.name not in self._whole:
            self._create(gang, [name for name in wanted if name not in there])
        else:
            self._anew.add(gang.name)
            self._clear(gang.name, there)

    def _clear(self, gang: str, there: dict[str, SeenPod]) -> None:
        if not there:
            self._anew.discard(gang)
        for name, pod in there.items():
            if not pod.is_leaving:
                self._do(f"delete {name}", self._deleted(name))

    def _create(self, gang: Gang, pods: Iterable[str]) -> None:
        for name in pods:
            self._do(f"create {name}", self._created(name, gang))

    def _of(self, gang: str) -> list[tuple[str, SeenPod]]:
        return [(name, pod) for name, pod in self.pods.items() if pod.gang == gang]

    def _do(self, what: str, deed: Coroutine[Any, Any, None]) -> None:
        """Once at a time; what somebody else was faster with is looked at again."""
        if self._is_doing(what):
            deed.close()
            return
        self._deeds[what] = asyncio.create_task(self._done(deed))

    def _is_doing(self, what: str) -> bool:
        return what in self._deeds and not self._deeds[what].done()

    async def _done(self, deed: Coroutine[Any, Any, None]) -> None:
        with suppress(ConflictError, NotFoundError):
            await deed
            await asyncio.sleep(2 * LOOK_EVERY_S)  # until the watch shows it

    async def _created(self, name: str, gang: Gang) -> None:
        await self.api.create(PODS.path(self.namespace), pod_of(name, gang))

    async def _in_phase(self, name: str, phase: str) -> None:
        await self.api.patch(PODS.path(self.namespace, name, "status"), {"status": {"phase": phase}})

    async def _deleted(self, name: str, grace_s: int | None = None) -> None:
        with suppress(NotFoundError):
            options = None if grace_s is None else {"gracePeriodSeconds": grace_s}
            await self.api.delete(PODS.path(self.namespace, name), options)

    async def _ended(self, name: str, pod: SeenPod) -> None:
        await asyncio.sleep(self.chance.random() * LEAVES_WITHIN_S)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        await self.api.delete(PODS.path(self.namespace, name), options)


def pod_of(name: str, gang: Gang) -> dict[str, Any]:
    """A pod as its controller makes it."""
    notes = {names.GANG: gang.name, names.GANG_SIZE: str(gang.size), names.QUEUE: URGENT if gang.urgent else QUEUE}
    if gang.urgent:
        notes[names.PRIORITY_CLASS] = FIRST.name
    requests = {"cpu": "1", "memory": "1Gi"}
    if gang.part:
        notes[names.KAI_FRACTION] = str(gang.part)
    else:
        requests[names.GPU] = str(gang.gpus)
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    spec = {"schedulerName": names.SCHEDULER, "containers": [container], "terminationGracePeriodSeconds": GRACE_S}
    return {"metadata": {"name": name, "annotations": notes}, "spec": spec}
