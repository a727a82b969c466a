"""Admits Workloads of Kueue in Kueue's stead, and takes an admission back; what follows from either Kueue's integrations do.

It is written as Kueue's own scheduler writes it, by a server-side apply in the name of the same field manager: of what another
manager has written Kueue could not take anything back. Each write names the resourceVersion that was seen, so that of two who
decide about one Workload one is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.binding import Leads
from reconciler.kubernetes.binder.journal import GangBinding
from reconciler.kubernetes.binder.volume_claims import Note
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.concurrency import gather
from reconciler.kubernetes.client.refusals import ConflictError, KubernetesError, NotFoundError
from reconciler.kubernetes.objects.flavors import Flavors
from reconciler.kubernetes.objects.requests import requests_of
from reconciler.kubernetes.objects.suspended_jobs import SuspendedJobs
from reconciler.kubernetes.objects.wire import Labels
from reconciler.kubernetes.objects.workloads import WORKLOADS, PodSet, Workload, stand_in
from reconciler.model.clock import Clock
from solver.model.amounts import PLACES, is_port
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, JobName

MANAGER: Final = "kueue-admission"
"""Kueue's name for what its scheduler and its controller of Workloads write (pkg/constants)."""
PODS_COME_WITHIN: Final = Duration(300_000)
"""Then an admission is taken back, so that what it was to have is not kept free for ever."""
_CONDITIONS: Final = frozenset(
    {
        "QuotaReserved", "BlockedOnPreemptionGates", "Evicted", "Admitted", "Preempted", "Requeued", "DeactivationTarget",
        "Finished",
    }
)  # fmt: skip
"""Those of the same manager: what a server-side apply leaves out is taken away."""
_KEPT: Final = (
    "requeueState", "resourceRequests", "accumulatedPastExecutionTimeSeconds", "schedulingStats", "clusterName",
    "nominatedClusterNames", "unhealthyNodes", "preemptionGates",
)  # fmt: skip


@dataclass
class Admissions:
    """Raises NotLeaderError, and nothing of the server's: what was not written is decided anew by the next round.

    `labels_of`: a node's.
    """

    api: Api
    leads: Leads
    seen: SuspendedJobs
    flavors: Flavors
    clock: Clock
    note: Note
    log: FilteringBoundLogger
    _leaving: set[JobName] = field(default_factory=set)
    """Jobs that were told to leave: once they have, they are suspended again."""
    _waiting: dict[str, Instant] = field(default_factory=dict)
    """Since when what is admitted was seen to have no pods, by the uid of its Workload."""

    async def admit(
        self, gangs: Sequence[GangBinding], labels: Mapping[NodeName, Labels], queues: Mapping[JobName, str]
    ) -> int:
        """These may start: what stands for their pods was given nodes. `queues`: of each job. How many were written."""
        there = {gang.pods[0].uid for gang in gangs}
        self._waiting = {uid: since for uid, since in self._waiting.items() if uid in there}
        done = await gather(self._admit(gang, labels, queues[gang.job]) for gang in gangs)
        return sum(done)

    def leave(self, jobs: Iterable[JobName]) -> Mapping[JobName, JobName]:
        """These were told to leave. As what those of them that Kueue suspends then will wait."""
        left = set(jobs)
        self._leaving |= left
        return {one.runs_as: one.waits_as for one in self.seen if one.runs_as in left} if left else {}

    async def suspend(self, jobs: Mapping[JobName, Job]) -> int:
        """Those that have left are suspended again. `jobs`: all that there are. How many were written."""
        gone = {job for job in self._leaving if job not in jobs or not jobs[job].placement}
        self._leaving -= gone
        ours = [one.workload for one in self.seen if one.runs_as in gone and one.workload.is_reserved] if gone else []
        why = "its pods were evicted, and wait for their turn"
        return sum(await gather(self._evict(workload, "Preempted", why) for workload in ours))

    async def _admit(self, gang: GangBinding, labels: Mapping[NodeName, Labels], queue: str) -> bool:
        first = gang.pods[0]
        named = stand_in(first.name)
        workload = self.seen.find(first.namespace, named.workload) if named else None
        if workload is None:
            return False
        if workload.is_reserved:
            return await self._wait_for_pods(workload)
        status = {**_admission(workload, gang, labels, self.flavors, queue)}
        written = await self._written(workload, status, _admitted_conditions(queue))
        if written:
            self.note("admitted", gang.job, f"its Workload {'/'.join(workload.key)} is admitted: its pods may come")
        return written

    async def _wait_for_pods(self, workload: Workload) -> bool:
        now = self.clock.now()
        if now < self._waiting.setdefault(workload.metadata.uid, now).after(PODS_COME_WITHIN):
            return False
        return await self._evict(workload, "PodsReadyTimeout", f"its pods did not come within {PODS_COME_WITHIN}")

    async def _evict(self, workload: Workload, reason: str, why: str) -> bool:
        evicted = {"Evicted": ("True", reason, why)}
        return await self._written(
            workload, {}, evicted | ({"Preempted": ("True", "InClusterQueue", why)} if reason == "Preempted" else {})
        )

    async def _written(
        self, workload: Workload, admission: Mapping[str, Any], conditions: Mapping[str, tuple[str, str, str]]
    ) -> bool:
        namespace, name = workload.key
        path = WORKLOADS[0].path(namespace, name)
        try:
            sent = await self.api.get(path, dict[str, Any])
            if sent["metadata"]["resourceVersion"] != workload.metadata.resource_version:
                return False  # it is not as it was decided about
            body = _applied(sent, admission, conditions, self.clock.now())
            await self.api.apply(WORKLOADS[0].path(namespace, name, "status"), body, MANAGER, self.leads)
        except (ConflictError, NotFoundError):
            return False
        except KubernetesError as error:
            self.log.warning("workload-refused", workload=f"{namespace}/{name}", error=str(error))
            return False
        return True


def _admission(
    workload: Workload, gang: GangBinding, labels: Mapping[NodeName, Labels], flavors: Flavors, queue: str
) -> dict[str, Any]:
    """What is admitted: of each pod set so many pods, by the flavors that their nodes are."""
    of = {pod.key: absent.pod_set for pod in gang.pods if (absent := stand_in(pod.name))}
    counts = Counter(of.values())
    assigned = []
    for pod_set in workload.spec.pod_sets:
        there = [labels.get(pod.node, {}) for pod in gang.pods if of.get(pod.key) == pod_set.name]
        each = _usage(pod_set)
        found = flavors.assigned(queue, each.keys(), there)
        usage = {resource: _quantity(each[resource] * counts[pod_set.name]) for resource in found}
        assigned.append(
            {"name": pod_set.name, "count": counts[pod_set.name], "flavors": dict(found), "resourceUsage": usage}
        )
    return {"admission": {"clusterQueue": queue, "podSetAssignments": assigned}, "resourceRequests": []}


def _usage(pod_set: PodSet) -> dict[str, Any]:
    asked = requests_of(pod_set.template.spec)
    return {name: number for name, number in asked.items() if name != PLACES and not is_port(name)}


def _quantity(number: Any) -> str:
    """As Kubernetes writes it: thousandths where it is no whole number."""
    return str(int(number)) if number == int(number) else f"{int(number * 1000)}m"


def _admitted_conditions(queue: str) -> dict[str, tuple[str, str, str]]:
    reserved = ("True", "QuotaReserved", f"Quota reserved in ClusterQueue {queue}")
    over = ("False", "QuotaReserved", "Admitted by Quorate")
    return {
        "QuotaReserved": reserved,
        "Admitted": ("True", "Admitted", "The workload is admitted"),
        "Evicted": over,
        "Preempted": over,
    }


def _applied(
    sent: Mapping[str, Any], admission: Mapping[str, Any], conditions: Mapping[str, tuple[str, str, str]], now: Instant
) -> dict[str, Any]:
    """All that the manager has written, with what is new. Of conditions that end only those that are there."""
    status, meta = sent.get("status", {}), sent["metadata"]
    kept = {key: status[key] for key in (*_KEPT, "admission", "admissionChecks") if key in status}
    return {
        "apiVersion": sent["apiVersion"],
        "kind": sent["kind"],
        "metadata": {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "status": {**kept, **admission, "conditions": list(_conditions(sent, conditions, now))},
    }


def _conditions(
    sent: Mapping[str, Any], conditions: Mapping[str, tuple[str, str, str]], now: Instant
) -> Iterator[dict[str, Any]]:
    before = {one["type"]: one for one in sent.get("status", {}).get("conditions", ())}
    for kind in sorted(_CONDITIONS & (before.keys() | conditions.keys())):
        was = before.get(kind)
        if kind not in conditions:
            yield before[kind]
            continue
        status, reason, message = conditions[kind]
        if status == "False" and (was is None or was["status"] != "True"):
            if was is not None:
                yield was
            continue
        at = was["lastTransitionTime"] if was and was["status"] == status else str(now.after(-(now % 1000)))
        generation = {"observedGeneration": sent["metadata"].get("generation", 0)}
        said = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}
        yield {**said, **generation}
