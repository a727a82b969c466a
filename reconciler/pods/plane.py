"""Everything the control plane of a cluster of pods is made of, handed in as one value."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.backends.kubernetes.mirror import Mirror
from reconciler.clock import Clock
from reconciler.control import PolicySource, Solve
from reconciler.pods.hands import Hands
from reconciler.pods.memory import Memory
from reconciler.store.interventions import Interventions


@dataclass(frozen=True, slots=True)
class PodPlane:
    """`hands` None: it only looks, and says what it would have done."""

    mirror: Mirror
    hands: Hands | None
    memory: Memory
    interventions: Interventions
    policies: PolicySource
    solve: Solve
    clock: Clock
