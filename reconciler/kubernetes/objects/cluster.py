"""All objects together as a round's world: nodes as they are for Quorate's pods, and every gang."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.remarks import Remark
from solver.model.cluster import Node, NodeName
from solver.model.node_sets import NodeSet
from solver.model.workload import Job


class KubernetesCluster(NamedTuple):
    """Nodes and gangs, sorted by name, what is to be said of nodes, and the sets of nodes that gangs are limited to."""

    nodes: tuple[Node, ...]
    gangs: tuple[PodGang, ...]
    remarks: tuple[tuple[NodeName, Remark], ...]
    node_sets: tuple[NodeSet, ...] = ()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Those that a round can be asked about."""
        return tuple(gang.job for gang in self.gangs if gang.job is not None)
