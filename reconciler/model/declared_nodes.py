"""What Git says of nodes that a cluster has of its own, as one of Kubernetes does."""

from __future__ import annotations

import msgspec

from solver.model.amounts import NONE, Amounts, amounts_of
from solver.model.cluster import Node


def with_declaration(declared: Node | None, seen: Node) -> Node:
    """A node of the cluster with what Git declares of the node of that name; None: Git does not know it.

    Git goes before labels in what a node is for: its pool, its domains (all of them, if it declares any), links and data, and that
    it is closed. What there is only the cluster knows: whether it is ready, its GPUs, its CPU, memory and other resources, of which
    jobs may use no more than Git says. A node that only Git knows is not there, so it is not asked about.
    """
    if declared is None:
        return seen
    lies = declared if declared.island or declared.rack or declared.block else seen
    return msgspec.structs.replace(
        seen,
        pool=declared.pool,
        island=lies.island,
        rack=lies.rack,
        block=lies.block,
        links=declared.links,
        data=declared.data,
        cordoned=seen.cordoned or declared.cordoned,
        ready=seen.ready and declared.ready,
        cpu=min(seen.cpu, declared.cpu),
        memory=min(seen.memory, declared.memory),
        resources=_no_more(seen.resources, declared.resources),
    )


def redeclared(seen: Node, before: Node | None, now: Node | None) -> Node:
    """A node that was seen as Git declared it before, as it is once Git declares it so; None: Git does not know it.

    What a declaration that is gone went before (labels of domains, a pool) is not known: there the node stays as it was.
    """
    if before == now:
        return seen
    opened = msgspec.structs.replace(seen, cordoned=seen.cordoned and not (before and before.cordoned))
    if now is None:
        return opened
    # Where Git said how much of something jobs may use, there may be more.
    cpu = now.cpu if before and seen.cpu == before.cpu else seen.cpu
    memory = now.memory if before and seen.memory == before.memory else seen.memory
    limited = before.resources if before else NONE
    more = {
        name: now.resources.get(name, there) if there == limited.get(name) else there
        for name, there in seen.resources.items()
    }
    gpu_type = now.gpu_type if seen.gpus and now.gpu_type else seen.gpu_type
    changed = msgspec.structs.replace(opened, cpu=cpu, memory=memory, gpu_type=gpu_type, resources=amounts_of(more))
    return with_declaration(now, changed)


def _no_more(seen: Amounts, declared: Amounts) -> Amounts:
    if seen.keys().isdisjoint(declared):
        return seen
    return amounts_of({name: min(there, declared.get(name, there)) for name, there in seen.items()})
