"""Which jobs wait until their checkpoint has been read again, so that they go on from what is intact."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from reconciler.lifecycle.checkpoints.turns import storage_of
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.job_record import JobRecord
from reconciler.protocols.checkpoints import CheckpointRegistry
from solver.model.workload import JobName


def unread(
    records: Iterable[JobRecord],
    begun: Collection[JobName],
    policies: Mapping[str, CheckpointPolicy],
    registry: CheckpointRegistry,
) -> dict[JobName, int]:
    """The step of the checkpoint from which each of these jobs may go on, if it is intact, and which was not read again yet.

    `begun`: jobs that have held devices. Without a policy that verifies none is read, and no job waits for it.
    """
    found = {}
    for record in records:
        policy = storage_of(record.spec, policies)
        if record.name not in begun or record.outcome is not None or policy is None or not policy.verify:
            continue
        hopeful = (one for one in registry.of(record.name) if one.state in ("published", "verified"))
        newest = next(hopeful, None)
        if newest is not None and newest.state == "published":
            found[record.name] = newest.step
    return found
