"""Everything the control plane of a cluster of pods is made of, handed in as one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from structlog.typing import FilteringBoundLogger

from reconciler.control.control import PolicySource, Solve
from reconciler.kubernetes.control.actuator import KubernetesActuator
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.control.observer import Observer
from reconciler.kubernetes.control.pod_recorder import PodRecorder
from reconciler.kubernetes.control.state import KubernetesState
from reconciler.kubernetes.status.teller import Teller
from reconciler.model.budget import BudgetStanding
from reconciler.model.clock import Clock
from reconciler.protocols.health import NodeHealths
from reconciler.protocols.interventions import Interventions


@dataclass(frozen=True, slots=True)
class Handed:
    """What every plane is handed, whatever it does in its cluster.

    `stalled`: why a newer policy is not in force; "" where there is none. `recorder`: puts on record what pods hold; None: that is
    not kept. `budgets`: how they stand.
    """

    memory: KubernetesState
    interventions: Interventions
    health: NodeHealths
    policies: PolicySource
    solve: Solve
    clock: Clock
    chance: Random
    stalled: Callable[[], str]
    log: FilteringBoundLogger
    recorder: PodRecorder | None = None
    budgets: Callable[[], Sequence[BudgetStanding]] = tuple


@dataclass(frozen=True, slots=True)
class PodPlane:
    """`hands` and `teller` None: it only looks, and its `observer` says what it would have done."""

    mirror: ClusterCache
    handed: Handed
    hands: KubernetesActuator | None = None
    teller: Teller | None = None
    observer: Observer | None = None
