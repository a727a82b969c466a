"""Topology documents: which island, rack and block each node of a pool lies in, and whether the domains make a tree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.cluster import LEVELS as EVERY_LEVEL
from solver.model.cluster import Links, NodeName
from solver.model.document import Document
from solver.plan.words import with_article

DomainLevel = Literal["island", "rack", "block"]
LEVELS: tuple[DomainLevel, ...] = ("island", "rack", "block")

Position = dict[DomainLevel, str]
"""The domain of one node at each level where it has one."""


class TopologyShape(Document, frozen=True):
    """A regular topology: how many of each level are in the next."""

    nodes_per_island: int
    islands_per_rack: int
    racks_per_block: int


class Domain(Document, frozen=True):
    """One domain: the nodes it lists and those of the domains below it."""

    level: DomainLevel
    name: str
    parent: str | None = None
    nodes: tuple[NodeName, ...] = ()
    data: tuple[str, ...] = ()


class TopologySpec(Document, frozen=True):
    """The `spec` of a Topology document: regular, or domain by domain."""

    pool: str
    bandwidth: Links = Links()
    shape: TopologyShape | None = None
    domains: tuple[Domain, ...] | None = None


def positions(topology: TopologySpec, nodes: list[NodeName]) -> dict[NodeName, Position]:
    """Where each of the pool's nodes lies. `nodes` are sorted; the topology is free of problems."""
    if topology.shape:
        return _regular(topology.shape, nodes)
    domains = topology.domains or ()
    by_name = {domain.name: domain for domain in domains}
    placed: dict[NodeName, Position] = {}
    for domain in domains:
        around = _around(domain, by_name)
        for node in domain.nodes:
            placed.setdefault(node, {}).update(around)
    for position in placed.values():
        # Nodes of one island are at least as close as those of one rack, so an island without a rack is one.
        if "island" in position:
            position.setdefault("rack", position["island"])
    return placed


def data_near(topology: TopologySpec, nodes: list[NodeName]) -> dict[NodeName, set[str]]:
    """The data of the domains that each of the pool's nodes lies in, by node. As `positions`."""
    data = {domain.name: domain.data for domain in topology.domains or () if domain.data}
    if not data:
        return {}
    placed = positions(topology, nodes)
    return {node: {name for domain in at.values() for name in data.get(domain, ())} for node, at in placed.items()}


def topology_problems(declared: Declaration[TopologySpec], nodes: list[NodeName]) -> Iterator[Problem]:
    """What is wrong with a topology, given the nodes of its pool."""
    domains = declared.value.domains or ()
    yield from _bandwidth_problems(declared)
    yield from _name_problems(declared, set(nodes))
    by_name = {domain.name: domain for domain in domains}
    for index, domain in enumerate(domains):
        if domain.parent is not None:
            yield from _parent_problems(declared, index, domain, by_name)
    yield from _node_problems(declared, set(nodes))


def _regular(shape: TopologyShape, nodes: list[NodeName]) -> dict[NodeName, Position]:
    island = shape.nodes_per_island
    rack = island * shape.islands_per_rack
    sizes: dict[DomainLevel, int] = {"island": island, "rack": rack, "block": rack * shape.racks_per_block}
    return {
        node: {level: f"{level}-{index // size + 1:04}" for level, size in sizes.items()}
        for index, node in enumerate(nodes)
    }


def _around(domain: Domain, by_name: dict[str, Domain]) -> Position:
    """The domain and those that contain it. Parents are strictly wider, so at most three steps lead to the top."""
    around: Position = {}
    step: Domain | None = domain
    while step and step.level not in around:
        around[step.level] = step.name
        step = by_name.get(step.parent or "")
    return around


def _bandwidth_problems(declared: Declaration[TopologySpec]) -> Iterator[Problem]:
    links = declared.value.bandwidth
    for closer, wider in pairwise(EVERY_LEVEL):
        if links.at(wider) > links.at(closer):
            at: Path = ("spec", "bandwidth", wider)
            message = (
                f"the bandwidth of {with_article(wider)} ({links.at(wider):g}) is above that of {with_article(closer)} "
                f"({links.at(closer):g})"
            )
            yield declared.problem(at, "bandwidth-rises", message, "What is further apart has no faster link.")


def _name_problems(declared: Declaration[TopologySpec], nodes: set[NodeName]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, domain in enumerate(declared.value.domains or ()):
        at: Path = ("spec", "domains", index, "name")
        if domain.name in seen:
            yield declared.problem(
                at, "duplicate-domain", f"the domain {domain.name} is declared twice", "Rename or merge one of them."
            )
        if domain.name in nodes:
            yield declared.problem(
                at, "duplicate-domain", f"{domain.name} is also the name of a node of the pool", "Rename the domain."
            )
        seen.add(domain.name)


def _parent_problems(
    declared: Declaration[TopologySpec], index: int, domain: Domain, by_name: dict[str, Domain]
) -> Iterator[Problem]:
    at: Path = ("spec", "domains", index, "parent")
    parent = by_name.get(domain.parent or "")
    if parent is None:
        yield declared.problem(
            at, "unknown-parent", f"there is no domain {domain.parent}", did_you_mean(domain.parent, by_name)
        )
    elif LEVELS.index(parent.level) <= LEVELS.index(domain.level):
        message = f"the {domain.level} {domain.name} can't lie in the {parent.level} {parent.name}"
        yield declared.problem(at, "parent-not-wider", message, "A parent is of a wider level: island < rack < block.")


def _node_problems(declared: Declaration[TopologySpec], nodes: set[NodeName]) -> Iterator[Problem]:
    listed: dict[NodeName, str] = {}
    for index, domain in enumerate(declared.value.domains or ()):
        for item, node in enumerate(domain.nodes):
            at: Path = ("spec", "domains", index, "nodes", item)
            if node not in nodes:
                message = f"the pool {declared.value.pool} has no node {node}"
                yield declared.problem(at, "unknown-node", message, did_you_mean(node, nodes))
            elif node in listed:
                message = f"the node {node} is listed in {listed[node]} and in {domain.name}"
                yield declared.problem(
                    at,
                    "node-in-two-domains",
                    message,
                    "List it once, in the closest domain; use `parent` for the wider ones.",
                )
            listed.setdefault(node, domain.name)
