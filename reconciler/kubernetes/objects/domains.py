"""Where a node lies: its island, rack and block, from the labels that drivers, clouds and topograph write on nodes.

Labels of a rack are unique in their block only, those of a block in their zone (so Kueue reads them too): names here are paths, and
a rack lies in one block whatever the labels say. An NVLink clique has a name of its own; one that lies in two racks is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from reconciler.kubernetes.objects.names import HOSTNAME
from solver.model.cluster import SpreadLevel

KEYS: Final[dict[SpreadLevel, tuple[str, ...]]] = {
    "node": (HOSTNAME,),
    "island": (
        "nvidia.com/gpu.clique",
        "accelerator.topograph.run/domain",
        "network.topology.nvidia.com/accelerator",
    ),
    "rack": (
        "cloud.provider.com/topology-rack",
        "network.topology.nvidia.com/leaf",
        "topology.k8s.aws/network-node-layer-3",
        "cloud.google.com/gce-topology-subblock",
    ),
    "block": (
        "cloud.provider.com/topology-block",
        "network.topology.nvidia.com/spine",
        "topology.k8s.aws/network-node-layer-2",
        "cloud.google.com/gce-topology-block",
    ),
}
"""For each level its labels; the first that a node has counts."""

LEVEL_OF_KEY: Final[dict[str, SpreadLevel]] = {key: level for level, keys in KEYS.items() for key in keys}

ZONES: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""What a block lies in; where nothing says the block, this is it."""


class Position(NamedTuple):
    """The domains of one node; "" none that is known."""

    island: str = ""
    rack: str = ""
    block: str = ""


def position(labels: Mapping[str, str]) -> Position:
    """Where one node lies, as its labels say."""
    zone = _first(labels, ZONES)
    block = _path(zone, _first(labels, KEYS["block"])) or zone
    island = _first(labels, KEYS["island"])
    rack = _first(labels, KEYS["rack"])
    # Where nothing says the rack, an island is one: the nodes of an island share a rack by definition.
    return Position(island, _path(block, rack) if rack else _path(block, island), block)


def positions(labels: Mapping[str, Mapping[str, str]]) -> dict[str, Position]:
    """Where each node lies, by its name, so that domains are a tree: islands that lie in two racks are left out."""
    found = {name: position(of_node) for name, of_node in labels.items()}
    racks: dict[str, set[str]] = defaultdict(set)
    for name, known in found.items():
        racks[known.island].add(known.rack or name)
    return {name: known._replace(island="") if len(racks[known.island]) > 1 else known for name, known in found.items()}


def is_level(key: str, nodes: Iterable[tuple[Mapping[str, str], str]]) -> bool:
    """Whether a label and the domains of a level are the same partition of the nodes (labels, domain) that have the label."""
    pairs = {(labels[key], domain) for labels, domain in nodes if key in labels}
    return len(pairs) == len({value for value, _ in pairs}) == len({domain for _, domain in pairs})


def _first(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")


def _path(*parts: str) -> str:
    return ".".join(part for part in parts if part) if parts[-1] else ""
