"""Admissions of Kueue's Workloads, written on a real API server: once, by what was seen, and taken back where no pods come."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.admissions import PODS_COME_WITHIN, Admissions
from reconciler.kubernetes.binder.journal import GangBinding, PodBinding
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.flavors import Flavors
from reconciler.kubernetes.objects.suspended_jobs import SuspendedJobs
from reconciler.kubernetes.objects.workloads import WORKLOADS, Workload
from reconciler.kubernetes.objects.world import ClusterModel
from reconciler.model.clock import VirtualClock
from solver.model.cluster import NodeName
from solver.model.workload import JobName
from tests.kubernetes.gangs import Leads
from tests.kubernetes.kueue import Imitation, a_job
from tests.kubernetes.sessions import REAL, a_namespace, session

pytestmark = REAL

JOB = JobName("a.kueue.job-train")


def a_start(workload: Workload) -> GangBinding:
    meta = workload.metadata
    pod = PodBinding(meta.namespace, f"{meta.name}:main:0", meta.uid, meta.resource_version, NodeName("n1"))
    return GangBinding(JOB, 1, (pod,))


async def conditions(api: Api, path: str) -> dict[str, tuple[str, str]]:
    found = await api.get(path, dict[str, Any])
    return {one["type"]: (one["status"], one["reason"]) for one in found["status"]["conditions"]}


def test_what_is_admitted_is_written_once_by_what_was_seen_and_taken_back_where_no_pods_come(shipped: Cluster) -> None:
    async def story() -> None:
        clock, seen, notes = VirtualClock(), SuspendedJobs(ClusterModel(), ClusterModel()), list[str]()
        async with session(shipped) as api:
            space = await a_namespace(api)
            kueue = Imitation(api, space)
            path = WORKLOADS[0].path(space, (await kueue.suspended(a_job("train", 1)))["metadata"]["name"])
            admissions = Admissions(
                api,
                Leads().leadership,
                seen,
                Flavors(),
                clock,
                lambda kind, *_: notes.append(kind),
                structlog.get_logger(),
            )

            async def admitted(workload: Workload) -> int:
                return await admissions.admit([a_start(workload)], {}, {JOB: "q"})

            first = await api.get(path, Workload)
            seen.workload(None, first)
            assert await admitted(first) == 1
            assert await admitted(first) == 0, "it is not as it was seen any more"
            second = await api.get(path, Workload)
            seen.workload(first, second)
            assert await admitted(second) == 0, "its pods may come"
            assert (await conditions(api, path))["Admitted"] == ("True", "Admitted")
            clock.advance(PODS_COME_WITHIN)
            assert await admitted(second) == 1
            said = await conditions(api, path)
            assert (said["Evicted"], said["QuotaReserved"][0]) == (("True", "PodsReadyTimeout"), "True")
            assert notes == ["admitted"]

    asyncio.run(story())
