"""What there was of jobs, in SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CompoundSelect, Connection, Row, Select, func, literal, or_, select

from reconciler.protocols.past_jobs import PastJob
from reconciler.store.database import Database
from reconciler.store.tables import checkpoints, jobs, past_gangs, placements
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, JobSpec, QueueName


class SqlPastJobs:
    """Implements PastJobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def between(self, start: Instant, end: Instant) -> tuple[PastJob, ...]:
        """By the indexes of ends. A job that has ended holds its GPUs until they are released."""
        names = "name", "queue", "user", "priority_class", "gpus", "gpu_types", "submitted_at", "ended_at"
        columns = [jobs.c[name] for name in names]
        there = or_(jobs.c.ended_at.is_(None), jobs.c.ended_at > start), jobs.c.submitted_at < end
        held = select(placements.c.job).where(placements.c.until > start, placements.c.since < end)
        query = select(*columns).where(*there).union(select(*columns).where(jobs.c.name.in_(held)))
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
            older = [row.name for row in rows if row.queue is None]
            specs = self._specs(connection, older)
            gangs = connection.execute(_gangs_between(start, end, held)).all()
        found = (*(_past_job(row, specs.get(row.name)) for row in rows), *(_past_job(row, None) for row in gangs))
        return tuple(sorted(found))

    def saved(self, start: Instant) -> dict[tuple[JobName, int], Instant]:
        """A checkpoint that is deleted was one. What gangs of pods say of it is kept with what they held."""
        named = checkpoints.c.job, checkpoints.c.attempt
        good = checkpoints.c.state != "corrupt", checkpoints.c.findings == "[]", checkpoints.c.at > start
        query = select(*named, func.max(checkpoints.c.at).label("at")).where(*good).group_by(*named)
        of_pods = select(placements.c.job, placements.c.attempt, func.max(placements.c.saved_at).label("at"))
        of_pods = of_pods.where(
            placements.c.pod.is_not(None), placements.c.until > start, placements.c.saved_at > start
        )
        both = query.union_all(of_pods.group_by(placements.c.job, placements.c.attempt))
        with self._database.reading() as connection:
            return {(JobName(row.job), row.attempt): Instant(row.at) for row in connection.execute(both)}

    def _specs(self, connection: Connection, names: list[str]) -> dict[str, JobSpec]:
        """Of jobs that an older release took in, whose rows do not say it all."""
        found: dict[str, JobSpec] = {}
        for name in names:
            text = connection.execute(select(jobs.c.spec).where(jobs.c.name == name)).scalar_one()
            found[name] = self._database.read_document(text, JobSpec)
        return found


def _gangs_between(start: Instant, end: Instant, held: Select[Any]) -> CompoundSelect[Any]:
    """As of jobs; who made a gang's pods is not known."""
    names = "name", "queue", "priority_class", "gpus", "gpu_types", "submitted_at", "ended_at"
    wanted = select(*(past_gangs.c[name] for name in names), literal("").label("user"))
    there = or_(past_gangs.c.ended_at.is_(None), past_gangs.c.ended_at > start), past_gangs.c.submitted_at < end
    return wanted.where(*there).union(wanted.where(past_gangs.c.name.in_(held)))


def _past_job(row: Row[Any], spec: JobSpec | None) -> PastJob:
    ended = None if row.ended_at is None else Instant(row.ended_at)
    if spec is not None:
        with_gpus = [group.shape.gpu_types for group in spec.task_groups if group.shape.cost]
        types = {gpu_type for named in with_gpus for gpu_type in named or ("*",)}
        asked = spec.queue, row.user, spec.priority_class, spec.gpus
    else:
        types = set((row.gpu_types or "*").split())
        asked = QueueName(row.queue), row.user, row.priority_class or "", MilliGpu(row.gpus)
    named_types = () if "*" in types else tuple(sorted(types))
    return PastJob(JobName(row.name), *asked, named_types, Instant(row.submitted_at), ended)
