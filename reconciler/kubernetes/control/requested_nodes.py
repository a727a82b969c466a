"""What a pass does about nodes that jobs wait for: it looks at requests, keeps what came of them, and asks for more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.control.plane import PodPlane
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.provisioning.decisions import decided, standings, without_rules
from reconciler.kubernetes.provisioning.requests import RequestStanding
from reconciler.kubernetes.status.conditions import wants_nodes
from solver.model.quantities import Instant
from solver.plan.plan import Inadmissible, Plan, Waits
from solver.policy.policy import Policy
from solver.policy.reservation import DeclaredReservation


def requests_in(mirror: ClusterCache, policy: Policy, now: Instant) -> tuple[RequestStanding, ...]:
    """How far Quorate's requests have come; none where policy has none made."""
    rules = policy.scheduling.provisioning
    return standings((request for _, request in mirror.requests.items()), rules, now) if rules else ()


def with_holds(policy: Policy, held: Sequence[DeclaredReservation]) -> Policy:
    """The policy of this round: what is kept for jobs that asked for nodes is kept as what documents say is."""
    if not held:
        return policy
    both = sorted((*policy.reservations, *held), key=lambda known: known.name)
    return msgspec.structs.replace(policy, reservations=tuple(both))


async def ask_for_nodes(
    plane: PodPlane, plan: Plan, sight: Sight, policy: Policy, known: Iterable[RequestStanding]
) -> None:
    """Ask for the nodes that jobs wait for by this plan, and take back what no job waits for. Raises NotLeaderError."""
    hands, rules, now = plane.hands, policy.scheduling.provisioning, plane.handed.clock.now()
    if hands is None:
        return
    there = {(key.namespace, key.name): request for key, request in plane.mirror.requests.items()}
    if rules is None:
        await hands.provisioner.settle(without_rules(there.values()), None)
    elif hands.provisioner.has_seen(there):
        waits = {one.job: wants_nodes(one) for one in plan.verdicts if isinstance(one, Waits | Inadmissible)}
        wanted = decided(tuple(known), sight.cluster, waits, rules, now)
        await hands.provisioner.settle(wanted, rules)
