"""kube-scheduler itself on the cases of the benchmark, each on an API server of its own, without Quorate and its fence."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hack.kubernetes.bench_claims import Case, make, session
from hack.kubernetes.bench_contenders import (
    GATES,
    NO_LIMIT,
    USUAL_BURST,
    USUAL_NAME,
    USUAL_QPS,
    kube_scheduler,
    kube_scheduler_runs,
)
from hack.kubernetes.bench_rounds import Seen, measured, until, usage, watched
from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place

CANNOT = {
    "bind-loop": "a loop of bindings is no scheduler",
    "reclaim2000": "kube-scheduler knows no quotas, so that there is nothing to take back; it preempts by priority alone",
}
LIMITS = {"usual": (USUAL_QPS, USUAL_BURST), "unlimited": (NO_LIMIT, NO_LIMIT)}
"""Requests a second, and at once."""
CLAIMS_S = 60.0
"""So long it gets for pods with claims, of which it places few in a second."""


def beside(case: str, small: int) -> dict[str, object]:
    """Figures as of Quorate, by the limit of requests that it ran with; `cannot`: why there are none."""
    if case in CANNOT:
        return {"cannot": CANNOT[case]}
    told: dict[str, object] = {}
    for limit, (qps, burst) in LIMITS.items():
        with _cluster() as cluster:
            if case == "mig-claims":
                told[limit] = asyncio.run(_claims(cluster, Case().smaller(small), qps, burst))
            else:
                told[limit] = asyncio.run(
                    measured(case, kube_scheduler(qps, burst), cluster, cluster.folder, small)
                )._asdict()
    return told


@contextmanager
def _cluster() -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory() as made,
        running(found(place()), Path(made), audited=False, gates=GATES) as cluster,
    ):
        yield cluster


async def _claims(cluster: Cluster, case: Case, qps: int, burst: int) -> dict[str, object]:
    """Pods with claims, as many as are bound in time; `bound_s`: from when the scheduler is ready to the last of them."""
    async with session(cluster, "bench-admin") as api:
        await make(api, case.nodes, range(case.pods), case.profiles, scheduler=USUAL_NAME)
        seen = Seen()
        async with (
            watched(api, None, seen),
            kube_scheduler_runs(cluster, cluster.folder / "beside", qps, burst) as process,
        ):
            started_s = time.monotonic()
            with suppress(TimeoutError):
                await until(lambda: len(seen.bound) == case.pods, CLAIMS_S)
            cpu_s, _ = usage(process.pid)
    bound_s = max(seen.bound.values(), default=started_s) - started_s
    return {
        "pods": case.pods,
        "bound": len(seen.bound),
        "bound_s": round(bound_s, 3),
        "cpu_s": cpu_s,
        "pods_per_s": round(len(seen.bound) / bound_s, 1) if bound_s else 0.0,
    }
