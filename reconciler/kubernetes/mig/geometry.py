"""What is known in one look of the nodes whose GPUs a round may partition by their MIG manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.kubernetes.mig.change import MigChange
from reconciler.kubernetes.objects.wire import KubeNode
from solver.model.cluster import NodeName
from solver.policy.division import MigGeometry


@dataclass(frozen=True, slots=True)
class Geometry:
    """`rules`: how the GPUs of a node may be partitioned, of nodes whose pool lets a round do that.

    `nodes`: as they were looked at. `changing`: what is on its way, whatever the policy says by now. `kept`: why the GPUs of a node
    can't be partitioned anew now. `busy`: their MIG manager is at work, by whose hand ever.
    """

    rules: Mapping[NodeName, MigGeometry] = field(default_factory=dict)
    nodes: Mapping[NodeName, KubeNode] = field(default_factory=dict)
    changing: Mapping[NodeName, MigChange] = field(default_factory=dict)
    kept: Mapping[NodeName, str] = field(default_factory=dict)
    busy: frozenset[NodeName] = frozenset()
