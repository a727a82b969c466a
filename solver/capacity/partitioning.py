"""What MigGeometry documents mean for a round: how each pool's GPUs may be partitioned, and how many changes are left."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from solver.capacity.mig_gpus import MigRule
from solver.capacity.pool_rules import PoolRules
from solver.model.cluster import DeviceId, Node
from solver.model.inflight import Counter
from solver.model.pledges import NOTHING, pledges_in
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy

MIG_CHANGES = "mig-changes"
"""The counter of GPUs that were partitioned anew, by pool."""

HOUR_MS = 3_600_000


def mig_changes(nodes: Iterable[Node], asked: Iterable[tuple[DeviceId, Instant]]) -> tuple[Counter, ...]:
    """How many GPUs of each pool were to be partitioned anew at each instant, as counters."""
    pools = {gpu.id: node.pool for node in nodes for gpu in node.gpus}
    made = Tally((pools[device], at) for device, at in asked if device in pools)
    return tuple(Counter(MIG_CHANGES, pool, at, count) for (pool, at), count in sorted(made.items()))


def pool_rules(policy: Policy, snapshot: Snapshot) -> PoolRules:
    """For each pool with a MigGeometry. What promises will need is counted as if it were made already."""
    return PoolRules(
        {
            known.pool: MigRule(
                known.pool,
                known.model,
                known.mode,
                known.layouts if known.mode == "bounded" else (),
                known.drains,
            )
            for known in policy.mig
        },
        {pool: max(0, left) for pool, left in changes_left(policy, snapshot).items()},
    )


def changes_left(policy: Policy, snapshot: Snapshot) -> dict[str, int]:
    """How many more GPUs of each pool may be changed, beside those that are pledged; below 0 where these are too many.

    Every counter counts that has a window begun within the last hour.
    """
    pools = {node.name: node.pool for node in snapshot.nodes}
    pledges = pledges_in(snapshot.nodes, snapshot.in_flight).values()
    counted = Tally(pools[node] for node, _ in NOTHING.union(*pledges))
    for counter in snapshot.in_flight.counters:
        if counter.name == MIG_CHANGES and counter.window_start > snapshot.time - HOUR_MS:
            counted[counter.subject] += counter.count
    return {known.pool: known.changes_max - counted[known.pool] for known in policy.mig}
