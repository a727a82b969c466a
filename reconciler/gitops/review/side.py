"""One side of a review: a revision, the snapshot on its inventory, the plan of the next round, and the rounds to come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from reconciler.control.islands import with_reported_islands
from reconciler.documents.repository import Compiled
from reconciler.gitops.review.queue_names import in_queues_of
from reconciler.model.declared_nodes import redeclared
from solver.milp.optimiser import Optimiser
from solver.model.cluster import Node
from solver.model.node_sets import narrowed
from solver.model.snapshot import Snapshot, snapshot_of
from solver.plan.plan import Plan
from solver.policy.policy import Policy
from solver.policy.windows import policy_at
from solver.quota.entitlement import Shares
from solver.round.solve import solve, standing
from solver.simulation.projection import Projection, project


class ReviewSide(NamedTuple):
    """A revision to review: as its user names it, its full commit id, and what it says."""

    name: str
    commit: str
    compiled: Compiled


@dataclass(frozen=True, slots=True)
class Played:
    """What a revision does to a snapshot. `shares`: where the queues stand before the next round."""

    side: ReviewSide
    snapshot: Snapshot
    shares: Shares
    plan: Plan
    ahead: Projection

    @property
    def policy(self) -> Policy:
        """The revision's."""
        return self.side.compiled.policy


def play(snapshot: Snapshot, side: ReviewSide, base: Iterable[Node], optimiser: Optimiser | None) -> Played:
    """Solve the next round, and play those that follow. `base`: see `on_inventory`.

    The estimates that a round makes for waiting jobs are left out: the rounds to come say when they start.
    """
    policy = side.compiled.policy
    seen = on_inventory(snapshot, side.compiled.nodes, base)
    seen = msgspec.structs.replace(seen, jobs=in_queues_of(policy, seen.jobs))
    unasked = msgspec.structs.replace(policy.scheduling, estimated_jobs=0)
    plan = solve(seen, msgspec.structs.replace(policy, scheduling=unasked), optimiser)
    return Played(
        side, seen, standing(seen, policy_at(policy, seen.time))[0], plan, project(seen, plan, policy, side.commit)
    )


def on_inventory(snapshot: Snapshot, declared: tuple[Node, ...], base: Iterable[Node] = ()) -> Snapshot:
    """The snapshot as it will be on a declared inventory: nodes that were seen keep their health, new ones count as ready.

    `base`: the nodes as declared when they were seen. Nodes cordoned or in an island though they said nothing of it still are.
    A revision that declares no nodes at all is taken to leave the inventory to others. Of a cluster with nodes of its own there are
    these and no others, as the revision declares them.
    """
    seen, said = ({node.name: node for node in nodes} for nodes in (snapshot.nodes, base))
    nodes = snapshot.nodes
    if snapshot.inventory == "reported":
        now = {node.name: node for node in declared}
        nodes = tuple(redeclared(node, said.get(node.name), now.get(node.name)) for node in nodes)
    elif declared:
        told = {name: node.island for name, node in seen.items() if name not in said or not said[name].island}
        placed = with_reported_islands(declared, told)
        nodes = tuple(_as_seen(node, seen.get(node.name), said.get(node.name)) for node in placed)
    node_sets = narrowed(snapshot.node_sets, {node.name for node in nodes})
    return snapshot_of(snapshot.time, nodes, snapshot.jobs, snapshot.in_flight, node_sets, snapshot.inventory)


def _as_seen(declared: Node, seen: Node | None, base: Node | None) -> Node:
    """What the node will be by declaration. Health is as it was seen, and so are the instances of GPUs without a fixed layout."""
    if seen is None:
        return declared
    known = {gpu.id: gpu for gpu in seen.gpus}
    gpus = tuple(
        msgspec.structs.replace(
            gpu,
            healthy=known[gpu.id].healthy,
            instances=known[gpu.id].instances if gpu.instances is None else gpu.instances,
        )
        if gpu.id in known
        else gpu
        for gpu in declared.gpus
    )
    cordoned = declared.cordoned or (seen.cordoned and not (base and base.cordoned))
    return msgspec.structs.replace(declared, ready=seen.ready, cordoned=cordoned, gpus=gpus)
