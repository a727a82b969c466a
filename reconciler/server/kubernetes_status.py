"""What `quorate status` says of a cluster of pods: how far it is followed, and what of the policy is not kept there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reconciler.api.payloads import BEHIND, NOT_KEPT, Condition
from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.documents.operations import Operations
from reconciler.kubernetes.control.limits import with_idle_limits
from reconciler.model.budget import GpuBudget
from reconciler.model.idle_policy import IdlePolicy
from reconciler.model.watch_status import FollowedKind, behind
from solver.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class KubernetesStatus:
    """Implements ClusterStanding. Any thread may ask."""

    kinds: Callable[[], tuple[FollowedKind, ...]]
    policies: PolicySource

    def followed(self) -> tuple[FollowedKind, ...]:
        """How far each kind is followed; none before it has begun."""
        return self.kinds()

    def beside(self) -> None:
        """An observer's record is compared by `quorate simulate --as-it-was`."""

    def conditions(self) -> tuple[Condition, ...]:
        """Whether what is known is old, and what the policy asks for in vain."""
        late = [f"{kind.kind}: {kind.state}" for kind in behind(self.kinds())]
        reason = "NotHeard" if late else "Followed"
        return (Condition(BEHIND, bool(late), reason, "; ".join(late)), *self._not_kept())

    def _not_kept(self) -> Iterator[Condition]:
        try:
            in_force = self.policies.current()
        except NoPolicyError:
            return
        unkept = dict(_unkept(in_force.policy, in_force.operations))
        if unkept:
            yield Condition(NOT_KEPT, status=True, reason=next(iter(unkept)), message="; ".join(unkept.values()))


def _unkept(policy: Policy, operations: Operations) -> Iterator[tuple[str, str]]:
    """By a stable word, what is asked for in vain."""
    classes, health = list(with_idle_limits(policy)), operations.health
    if classes:
        told = f"so the idle limits of the PriorityClasses {', '.join(classes)} end no job"
        yield "IdleLimits", f"it is not seen what pods do, {told}"
    if operations.idle:
        yield "IdlePolicies", f"it is not seen what pods do: {_named('IdlePolicies', operations.idle)} warn no job"
    of_users = [budget for budget in operations.budgets if budget.user]
    if of_users:
        yield (
            "Budgets",
            f"which user a pod belongs to is not on record: nothing counts to {_named('Budgets', of_users)}",
        )
    if health is not None and health.test is not None:
        told = f"so the test of the HealthPolicy ({health.origin}) is not run"
        yield (
            "NodeTest",
            f"nothing of Quorate runs on nodes, {told}: drained nodes come back after {health.bad_node_ttl}",
        )


def _named(kind: str, documents: Sequence[IdlePolicy] | Sequence[GpuBudget]) -> str:
    return f"the {kind} {', '.join(known.name for known in documents)}"
