"""Whether PodDisruptionBudgets let all pods of a gang be evicted: what the API server decides one by one, decided of them together.

As its eviction does it: kubernetes 1.36, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reconciler.kubernetes.binder.intents import Pods, members_of
from reconciler.kubernetes.client.refusals import KubernetesError, TooManyRequestsError, UnreachableError
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.disruption import Budget
from reconciler.kubernetes.objects.selectors import selects
from reconciler.kubernetes.objects.wire import Pod
from solver.model.workload import JobName
from solver.plan.reason import count

Budgets = Mapping[str, Sequence[Budget]]
"""By namespace."""


def by_namespace(budgets: Iterable[Budget]) -> Budgets:
    """Sorted by name."""
    found: dict[str, list[Budget]] = defaultdict(list)
    for budget in sorted(budgets, key=lambda budget: (budget.metadata.namespace, budget.metadata.name)):
        found[budget.metadata.namespace].append(budget)
    return found


class Veto(NamedTuple):
    """Why some pods can't all be evicted now, and by which budgets."""

    why: str
    budgets: tuple[Budget, ...]

    @property
    def named(self) -> str:
        """The budgets with their namespaces, as people know them."""
        names = [f"{one.metadata.namespace}/{one.metadata.name}" for one in self.budgets]
        return f"PodDisruptionBudget{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def forbidden(pods: Iterable[Pod], budgets: Budgets) -> str:
    """Why these pods can't all be evicted now; "": they can."""
    found = veto(pods, budgets)
    return found.why if found else ""


def veto(pods: Iterable[Pod], budgets: Budgets) -> Veto | None:
    """What forbids to evict all of these pods now; None: nothing."""
    wanted: dict[str, int] = defaultdict(int)
    named: dict[str, Budget] = {}
    for pod in pods:
        if pod.metadata.deletion_timestamp or pod.is_over or pod.status.phase == "Pending":
            continue
        found = [
            one for one in budgets.get(pod.metadata.namespace, ()) if selects(one.spec.selector, pod.metadata.labels)
        ]
        if len(found) > 1:
            those = " and ".join(one.metadata.name for one in found)
            why = (
                f"pod {pod.metadata.name} is in the PodDisruptionBudgets {those}, and in more than one none is evicted"
            )
            return Veto(why, tuple(found))
        for budget in found:
            if not _is_free(pod, budget):
                named[budget.metadata.name] = budget
                wanted[budget.metadata.name] += 1
    refusing = {name: told for name, many in sorted(wanted.items()) if (told := _refused(named[name], many))}
    if not refusing:
        return None
    return Veto(next(iter(refusing.values())), tuple(named[name] for name in refusing))


def is_budgets(error: KubernetesError) -> bool:
    """Whether it is budgets that refused an eviction: one that allows no more, or several that select one pod."""
    if isinstance(error, TooManyRequestsError):
        return error.budget
    return isinstance(error, UnreachableError) and "more than one PodDisruptionBudget" in str(error)


def _refused(budget: Budget, wanted: int) -> str:
    allowed, name = max(0, budget.status.disruptions_allowed), budget.metadata.name
    if budget.status.observed_generation < budget.metadata.generation:
        return f"PodDisruptionBudget {name} was changed, and its controller has not said yet what it allows"
    if wanted > allowed:
        return f"PodDisruptionBudget {name} allows {count(allowed, 'eviction')} now, and it takes {wanted}"
    return ""


def _is_free(pod: Pod, budget: Budget) -> bool:
    """One that is not ready need not be counted, where the budget is met without it or says so."""
    if any(known.type == "Ready" and known.status == "True" for known in pod.status.conditions):
        return False
    met = budget.status.current_healthy >= budget.status.desired_healthy > 0
    return met or budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"


def protected_gangs(cluster: KubernetesCluster, pods: Pods, budgets: Budgets) -> dict[JobName, str]:
    """The gangs that hold nodes and can't be evicted as a whole now, with the budgets that forbid it."""
    found: dict[JobName, str] = {}
    for gang in cluster.in_namespaces(budgets):
        if gang.job is not None and gang.job.placement:
            against = veto((pod for _, pod in members_of(gang, pods) if pod.holds), budgets)
            found |= {gang.name: against.named} if against else {}
    return found
