"""Plays the keeper of checkpoints beside the loop: late, in any order, and without a storage."""

from __future__ import annotations

import random

from reconciler.control.plan_executor import PlanExecutor
from reconciler.lifecycle.checkpoints.save_status import request_number
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.checkpoint_record import CheckpointRecord
from solver.model.quantities import Memory

STORAGE = CheckpointPolicy("default", "memory://checkpoints", max_concurrent_checkpoints=1)


def keep(leader: PlanExecutor, chance: random.Random) -> None:
    """Perhaps a gang that was told to save has done so; perhaps what somebody waits for has been read again."""
    plane, epoch, now = leader.plane, leader.epoch, leader.plane.clock.now()
    for stop in plane.ledger.intents():
        if stop.kind == "stop" and stop.stage == "saves" and chance.random() < 0.4:
            step, url = chance.randint(1, 1_000_000), f"{STORAGE.folder_of(stop.job)}/{stop.attempt}"
            saved = CheckpointRecord(
                stop.job, stop.attempt, step, "default", url, 1, Memory(1), "digest", now, request_number(stop)
            )
            plane.checkpoints.record(epoch, saved)
    holding = {claim.job for claim in plane.ledger.claims()}
    for record in plane.jobs.live_jobs():
        for known in plane.checkpoints.of(record.name) if record.name not in holding else ():
            if known.state == "published" and chance.random() < 0.5:
                plane.checkpoints.judge(epoch, known.key, ())
