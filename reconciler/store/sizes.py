"""How a gang that runs comes to hold other tasks, inside a transaction of the ledger."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, delete, select, update

from reconciler.protocols.stores import Claim, ClaimRefusedError
from reconciler.store.database import Database
from reconciler.store.device_holds import held_by, hold, ran, refuse_held
from reconciler.store.occupancy import Occupancy
from reconciler.store.partition_conflicts import refuse_divided
from reconciler.store.rows import claim_of
from reconciler.store.tables import claims, holdings, intents, jobs
from solver.model.document import encode
from solver.model.inflight import Intent
from solver.model.quantities import Instant
from solver.model.workload import TaskPlacement


def claim_to_grow(database: Database, connection: Connection, intent: Intent) -> Claim:
    """The claim of a growth's gang. Raises ClaimRefusedError for one that holds nothing, or does not simply run."""
    claim = claim_of(database, connection, intent)
    if claim is None:
        raise ClaimRefusedError(f"{intent.job} does not hold attempt {intent.attempt}")
    job = f"attempt {claim.attempt} of {claim.job}"
    if connection.execute(select(jobs.c.ended_at).where(jobs.c.name == claim.job)).scalar_one() is not None:
        raise ClaimRefusedError(f"{claim.job} has ended")
    if claim.running_since is None:
        raise ClaimRefusedError(f"{job} does not run yet")
    asked = set(connection.execute(select(intents.c.id).where(intents.c.job == claim.job)).scalars())
    for kind, is_busy in (("stop", "is being stopped"), ("grow", "still grows")):
        if f"{kind}/{claim.job}/{claim.attempt}" in asked:
            raise ClaimRefusedError(f"{job} {is_busy}")
    return claim


def refuse_growth(occupancy: Occupancy, claim: Claim, joining: tuple[TaskPlacement, ...]) -> None:
    """Raises ClaimRefusedError for tasks or devices that are somebody's already, and for GPUs that are divided otherwise."""
    refuse_divided(occupancy, joining)
    for (group, index), count in Counter((task.group, task.index) for task in (*claim.tasks, *joining)).items():
        if count > 1:
            raise ClaimRefusedError(f"attempt {claim.attempt} of {claim.job} has a task {group}/{index} already")
    refuse_held(occupancy, claim.job, joining)


def without(tasks: tuple[TaskPlacement, ...], gone: tuple[TaskPlacement, ...]) -> tuple[TaskPlacement, ...]:
    """The tasks but those, wherever they are."""
    keys = {(task.group, task.index) for task in gone}
    return tuple(task for task in tasks if (task.group, task.index) not in keys)


def change_size(connection: Connection, claim: Claim, at: Instant) -> None:
    """The claim has these tasks from `at` on; what it ran with those before is added up first."""
    own = claims.c.job == claim.job
    held = connection.execute(select(claims).where(own, claims.c.attempt == claim.attempt)).all()
    ran_gpu_ms = ran(connection, held, at).get(claim.job, 0)
    tasks = encode(claim.tasks).decode()
    connection.execute(
        update(claims).where(own).values(ran_gpu_ms=ran_gpu_ms, sized_at=at, tasks=tasks, growth=claim.growth)
    )
    connection.execute(delete(holdings).where(holdings.c.job == claim.job))
    hold(connection, held_by(claim.job, claim.tasks))
