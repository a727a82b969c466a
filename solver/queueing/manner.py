"""Whether a job's tasks are packed on few nodes or spread over many: its own word, else its class's, else by its type."""

from __future__ import annotations

import msgspec

from solver.model.kept_columns import KeptValues
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, PlacementStyle
from solver.policy.policy import Policy


def with_manners(snapshot: Snapshot, policy: Policy, kept: RoundCache | None = None) -> Snapshot:
    """The snapshot in which every job says whether it is spread. `kept`: what was known of them in the rounds before."""
    known: KeptValues[Job, Job] = KeptValues() if kept is None else kept.lasting("manners", KeptValues)
    jobs = known.of(snapshot.jobs, lambda job: _settled(job, policy), policy)
    if all(one is other for one, other in zip(jobs, snapshot.jobs, strict=True)):
        return snapshot
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


def _settled(job: Job, policy: Policy) -> Job:
    asked = job.spec.topology
    style = _style(job, policy)
    if style == (asked.placement or "pack"):
        return job
    spec = msgspec.structs.replace(job.spec, topology=msgspec.structs.replace(asked, placement=style))
    return msgspec.structs.replace(job, spec=spec)


def _style(job: Job, policy: Policy) -> PlacementStyle:
    """Replicas of services are spread, so that a lost node costs few of them; what is bound by communication is not."""
    asked, known = job.spec.topology, policy.priority_class(job)
    said = asked.placement or (known.placement if known else None)
    if asked.communication == "bound":
        return "pack"
    return said or ("spread" if job.spec.type == "service" else "pack")
