"""On which nodes the pods of a group may be, and how much of that a job can say by its GPU types.

Hard: nodeSelector, required node affinity and taints. Soft wishes order the GPU types, where they are about those, and are remarked
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from reconciler.kubernetes.objects.crowd import Crowd, Question
from reconciler.kubernetes.objects.dependency_index import DependencyIndex
from reconciler.kubernetes.objects.domains import LEVEL_OF_KEY, is_level
from reconciler.kubernetes.objects.membership import GangKey
from reconciler.kubernetes.objects.nodes import SeenNode
from reconciler.kubernetes.objects.pods import PodTask
from reconciler.kubernetes.objects.quotas import NamespaceQuotas
from reconciler.kubernetes.objects.remarks import Refusal, Remark
from reconciler.kubernetes.objects.selectors import disliked, may_be_on, meets, tolerates_all
from reconciler.kubernetes.objects.wire import NodeLimit, Pod
from solver.model.cluster import GpuType, Node, NodeName, SpreadLevel
from solver.model.document import digest
from solver.model.node_sets import NodeSet
from solver.model.shape import Shape

Names = frozenset[NodeName]
Types = tuple[frozenset[GpuType], bool, bool]

K = TypeVar("K")
V = TypeVar("V")

SET_NAME_DIGITS = 16
"""64 bits of the digest of its nodes: no two sets of a cluster meet in one name."""


REMEMBERED_MAX = 256
"""Answers about sets of nodes that are remembered: a set of 10,000 nodes takes half a MB."""


SOFT_TAINT_WEIGHT = 100
"""A node is liked less by so much for each soft taint: as much as the strongest wish of preferred affinity."""


class Plain(NamedTuple):
    """What a pod may and would like by itself, whatever is on nodes: see `allowed_nodes`, `liking` and `as_types`."""

    nodes: Names
    refusals: tuple[Refusal, ...]
    remarks: tuple[Remark, ...]
    liked: Mapping[GpuType, int]
    types: tuple[GpuType, ...]
    limited: NodeSet | None


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes as they are (`seen`), as the solver is told of them (`nodes`), and what is on them.

    What is asked often is remembered, for as long as what nodes are by themselves stays the same: their labels, taints, domains and
    what they offer. Whether they are ready and what is on them may change meanwhile.
    """

    seen: Mapping[NodeName, SeenNode]
    nodes: Mapping[NodeName, Node]
    crowd: Crowd
    asked: DependencyIndex[GangKey, Question]
    quotas: NamespaceQuotas = field(default_factory=NamespaceQuotas)
    _selected: dict[bytes, Names] = field(default_factory=dict)
    _common: dict[tuple[Names, ...], Names] = field(default_factory=dict)
    _types: dict[tuple[Names, bool], Types] = field(default_factory=dict)
    _levels: dict[str, SpreadLevel | None] = field(default_factory=dict)
    _sets: dict[Names, NodeSet] = field(default_factory=dict)
    _plain: dict[bytes, tuple[PodTask, Plain]] = field(default_factory=dict)

    def anew(self) -> Places:
        """The places once nodes are not by themselves what they were: askers with another answer are named."""
        now = Places(self.seen, self.nodes, self.crowd, self.asked, self.quotas)
        for written, (task, before) in self._plain.items():
            if now._plainly(written, task)._replace(nodes=before.nodes) != before:
                self.asked.changed(("plain", written))
        for key, level in self._levels.items():
            if now._level(key) != level:
                self.asked.changed(("level", key))
        self.asked.changed(("grounds",))
        return now

    def drop(self, question: Question) -> None:
        """It is not asked any more."""
        if question[0] == "plain":
            self._plain.pop(question[1], None)
        elif question[0] == "level":
            self._levels.pop(question[1], None)

    def plain(self, task: PodTask) -> Plain:
        """What a pod may and would like by itself. Thousands ask for the same."""
        spec = task.pod.spec
        node_affinity = spec.affinity.node_affinity if spec.affinity else None
        uses = [task.shape.uses_gpus, bool(task.shape.gpus), spec.gpus_by_claims]
        written = msgspec.json.encode([spec.node_selector, node_affinity, spec.tolerations, spec.limits, uses])
        self.asked.note(("plain", written))
        return self._plainly(written, task)

    def quota_against(self, pod: Pod) -> str:
        """Why no pod like this one can be made in its namespace now; "": it can, as far as is known."""
        self.asked.note(("quota", pod.metadata.namespace))
        return self.quotas.against(pod)

    def note_grounds(self) -> None:
        """The asker goes by what nodes are by themselves in a way that is not followed: any change of that may be one for it."""
        self.asked.note(("grounds",))

    def level(self, key: str) -> SpreadLevel | None:
        """The level that a label of nodes stands for here; None: it stands for none."""
        self.asked.note(("level", key))
        return self._level(key)

    def _level(self, key: str) -> SpreadLevel | None:
        if key not in self._levels:
            level = LEVEL_OF_KEY.get(key)
            pairs = ((node.labels, _domain(self.nodes[name], level)) for name, node in self.seen.items())
            self._levels[key] = level if level and is_level(key, pairs) else None
        return self._levels[key]

    def _plainly(self, written: bytes, task: PodTask) -> Plain:
        if written not in self._plain:
            self._plain[written] = task, self._found(task)
        return self._plain[written][1]

    def _found(self, task: PodTask) -> Plain:
        nodes, refusals = allowed_nodes(self, task)
        liked, remarks = type_preferences(self, task, nodes)
        types, limited = as_types(self, nodes, task.shape, liked)
        return Plain(nodes, refusals, remarks, liked, types, limited)

    def selected(self, pod: Pod) -> Names:
        """The nodes that its selector and required affinity name. Remembered, since thousands of pods say the same."""
        node_affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        written = msgspec.json.encode([pod.spec.node_selector, node_affinity])
        if written not in self._selected:
            _make_room(self._selected)
            self._selected[written] = frozenset(
                name for name, node in self.seen.items() if may_be_on(pod.spec, node.wire)
            )
        return self._selected[written]

    def tolerated(self, pod: Pod) -> Names:
        """The nodes whose taints it tolerates."""
        written = b"taints" + msgspec.json.encode(pod.spec.tolerations)
        if written not in self._selected:
            _make_room(self._selected)
            self._selected[written] = frozenset(
                name for name, node in self.seen.items() if tolerates_all(pod.spec.tolerations, node.wire.spec.taints)
            )
        return self._selected[written]

    def within(self, limit: NodeLimit) -> Names:
        """The nodes that something can be had on."""
        written = b"limit" + msgspec.json.encode(limit.terms)
        if written not in self._selected:
            _make_room(self._selected)
            self._selected[written] = frozenset(
                name for name, node in self.seen.items() if any(meets(term, node.wire) for term in limit.terms)
            )
        return self._selected[written]

    @property
    def nowhere(self) -> NodeSet:
        """The set without nodes: what is limited to it gets none."""
        return self.as_set(frozenset())

    @property
    def unshared(self) -> Names:
        """The nodes each of whose GPUs is counted once."""
        if b"unshared" not in self._selected:
            self._selected[b"unshared"] = frozenset(name for name, node in self.seen.items() if node.replicas == 1)
        return self._selected[b"unshared"]

    @property
    def with_gpus(self) -> Names:
        """The nodes that have any, in use or not."""
        if b"with GPUs" not in self._selected:
            self._selected[b"with GPUs"] = frozenset(name for name, node in self.seen.items() if node.gpus)
        return self._selected[b"with GPUs"]

    @property
    def softly_tainted(self) -> Names:
        """The nodes that have taints PreferNoSchedule."""
        if b"soft" not in self._selected:
            self._selected[b"soft"] = frozenset(
                name
                for name, node in self.seen.items()
                if any(taint.effect == "PreferNoSchedule" for taint in node.wire.spec.taints)
            )
        return self._selected[b"soft"]

    def with_gpus_had(self, *, by_claims: bool) -> Names:
        """The nodes whose GPUs are had by claims; or those whose GPUs are had as a resource."""
        key = b"by claims" if by_claims else b"as a resource"
        if key not in self._selected:
            self._selected[key] = frozenset(name for name in self.with_gpus if self.seen[name].for_claims == by_claims)
        return self._selected[key]

    def common(self, sets: Sequence[Names]) -> Names:
        """The nodes that are in all of them."""
        wanted = tuple(sets)
        if wanted not in self._common:
            _make_room(self._common)
            self._common[wanted] = frozenset.intersection(*wanted)
        return self._common[wanted]

    def as_set(self, nodes: Names) -> NodeSet:
        """The nodes under a name that follows from which they are: equal sets have one name, in every snapshot."""
        if nodes not in self._sets:
            names = tuple(sorted(nodes))
            _make_room(self._sets)
            self._sets[nodes] = NodeSet(f"nodes-{digest(names).partition(':')[2][:SET_NAME_DIGITS]}", names)
        return self._sets[nodes]

    def types_of(self, nodes: Names, uses_gpus: bool) -> Types:
        """The GPU types of nodes that could serve; whether these are all that could; whether all of their types are among them.

        Of no node neither is true: that a job says nothing of its nodes means that any would do.
        """
        if (nodes, uses_gpus) not in self._types:
            able = {name: node.gpu_type for name, node in self.seen.items() if node.gpus or not uses_gpus}
            among = nodes & able.keys()
            types = frozenset(able[name] for name in among)
            of_types = sum(gpu_type in types for gpu_type in able.values())
            _make_room(self._types)
            is_all, is_said = bool(nodes) and len(among) == len(able), bool(among) and len(among) == of_types
            self._types[nodes, uses_gpus] = types, is_all, is_said
        return self._types[nodes, uses_gpus]


def allowed_nodes(places: Places, task: PodTask) -> tuple[Names, tuple[Refusal, ...]]:
    """The nodes that a pod may be on by itself; where there is none, what leaves none."""
    steps = [
        ("that nodeSelector and node affinity name", places.selected(task.pod)),
        ("whose taints are tolerated", places.tolerated(task.pod)),
        *((limit.said, places.within(limit)) for limit in task.pod.spec.limits),
    ]
    if task.shape.uses_gpus and places.with_gpus:  # where no node has any, a round says so
        steps.append(("that have GPUs", places.with_gpus))
        by_claims = task.pod.spec.gpus_by_claims
        how = "a driver publishes for claims" if by_claims else "a device plugin offers"
        steps.append((f"whose GPUs {how}", places.with_gpus_had(by_claims=by_claims)))
    if task.shape.gpus:
        steps.append(("whose GPUs are not shared", places.unshared))
    left = places.common([these for _, these in steps])
    if left:
        return left, ()
    there = f"of {len(places.seen)} nodes there are {', of these '.join(_narrowing(places, steps))}"
    message = there if places.seen else "there are no nodes"
    return left, (Refusal("no-node", message, "Loosen what the pods ask of their nodes, or label or add nodes."),)


def _narrowing(places: Places, steps: Sequence[tuple[str, Names]]) -> Iterator[str]:
    """What leaves how many nodes, until none is left; what keeps out none is not to blame."""
    before = len(places.seen)
    for number, (what, _) in enumerate(steps):
        left = len(places.common([these for _, these in steps[: number + 1]]))
        if left < before:
            yield f"{left} {what}"
        before = left


def as_types(
    places: Places, nodes: Names, shape: Shape, liked: Mapping[GpuType, int]
) -> tuple[tuple[GpuType, ...], NodeSet | None]:
    """The GPU types of some nodes, the liked ones first, and the nodes themselves where their types mean others too.

    Where every node that could serve the shape is among them there is nothing to say, but for an order. No node is a limit too: a
    set without nodes, since no types and no set would mean that any node does.
    """
    types, is_all, is_said = places.types_of(nodes, shape.uses_gpus)
    if not shape.uses_gpus:
        return (), None if is_all else places.as_set(nodes)
    ordered = tuple(sorted(types, key=lambda gpu_type: (-liked.get(gpu_type, 0), gpu_type)))
    if is_all and not any(liked.get(gpu_type) for gpu_type in types):
        return (), None
    return ordered, None if is_said else places.as_set(nodes & places.with_gpus)


def type_preferences(places: Places, task: PodTask, nodes: Names) -> tuple[dict[GpuType, int], tuple[Remark, ...]]:
    """How much a pod likes each GPU type of the nodes that it may be on, where it likes all nodes of a type alike.

    By preferred node affinity and soft taints (PreferNoSchedule); what tells nodes of one type apart is not followed.
    """
    spec = task.pod.spec
    preferred = spec.affinity.node_affinity.preferred if spec.affinity and spec.affinity.node_affinity else ()
    if not preferred and nodes.isdisjoint(places.softly_tainted):
        return {}, ()
    wishes: dict[GpuType, set[int]] = {}
    taints: dict[GpuType, set[int]] = {}
    for node in (places.seen[name] for name in nodes):
        of_type = node.gpu_type if task.shape.uses_gpus else GpuType("")
        weight = sum(wish.weight for wish in preferred if meets(wish.preference, node.wire))
        wishes.setdefault(of_type, set()).add(weight)
        taints.setdefault(of_type, set()).add(disliked(spec.tolerations, node.wire.spec.taints))
    remarks: list[Remark] = []
    if any(len(found) > 1 for found in wishes.values()):
        wishes = {}
        remarks.append(Remark("preferred-nodes", "preferred node affinity within a GPU type is not followed"))
    if any(len(found) > 1 for found in taints.values()):
        taints = {}
        message = "taints PreferNoSchedule within a GPU type keep pods away from no node"
        remarks.append(Remark("soft-taints", message))
    liked = {
        of_type: min(wishes.get(of_type, {0})) - SOFT_TAINT_WEIGHT * min(taints.get(of_type, {0}))
        for of_type in wishes.keys() | taints.keys()
    }
    return liked, tuple(remarks)


def _domain(node: Node, level: SpreadLevel | None) -> str:
    return node.name if level is None or level == "node" else node.domain(level)


def _make_room(memory: dict[K, V]) -> None:
    if len(memory) >= REMEMBERED_MAX:
        memory.clear()
