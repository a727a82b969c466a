"""Binds many gangs at once: their claims are one write, and only then is the backend told of any of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.control.leader_actions import LeaderActions
from reconciler.lifecycle.checkpoints.resume_point import resume_point
from reconciler.lifecycle.checkpoints.turns import storage_of
from reconciler.lifecycle.jobs.device_readiness import gpus_of
from reconciler.lifecycle.jobs.orders import order_of
from reconciler.model.causes import nodes_of
from reconciler.model.checkpoint_record import CheckpointKey
from reconciler.model.job_record import JobRecord
from reconciler.protocols.checkpoints import CheckpointGoneError
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim, ClaimRefusedError
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import Intent
from solver.model.workload import JobName
from solver.plan.plan import (
    Bind,
    Evict,
    Grow,
    Nominate,
    Release,
    Repartition,
    Reserve,
    Shrink,
    Step,
    Unreserve,
    Withdraw,
)

Alone = Release | Repartition | Evict | Shrink | Grow | Nominate | Withdraw | Reserve | Unreserve

STARTS_AT_ONCE_MAX: Final = 256
"""In one write: others write meanwhile, such as submissions, and wait no longer than some tenths of a second."""


def in_turn(steps: Sequence[Step]) -> Iterator[Alone | tuple[Bind, ...]]:
    """Steps in their order; of starts those together that follow each other, up to as many as are written at once."""
    together: list[Bind] = []
    for step in steps:
        if together and (not isinstance(step, Bind) or len(together) == STARTS_AT_ONCE_MAX):
            yield tuple(together)
            together = []
        if isinstance(step, Bind):
            together.append(step)
        else:
            yield step
    if together:
        yield tuple(together)


@dataclass(frozen=True, slots=True)
class StartExecutor(LeaderActions):
    """What a leader does about starts."""

    def bind(self, steps: Sequence[Bind], unmade: Collection[DeviceId]) -> int:
        """Claim, put on record, begin; returns how many were refused. `unmade`: GPUs that may not be partitioned anew."""
        told: list[Event] = []
        records = self.plane.jobs.named([step.job for step in steps])
        may = [step for step in steps if self._may_begin(step, records, unmade, told)]
        types = {node.name: node.gpu_type for node in self.plane.policies.current().nodes} if may else {}
        wanted = [self._wish(step, types) for step in may]
        with self.plane.together():
            refused = self.plane.ledger.claim_all(self.epoch, wanted)
            for claim, _ in wanted:
                told.append(self._came_of(claim, refused.get(claim.job)))
            self.plane.history.record_events(told)
        granted = [(claim, intent) for claim, intent in wanted if claim.job not in refused]
        changing = self.changing()
        for claim, intent in granted:
            if not gpus_of(claim.tasks) & changing:
                self.send(order_of(intent, claim, records[claim.job]))
        return len(steps) - len(granted)

    def _wish(self, step: Bind, types: Mapping[NodeName, GpuType]) -> tuple[Claim, Intent]:
        now, limits = self.plane.clock.now(), (step.time_limit, step.idle_limit)
        used = {task.group: types.get(task.node, GpuType("")) for task in step.tasks if task.devices}
        claim = Claim(
            step.job,
            step.attempt,
            step.tasks,
            since=now,
            time_limit=limits[0],
            idle_limit=limits[1],
            gpu_types=tuple(used.items()),
        )
        return claim, Intent("start", step.job, step.attempt, now, now.after(step.deadline), step.tasks)

    def _may_begin(
        self, step: Bind, records: Mapping[JobName, JobRecord], unmade: Collection[DeviceId], told: list[Event]
    ) -> bool:
        """Whether there is something to run on, and to go on from; what is to be said of it is added to `told`."""
        if gpus_of(step.tasks).intersection(unmade):
            told.append(self.event("bind-refused", step.job, "a GPU that it needs may not be partitioned anew"))
            return False
        try:
            going_on = self._go_on(step, records[step.job])
        except CheckpointGoneError as gone:
            told.append(self.event("bind-refused", step.job, str(gone)))
            return False
        if going_on:
            told.append(self.event("resumes", step.job, going_on))
        return True

    def _came_of(self, claim: Claim, refused: ClaimRefusedError | None) -> Event:
        if refused is not None:
            return self.event("bind-refused", claim.job, str(refused))
        where = f"attempt {claim.attempt} on {nodes_of(claim.tasks)}"
        return self.event("bound", claim.job, where, "starting", claim.attempt)

    def _go_on(self, step: Bind, record: JobRecord) -> str:
        """Note from which checkpoint an attempt begins, before it does; "": anew. Raises CheckpointGoneError."""
        if record.spec.checkpoint is None:
            return ""
        policies = self.plane.policies.current().operations.storages
        resume = resume_point(self.plane.checkpoints, step.job, storage_of(record.spec, policies))
        if resume is None:
            return ""
        key = CheckpointKey(step.job, resume.attempt, resume.step)
        self.plane.checkpoints.resume(self.epoch, key, step.attempt)
        return str(resume)
