"""What a cluster says of the order of pods and of how many may be missing: PriorityClasses and PodDisruptionBudgets.

Written against k8s.io/api 0.36 (scheduling/v1, policy/v1).
"""

from __future__ import annotations

from reconciler.kubernetes.objects.wire import LabelSelector, Meta, Wire


class KubePriorityClass(Wire, frozen=True):
    """Kubernetes' own, by the name that pods give. Quorate's are documents in Git of the same name."""

    metadata: Meta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class BudgetSpec(Wire, frozen=True):
    """Which pods; None means none of them. `unhealthy_pod_eviction_policy`: AlwaysAllow, or what counts as IfHealthyBudget."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Wire, frozen=True):
    """How many may be evicted now, as of the generation that was observed."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0


class BudgetMeta(Meta, frozen=True):
    """`generation` counts how often its `spec` was changed."""

    generation: int = 0


class Budget(Wire, frozen=True):
    """A PodDisruptionBudget."""

    metadata: BudgetMeta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
