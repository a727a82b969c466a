"""What the GPUs of running jobs did lately, as facts of a snapshot that is handed out: for reviews of IdlePolicies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from reconciler.control.idle_watch import kept_minutes
from reconciler.control.use_summary import KnownUse, active_of
from reconciler.lifecycle.jobs.idle_gpus import ActiveMinutes, still_of, whole_gpus
from reconciler.model.gpu_use import MINUTE
from reconciler.model.idle_policy import GpuActivityBelow
from reconciler.protocols.gpu_use import GpuUses
from solver.model.cluster import DeviceId
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QuietGpus

BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Percent: a policy with another bound is judged by the next lower of these."""
LOOKS_BACK: Final = tuple(Duration(minutes * MINUTE) for minutes in (240, 120, 60, 30, 15, 5))
"""The longest of these windows of which enough is on record counts."""
JOBS_MAX: Final = 500
"""So many quiet jobs, those with the most GPUs, are looked up: hundreds of minutes of each GPU are read."""


def with_quiet_gpus(snapshot: Snapshot, use: KnownUse, now: Instant) -> Snapshot:
    """The snapshot, with what is known of jobs whose GPUs are all below the highest bound now."""
    if use.past is None:
        return snapshot
    busy, seen = set[JobName](), set[JobName]()
    for gpu in use.latest.of(snapshot).gpus:
        active = active_of(gpu, now)
        seen |= {holder.job for holder in gpu.holders}
        if active is None or active * 100 >= BOUNDS[-1]:
            busy |= {holder.job for holder in gpu.holders}
    running = [job for job in snapshot.jobs if job.name in seen - busy and job.started_at is not None]
    most = sorted(running, key=lambda job: (-sum(task.gpus for task in job.placement), job.submitted_at))[:JOBS_MAX]
    found = {job.name: tuple(_quiet(job, use.past, now)) for job in most}
    jobs = (
        msgspec.structs.replace(job, quiet=found[job.name]) if found.get(job.name) else job for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


def _quiet(job: Job, past: GpuUses, now: Instant) -> Iterator[QuietGpus]:
    gpus, begun = whole_gpus(job.placement), job.started_at
    if gpus is None or begun is None:
        return
    nodes = {task.node for task in job.placement if task.devices}
    minutes = kept_minutes(past, nodes, Instant(max(begun, now - LOOKS_BACK[0] - 5 * MINUTE)), now)
    for bound in BOUNDS:
        since = _since(gpus, minutes, bound, begun, now)
        if since is not None:
            yield QuietGpus(bound, since)


def _since(
    gpus: tuple[DeviceId, ...], minutes: ActiveMinutes, bound: float, begun: Instant, now: Instant
) -> Instant | None:
    for lasts in LOOKS_BACK:
        still = still_of(gpus, minutes, GpuActivityBelow(bound, lasts), begun, now)
        if still is not None:
            return still.since if still.lasts > 0 else None
    return None
