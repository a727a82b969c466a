"""Which of a node's free GPUs a gang takes: on every node those at the same places, as far as they are free.

In a rail-optimised network GPU i of every node hangs on the same leaf switch, its rail, and traffic between equal places
never leaves it (NVIDIA DGX SuperPOD reference architecture). Gangs that take whole nodes are in line by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import DeviceId


def rails_of(room: FreeCapacity, nodes: Collection[int]) -> Mapping[int, Sequence[DeviceId]]:
    """The free GPUs of each node in the order in which a gang on these nodes takes them: first those free on most of its nodes.

    Empty where it is on one node, and takes whatever comes first.
    """
    if len(set(nodes)) == 1:
        return {}
    free = {node: _places(room, node) for node in nodes}
    nodes_with = Counter(place for places in free.values() for place in places.values())
    return {
        node: sorted(places, key=lambda device: (-nodes_with[places[device]], places[device]))
        for node, places in free.items()
    }


def _places(room: FreeCapacity, node: int) -> dict[DeviceId, int]:
    at = {gpu.id: gpu.index for gpu in room.nodes[node].gpus}
    return {device: at[device] for device in room.free_devices[node]}
