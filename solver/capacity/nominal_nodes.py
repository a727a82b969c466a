"""Nodes at their nominal capacity, whatever is wrong with them now: they decide whether a job could ever start."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from solver.capacity.mig_gpus import MigRule, is_allowed
from solver.model.cluster import Gpu, Node
from solver.model.kept_columns import KeptValues
from solver.model.mig_layout import geometry_of
from solver.model.round_cache import RoundCache


def nominal_nodes(
    nodes: tuple[Node, ...], rules: Mapping[str, MigRule], kept: RoundCache | None = None
) -> tuple[Node, ...]:
    """The same nodes with nothing wrong with them, and with GPUs whole that may be partitioned anew; `rules` by pool.

    `kept`: what was known of them in the rounds before.
    """
    known: KeptValues[Node, Node] = KeptValues() if kept is None else kept.lasting("nominal nodes", KeptValues)
    built = tuple(known.of(nodes, lambda node: _nominal_node(node, rules.get(node.pool)), rules))
    return nodes if built == nodes else built


def _nominal_node(node: Node, rule: MigRule | None) -> Node:
    if node.schedulable and all(gpu.healthy and gpu.instances is None for gpu in node.gpus):
        return node
    gpus = tuple(_healthy(gpu, None if node.keeps_geometry else rule) for gpu in node.gpus)
    return msgspec.structs.replace(node, ready=True, cordoned=False, gpus=gpus)


def _healthy(gpu: Gpu, rule: MigRule | None) -> Gpu:
    instances = gpu.instances
    # Instances that are there may be used, also where the pool's rule would have none of them made.
    if instances is not None and rule and rule.changes and is_allowed(rule, geometry_of(instances, rule.model)):
        instances = None
    return msgspec.structs.replace(gpu, healthy=True, instances=instances)
