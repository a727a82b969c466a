"""Nodes that are added to a cluster to see what they would change, as they are written: `16xH100-node:2`, `h100-a:2`.

What is not said of them is as it is in a pool that is there: CPU and memory for each GPU, links, labels, and how many nodes share
an island, rack or block. They have domains of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as count_from
from typing import Final

import msgspec

from reconciler.analysis.capacity.target import PhraseError
from reconciler.model.problem import did_you_mean
from solver.model.cluster import DeviceId, Gpu, Node, NodeName
from solver.model.quantities import Cpu, Memory

EXAMPLE: Final = "Write it as 16xH100-node:2 (2 nodes with 16 H100 each) or POOL:2."
GPUS_MAX: Final = 64
"""On one node. No machine has more, and a slip of the finger fills no memory."""
NODES_MAX: Final = 10_000

_WRITTEN: Final = re.compile(r"(?:(?P<gpus>\d+)x)?(?P<name>[^:]*)(?::(?P<nodes>.*))?")


@dataclass(frozen=True)
class NodeAddition:
    """So many nodes (None: not said) with so many GPUs each, otherwise like those of a pool. `like`: one of them."""

    like: Node
    gpus: int
    nodes: int | None
    sizes: tuple[int, int, int]
    """Nodes of one island, rack and block; 0: none shares one with another."""

    @property
    def kind(self) -> str:
        """What is added, in words, without how many."""
        what = f"{self.gpus} {self.like.gpu_type}" if self.gpus else "no GPUs"
        return f"nodes of {what}, like those of {self.like.pool}"

    @property
    def scale(self) -> str:
        """What is assumed of CPU and memory; "": they are those of the pool."""
        there = len(self.like.gpus)
        if self.gpus == there:
            return ""
        return f"nodes of {self.gpus} {self.like.gpu_type} are taken to have CPU and memory as {self.like.pool} has for each GPU"

    def to(self, nodes: Sequence[Node], number: int) -> tuple[Node, ...]:
        """The cluster with so many of them more."""
        taken = {node.name for node in nodes}
        names = (NodeName(name) for place in count_from(1) if (name := f"{self.like.pool}-added-{place}") not in taken)
        return (*nodes, *(self._node(next(names), place) for place in range(number)))

    def _node(self, name: NodeName, place: int) -> Node:
        like, gpus = self.like, []
        for index in range(self.gpus):
            template = like.gpus[index % len(like.gpus)]
            gpus.append(Gpu(DeviceId(f"{name}/{index}"), index, memory=template.memory, instances=template.instances))
        there = max(1, len(like.gpus))
        island, rack, block = self._domains(place)
        return msgspec.structs.replace(
            like,
            name=name,
            gpus=tuple(gpus),
            cpu=Cpu(self._scaled(like.cpu, there)),
            memory=Memory(self._scaled(like.memory, there)),
            island=island,
            rack=rack,
            block=block,
            ready=True,
            cordoned=False,
        )

    def _scaled(self, amount: int, there: int) -> int:
        return amount * self.gpus // there if self.gpus else amount

    def _domains(self, place: int) -> tuple[str, str, str]:
        """Domains of its own, nested, each filled up before the next begins."""
        island_size, rack_size, block_size = self.sizes
        block = rack = island = ""
        within = place
        if block_size:
            block, within = f"added-{within // block_size + 1}", within % block_size
        if rack_size:
            rack = f"{block or 'added'}-r{within // rack_size + 1}"
            within %= rack_size
        if island_size:
            island = f"{rack or block or 'added'}-i{within // island_size + 1}"
        return island, rack, block


def read_addition(written: str, nodes: Sequence[Node]) -> NodeAddition:
    """Read `[GPUSx]NAME[:NODES]`, where NAME is a pool, a GPU type or the beginning of one. Raises PhraseError."""
    match = _WRITTEN.fullmatch(written.strip())
    if match is None or not match["name"]:
        raise PhraseError(1, "it does not say which nodes", EXAMPLE)
    like = _like(match["name"], match.start("name") + 1, nodes, match["gpus"])
    gpus = _number(match, "gpus", GPUS_MAX, "GPUs on a node")
    if gpus is not None and not like.gpus:
        raise PhraseError(1, f"nodes of {like.pool} have no GPUs", f"Leave out {gpus}x, or name another pool or type.")
    number = _number(match, "nodes", NODES_MAX, "nodes")
    return NodeAddition(like, len(like.gpus) if gpus is None else gpus, number, _sizes(like.pool, nodes))


def nodes_of_type(gpu_type: str, nodes: Sequence[Node]) -> NodeAddition | None:
    """Nodes like those of the pool that has most of a GPU type; None: no pool has any."""
    found = [node for node in nodes if node.gpu_type == gpu_type and node.gpus]
    if not found:
        return None
    like = _commonest(found)
    return NodeAddition(like, len(like.gpus), None, _sizes(like.pool, nodes))


def _number(match: re.Match[str], group: str, most: int, what: str) -> int | None:
    text = match[group]
    if text is None:
        return None
    place = match.start(group) + 1
    if not text.isdecimal() or not text.isascii():
        raise PhraseError(
            place, f"{text!r} is no number of {what}" if text else f"there is no number of {what}", EXAMPLE
        )
    if len(text) > 9 or not 1 <= int(text) <= most:
        raise PhraseError(place, f"{text[:12]} {what} can't be tried", f"It is 1 to {most}.")
    return int(text)


def _like(name: str, place: int, nodes: Sequence[Node], gpus: str | None) -> Node:
    """A node that the added ones are like."""
    bare = name.removesuffix("-node").removesuffix("-nodes")
    found = [node for node in nodes if node.pool == name] or [
        node for node in nodes if node.gpus and node.gpu_type == bare
    ]
    if not found:
        begins = sorted({node.gpu_type for node in nodes if node.gpus and _begins(node.gpu_type, bare)})
        if len(begins) > 1:
            raise PhraseError(place, f"{bare} can be {' or '.join(begins)}", "Write the whole name of one.")
        found = [node for node in nodes if node.gpus and node.gpu_type in begins]
    if not found:
        known = {node.pool for node in nodes} | {str(node.gpu_type) for node in nodes if node.gpus}
        raise PhraseError(place, f"there is no pool or GPU type {bare}", did_you_mean(bare, known) or EXAMPLE)
    same = [node for node in found if gpus is not None and str(len(node.gpus)) == gpus]
    return _commonest(same or found)


def _begins(gpu_type: str, name: str) -> bool:
    """As jobs may name a type in short."""
    return f"{gpu_type.lower()}-".startswith(f"{name.lower()}-")


def _commonest(nodes: Sequence[Node]) -> Node:
    """The first node of the largest pool; of those that have most of its nodes alike."""
    pools = Counter(node.pool for node in nodes)
    pool = min(pools, key=lambda known: (-pools[known], known))
    mine = [node for node in nodes if node.pool == pool]
    alike = Counter((len(node.gpus), node.cpu, node.memory) for node in mine)
    common = min(alike, key=lambda known: (-alike[known], known))
    return next(node for node in mine if (len(node.gpus), node.cpu, node.memory) == common)


def _sizes(pool: str, nodes: Sequence[Node]) -> tuple[int, int, int]:
    """How many nodes the largest island, rack and block of a pool have, whole ones in the next wider."""
    mine = [node for node in nodes if node.pool == pool]
    domains: tuple[Callable[[Node], str], ...] = (_island, _rack, _block)
    return tuple(_largest(of, mine) for of in domains)  # type: ignore[return-value]


def _largest(of: Callable[[Node], str], nodes: Sequence[Node]) -> int:
    return max(Counter(name for node in nodes if (name := of(node))).values(), default=0)


def _island(node: Node) -> str:
    return node.island


def _rack(node: Node) -> str:
    return node.rack


def _block(node: Node) -> str:
    return node.block


def told(additions: Sequence[tuple[NodeAddition, int]]) -> str:
    """What is added, as the name of a case."""
    return " ".join(f"+{number} {addition.like.pool}" for addition, number in additions)


def assumptions(additions: Sequence[NodeAddition]) -> Iterator[str]:
    """What has to be said of them."""
    for addition in additions:
        where = ": they lie in domains of their own, as large as its largest" if any(addition.sizes) else ""
        yield f"added are {addition.kind}{where}"
        if addition.scale:
            yield addition.scale
