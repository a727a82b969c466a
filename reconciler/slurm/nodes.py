"""What Slurm says of its nodes: which of them take jobs now, and what it calls their GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from reconciler.importers.inventory import gpus_of_gres, node_name
from reconciler.importers.slurm.hosts import hosts
from reconciler.importers.slurm.jobs import listed
from reconciler.importers.source import SourceFile
from reconciler.model.problem import START, InvalidDocumentsError, problem_at
from solver.model.cluster import GpuType, Node, NodeName
from solver.plan.reason import count

_CLOSED: Final = (
    "DRAIN",
    "DOWN",
    "FAIL",
    "MAINT",
    "FUTURE",
    "NOT_RESPONDING",
    "NO_RESPOND",
    "POWERED_DOWN",
    "POWERING_DOWN",
)
"""How the words begin that Slurm has for a node that takes no jobs now."""
_NAMED_MAX: Final = 5


class NodeStanding(NamedTuple):
    """A node by its name in documents. `closed`: the state in which it takes no job; "": it takes some. `kind`: its GPUs' type."""

    name: str
    closed: str
    kind: str
    gpus: int


def node_standings(source: SourceFile) -> dict[str, NodeStanding]:
    """By name. A node that is in several groups is closed if one says so. Raises InvalidDocumentsError for what has no nodes."""
    try:
        found = msgspec.json.decode(source.raw)
    except msgspec.DecodeError as error:
        raise InvalidDocumentsError([problem_at(source.name, START, "syntax", f"not JSON: {error}")]) from error
    standings = dict[str, NodeStanding]()
    for one in _standings(source.name, found):
        known = standings.get(one.name)
        standings[one.name] = one._replace(closed=known.closed or one.closed) if known else one
    return standings


def _standings(file: str, found: Any) -> Iterator[NodeStanding]:
    """Records of nodes, or since 23.02 of groups of them that are alike."""
    nodes, groups = (found.get(key) if isinstance(found, dict) else None for key in ("nodes", "sinfo"))
    if isinstance(nodes, list):
        yield from (_standing(str(node["name"]), node) for node in nodes if isinstance(node, dict) and node.get("name"))
    elif isinstance(groups, list):
        for group in groups:
            yield from _of_group(group) if isinstance(group, dict) else ()
    else:
        raise InvalidDocumentsError([problem_at(file, START, "nodes", "no nodes are in it")])


def _of_group(group: Mapping[str, Any]) -> Iterator[NodeStanding]:
    members, state, gres = (
        _within(group, *path) for path in (("nodes", "nodes"), ("node", "state"), ("gres", "total"))
    )
    record = {"state": state, "gres": gres}
    for written in listed(members):
        try:
            yield from (_standing(name, record) for name in hosts(written))
        except ValueError:
            continue


def _within(record: Mapping[str, Any], *path: str) -> Any:
    found: Any = record
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _standing(name: str, record: Mapping[str, Any]) -> NodeStanding:
    flags = [flag.upper() for flag in (*listed(record.get("state")), *listed(record.get("state_flags")))]
    closed = next((flag for flag in flags if flag.startswith(_CLOSED)), "")
    return NodeStanding(node_name(name), closed, *gpus_of_gres(str(record.get("gres") or "")))


class KnownNodes(NamedTuple):
    """Declared nodes as Slurm has them now. `types`: the GPU types of the policy by what Slurm calls them; `doubts`: sentences."""

    nodes: dict[str, Node]
    types: Mapping[str, GpuType]
    doubts: tuple[str, ...]


def known_nodes(declared: Iterable[Node], standings: Mapping[str, NodeStanding]) -> KnownNodes:
    """Nodes that Slurm closes take no job here, and those that it does not have are none."""
    nodes, types, doubts = dict[str, Node](), dict[str, GpuType](), list[str]()
    here = {node.name: node for node in declared}
    for name, node in here.items():
        standing = standings.get(name)
        if standing is None:
            continue
        nodes[name] = msgspec.structs.replace(node, cordoned=node.cordoned or bool(standing.closed))
        if standing.kind and node.gpu_type:
            types.setdefault(standing.kind, node.gpu_type)
        if standing.gpus != len(node.gpus):
            doubts.append(f"{name} has {count(standing.gpus, 'GPU')} by Slurm, and {len(node.gpus)} by its NodePool")
    absent, strange = _some(here.keys() - standings.keys()), _some(standings.keys() - here.keys())
    if absent:
        doubts.append(f"Slurm has no node called {absent}: they are left out")
    if strange:
        doubts.append(f"no NodePool has the nodes {strange}: what is on them is not seen")
    return KnownNodes(nodes, types, tuple(doubts))


def _some(names: Iterable[str | NodeName]) -> str:
    found = sorted(names)
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return ", ".join(found[:_NAMED_MAX]) + more
