"""Tells gangs things at random while they run, and again what they were told before, as whoever gets no answer does."""

from __future__ import annotations

import random

from reconciler.control.plan_executor import PlanExecutor
from reconciler.protocols.backend import TellGang
from solver.model.quantities import Duration
from solver.model.workload import JobName

WITHIN = Duration(10_000)

Numbers = dict[tuple[JobName, int], int]
"""The newest number that was sent to each attempt. It outlives every control plane, as what a ledger holds does."""


def tell(leader: PlanExecutor, chance: random.Random, newest: Numbers) -> None:
    """Perhaps tell one gang something new, or send it an order again that it was sent before. Raises BackendUnreachableError."""
    claims = leader.plane.ledger.claims()
    if not claims or chance.random() < 0.3:
        return
    claim = chance.choice(claims)
    key, until = (claim.job, claim.attempt), leader.plane.clock.now().after(WITHIN)
    if key not in newest or chance.random() < 0.5:
        # The record before the deed: a number is never used for two things.
        number = newest[key] = newest.get(key, 0) + 1
    else:
        number = chance.randint(1, newest[key])
    leader.plane.backend.submit(TellGang(*key, number, "checkpoint", until), leader.epoch)
